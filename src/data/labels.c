// Checks labels and token numbers of data that are being opened, a chunk at a time, because the
// data may be larger than memory.
#include "data/labels.h"

#include "data/convert.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16 };

static tri_status scan_chunk(tri_stored_field *field, const tri_labels_source *source,
                             int64_t first, int64_t count, const int64_t *numbers) {
    bool is_token = field->row.is_token;
    for (int64_t i = 0; i < count; i++) {
        bool is_ignored = numbers[i] == TRI_IGNORED_LABEL && !is_token;
        if (numbers[i] >= TRI_MAX_CLASSES || (numbers[i] < 0 && !is_ignored))
            return TRI_FAIL(
                TRI_BAD_INPUT, "%s: '%s' of sample %lld is %lld, which is not a %s from 0 to %d%s",
                source->path, field->field.name, (long long)((first + i) / source->per_sample),
                (long long)numbers[i], is_token ? "token: tokens count" : "class: classes count",
                TRI_MAX_CLASSES - 1,
                is_token ? ""
                         : " (-100: leave the sample out of the loss; numbers that are no classes: "
                           "store them as F32)");
        if (numbers[i] >= field->classes) field->classes = numbers[i] + 1;
        field->has_ignored |= is_ignored;
    }
    return TRI_OK;
}

tri_status tri_labels_scan(tri_stored_field *field, const tri_labels_source *source) {
    int64_t *numbers = malloc(CHUNK * sizeof *numbers);
    void *stored = malloc(CHUNK * tri_dtype_bytes(source->dtype));
    tri_status status = TRI_OK;
    if (!numbers || !stored)
        status = TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to check it", source->path);
    for (int64_t first = 0; first < source->count && status == TRI_OK; first += CHUNK) {
        int64_t count = source->count - first < CHUNK ? source->count - first : CHUNK;
        status = source->read(source->context, first, count, stored);
        if (status == TRI_OK) tri_convert(source->dtype, stored, TRI_I64, numbers, count);
        if (status == TRI_OK) status = scan_chunk(field, source, first, count, numbers);
    }
    free(numbers);
    free(stored);
    return status;
}
