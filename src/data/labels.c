#include "data/labels.h"

#include "data/convert.h"

#include <stdlib.h>

enum { CHUNK = 1 << 16 };

static tri_status scan_chunk(tri_dataset *dataset, const tri_labels_source *source, int64_t first,
                             int64_t count, const int64_t *numbers) {
    for (int64_t i = 0; i < count; i++) {
        if (numbers[i] >= TRI_MAX_CLASSES || (numbers[i] < 0 && numbers[i] != TRI_IGNORED_LABEL))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: '%s' of sample %lld is %lld, which is no class: they count from 0 "
                            "(%d: leave the sample out of the loss)",
                            source->path, source->name,
                            (long long)((first + i) / source->per_sample), (long long)numbers[i],
                            TRI_IGNORED_LABEL);
        if (numbers[i] >= dataset->classes) dataset->classes = numbers[i] + 1;
    }
    return TRI_OK;
}

tri_status tri_labels_scan(tri_dataset *dataset, const tri_labels_source *source) {
    int64_t *numbers = malloc(CHUNK * sizeof *numbers);
    void *stored = malloc(CHUNK * tri_dtype_bytes(source->dtype));
    tri_status status = TRI_OK;
    if (!numbers || !stored)
        status = TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to check it", source->path);
    for (int64_t at = 0; at < source->count && status == TRI_OK; at += CHUNK) {
        int64_t some = source->count - at < CHUNK ? source->count - at : CHUNK;
        status = source->read(source->context, at, some, stored);
        if (status == TRI_OK) tri_convert(source->dtype, stored, TRI_I64, numbers, some);
        if (status == TRI_OK) status = scan_chunk(dataset, source, at, some, numbers);
    }
    free(numbers);
    free(stored);
    return status;
}
