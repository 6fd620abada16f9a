// The data set "tokens" (data.name): a text as a sequence of tokens. Sample i is the window of
// tokens i·T … i·T + T−1 with T = data.sequence, as the field `input_ids`. Windows do not overlap,
// so each gives T−1 next-token targets. Tokens after the last full window are not used.
#include "base/quantity.h"
#include "data/content.h"
#include "data/kind.h"
#include "format/tokens.h"

static tri_status tokens_describe(tri_dataset *dataset) {
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

static tri_status tokens_open(tri_dataset *dataset) {
    const tri_data_options *options = dataset->options;
    tri_tokens *tokens = TRI_NEW(dataset->arena, tri_tokens);
    dataset->state = tokens;
    bool training = dataset->file_split == TRI_DATA_TRAIN;
    const char *name = tri_dataset_file(dataset);
    if (!name && training) name = options->path;
    if (!name)
        return TRI_FAIL(training ? TRI_BAD_INPUT : TRI_NOT_FOUND,
                        "data.%s is not set: the file with the tokens",
                        training ? "train" : "test");
    const char *path = name == options->path ? name : tri_dataset_path(dataset, name);
    TRI_TRY(tri_tokens_open(path, (tri_token_type)options->dtype, tokens));
    // Any file can be read as bytes, so known formats that are not text are rejected here.
    if (tokens->dtype == TRI_U8 && options->dtype == TRI_TOKENS_AUTO)
        TRI_TRY(tri_content_check(path, "tokens"));
    dataset->samples = tokens->count / options->sequence;
    if (dataset->samples == 0)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: has %s, less than one sample of data.sequence = %lld",
                        path, tri_counted(tokens->count, "token"), (long long)options->sequence);
    tri_shape shape = tri_shape_of(options->sequence);
    TRI_TRY(tri_dataset_add(dataset, path, "input_ids", tokens->dtype, &shape));
    return count_tokens(dataset, path, tokens);
}

static void tokens_close(tri_dataset *dataset) { tri_tokens_close(dataset->state); }

static tri_status tokens_read(const tri_dataset *dataset, void *worker, int64_t sample,
                              tri_sample_value *values) {
    int64_t sequence = dataset->options->sequence;
    values->data = values->buffer;
    return tri_tokens_read(dataset->state, sample * sequence, sequence, values->buffer);
}

static void tokens_hint(const tri_dataset *dataset, int64_t sample) {
    int64_t sequence = dataset->options->sequence;
    tri_tokens_hint(dataset->state, sample * sequence, sequence);
}

static bool tokens_has_test(const tri_data_options *options) { return options->test != NULL; }

const tri_dataset_kind tri_dataset_tokens = {
    .open = tokens_open,
    .close = tokens_close,
    .read = tokens_read,
    .hint = tokens_hint,
    .has_test = tokens_has_test,
    .describe = tokens_describe,
};
