// Checks that padding lies at the end of samples, to which it was moved from their beginning, and
// does not count in the loss, so that a causal model need not read `attention_mask`: a token sees
// only those before it.
#include "data/padding.h"

#include "base/limits.h"

#include <stdio.h>
#include <stdlib.h>

// Checks one sample. `labels` NULL: there are none. The label of the first token is never used.
static tri_status check_sample(const float *mask, const int64_t *labels, int64_t tokens,
                               const char *place, const char *model, bool predicts) {
    for (int64_t t = 0; t < tokens; t++) {
        bool is_padding = mask[t] == 0, is_after_padding = t > 0 && mask[t - 1] == 0;
        if (predicts && !is_padding && is_after_padding)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "data: %s has padding in front of tokens ('attention_mask'), which "
                            "model %s would read: pad behind the text (padding_side=\"right\")",
                            place, model);
        if ((!is_padding && mask[t] != 1) || (!is_padding && is_after_padding))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "data: 'attention_mask' of %s has %g within the text, but model %s "
                            "takes 1 for all tokens and 0 for padding before and behind them",
                            place, (double)(is_padding || mask[t] != 1 ? mask[t] : mask[t - 1]),
                            model);
        if (is_padding && !predicts && t > 0 && (!labels || labels[t] != TRI_IGNORED_LABEL))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "data: a token of %s is padding by 'attention_mask', but would count "
                            "in the loss: add 'labels', with -100 there",
                            place);
    }
    return TRI_OK;
}

// Room for one sample.
typedef struct sample_buffer {
    tri_reader *reader;
    void *fields[TRI_MAX_DATA_FIELDS];
} sample_buffer;

static tri_status allocate(const tri_dataset *dataset, sample_buffer *out) {
    TRI_TRY(tri_reader_create(dataset, &out->reader));
    tri_reader_take_all(out->reader);
    for (int i = 0; i < tri_dataset_field_count(dataset); i++)
        if (!(out->fields[i] = malloc(tri_dataset_field(dataset, i)->size_bytes)))
            return TRI_FAIL(TRI_NO_MEMORY, "data: no memory to check 'attention_mask'");
    return TRI_OK;
}

static void free_buffer(sample_buffer *buffer) {
    tri_reader_destroy(buffer->reader);
    for (int i = 0; i < TRI_MAX_DATA_FIELDS; i++) free(buffer->fields[i]);
}

tri_status tri_padding_check(const tri_dataset *dataset, const char *split, const char *model,
                             bool predicts) {
    int mask_at = tri_dataset_find(dataset, "attention_mask");
    int labels_at = tri_dataset_find(dataset, "labels");
    const tri_data_field *mask_field = tri_dataset_field(dataset, mask_at);
    int64_t tokens = mask_field->shape.dims[0];
    if (labels_at != TRI_NO_FIELD &&
        !tri_shape_equal(&tri_dataset_field(dataset, labels_at)->shape, &mask_field->shape))
        labels_at = TRI_NO_FIELD;
    sample_buffer buffer = {0};
    tri_status status = allocate(dataset, &buffer);
    for (int64_t i = 0; status == TRI_OK && i < tri_dataset_samples(dataset); i++) {
        char place[64];
        snprintf(place, sizeof place, "%s sample %lld", split, (long long)i);
        status = tri_reader_read(buffer.reader, i, 0, buffer.fields);
        if (status == TRI_OK)
            status = check_sample(buffer.fields[mask_at],
                                  labels_at == TRI_NO_FIELD ? NULL : buffer.fields[labels_at],
                                  tokens, place, model, predicts);
    }
    free_buffer(&buffer);
    return status;
}
