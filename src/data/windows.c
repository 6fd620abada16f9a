// Windows of tokens as samples. Windows do not overlap, so each gives T−1 next-token targets.
// Tokens after the last full window are not used.
#include "data/windows.h"

#include "base/quantity.h"

tri_status tri_windows_describe(tri_dataset *dataset) {
    tri_shape shape = tri_shape_of(dataset->options->sequence);
    return tri_dataset_add(dataset, "data.sequence", "input_ids", TRI_U32, &shape);
}

// Finds the largest token in the samples that are used, because the model's vocabulary must contain
// it.
static tri_status count_tokens(tri_dataset *dataset, const char *path, const tri_tokens *tokens) {
    int64_t limit = dataset->file_split == TRI_DATA_TRAIN ? dataset->options->limit : 0;
    int64_t used = limit > 0 && limit < dataset->samples ? limit : dataset->samples;
    uint32_t largest;
    TRI_TRY(tri_tokens_largest(tokens, 0, used * dataset->options->sequence, &largest));
    if (largest >= TRI_MAX_CLASSES)
        return TRI_FAIL(
            TRI_BAD_INPUT,
            "%s: token %u read as %s is not a token of any vocabulary; if the file is of "
            "another type, set data.dtype",
            path, largest, tri_dtype_name(tokens->dtype));
    dataset->fields[0].classes = (int64_t)largest + 1;
    return TRI_OK;
}

tri_status tri_windows_open(tri_dataset *dataset, const char *source, tri_tokens *tokens) {
    int64_t sequence = dataset->options->sequence;
    dataset->samples = tokens->count / sequence;
    if (dataset->samples == 0)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: has %s, less than one sample of data.sequence = %lld",
                        source, tri_counted(tokens->count, "token"), (long long)sequence);
    int64_t rest = tokens->count % sequence;
    dataset->rest_is_usual = true;
    if (rest > 0)
        dataset->rest = tri_arena_printf(dataset->arena, "%s at the end, which fill no sample",
                                         tri_counted(rest, "token"));
    tri_shape shape = tri_shape_of(sequence);
    TRI_TRY(tri_dataset_add(dataset, source, "input_ids", tokens->dtype, &shape));
    return count_tokens(dataset, source, tokens);
}

void tri_windows_close(tri_dataset *dataset) { tri_tokens_close(dataset->state); }

tri_status tri_windows_read(const tri_dataset *dataset, void *worker, int64_t sample,
                            tri_sample_value *values) {
    int64_t sequence = dataset->options->sequence;
    values->data = values->buffer;
    return tri_tokens_read(dataset->state, sample * sequence, sequence, values->buffer);
}

void tri_windows_hint(const tri_dataset *dataset, int64_t sample) {
    int64_t sequence = dataset->options->sequence;
    tri_tokens_hint(dataset->state, sample * sequence, sequence);
}

bool tri_windows_has_test(const tri_data_options *options) { return options->test != NULL; }
