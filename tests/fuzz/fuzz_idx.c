// Reads arbitrary bytes as an IDX file, raw or compressed.
#include "base/status.h"
#include "format/idx.h"

#include <string.h>

#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = memory_file(data, size);
    for (tri_idx_kind kind = TRI_IDX_ANY; kind <= TRI_IDX_LABELS; kind++) {
        tri_idx idx;
        if (tri_idx_read(path, kind, INT64_MAX, &idx) != TRI_OK) {
            TRI_ASSERT(strstr(tri_error_message(), path) && !idx.data);
            continue;
        }
        TRI_ASSERT(idx.size_bytes ==
                   tri_shape_count(&idx.shape) * (int64_t)tri_dtype_bytes(idx.dtype));
        volatile uint8_t last = idx.size_bytes ? ((uint8_t *)idx.data)[idx.size_bytes - 1] : 0;
        (void)last;
        tri_idx_free(&idx);
    }
    return 0;
}
