// Windows of tokens as samples. Windows do not overlap, so each gives T−1 next-token targets.
// Tokens after the last full window are not used.
#include "data/windows.h"

#include "base/quantity.h"

tri_status tri_windows_describe(tri_dataset *dataset) {
    tri_shape shape = tri_shape_of(dataset->options->sequence);
    return tri_dataset_add(dataset, "data.sequence", "input_ids", TRI_U32, &shape);
}

// Finds the largest token in the samples that are used, because the model's vocabulary must contain
// it. If the largest of all is known, no token is read.
static tri_status count_tokens(tri_dataset *dataset, const char *path, const tri_tokens *tokens,
                               int64_t known) {
    int64_t limit = dataset->file_split == TRI_DATA_TRAIN ? dataset->options->limit : 0;
    bool is_limited = limit > 0 && limit < dataset->samples;
    int64_t used = is_limited ? limit : dataset->samples;
    uint32_t largest = (uint32_t)known;
    if (known < 0 || is_limited)
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

tri_status tri_windows_open(tri_dataset *dataset, const char *source, tri_tokens *tokens,
                            int64_t largest) {
    int64_t sequence = dataset->options->sequence;
    dataset->samples = tokens->count / sequence;
    if (dataset->samples == 0)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: has %s, less than one sample of data.sequence = %lld",
                        source, tri_counted(tokens->count, "token"), (long long)sequence);
    int64_t rest = tokens->count % sequence;
    dataset->facts.rest_is_usual = true;
    if (rest > 0)
        dataset->facts.rest = tri_arena_printf(
            dataset->arena, "%s at the end, which fill no sample", tri_counted(rest, "token"));
    tri_shape shape = tri_shape_of(sequence);
    TRI_TRY(tri_dataset_add(dataset, source, "input_ids", tokens->dtype, &shape));
    return count_tokens(dataset, source, tokens, largest);
}

void tri_windows_close(tri_dataset *dataset) { tri_tokens_close(dataset->state); }

tri_status tri_windows_read(const tri_dataset *dataset, void *worker, int64_t sample,
                            tri_sample_value *values) {
    int64_t sequence = dataset->options->sequence;
    const tri_tokens *tokens = dataset->state;
    values->data = values->buffer;
    TRI_TRY(tri_tokens_read(tokens, sample * sequence, sequence, values->buffer));
    // The model's table has a row for each token up to the largest that was found at the start.
    uint32_t largest = tri_tokens_largest_of(tokens->dtype, values->buffer, sequence);
    if ((int64_t)largest < dataset->fields[0].classes) return TRI_OK;
    return TRI_FAIL(TRI_CORRUPT, "%s: token %u is larger than those that it had", tokens->path,
                    largest);
}

void tri_windows_hint(const tri_dataset *dataset, int64_t sample) {
    int64_t sequence = dataset->options->sequence;
    tri_tokens_hint(dataset->state, sample * sequence, sequence);
}

bool tri_windows_is_text(const tri_data_options *options) { return true; }
