// Memory that grows to the largest size that was ever asked for, and is then used again.
#ifndef TRIREME_BASE_BUFFER_H
#define TRIREME_BASE_BUFFER_H

#include "base/status.h"

#include <stddef.h>
#include <stdlib.h>

// All zero: empty. The memory is aligned to 64 bytes.
typedef struct tri_buffer {
    void *data;
    size_t size_bytes;
} tri_buffer;

// Makes room for at least `size_bytes`. If the memory has to grow, its content is lost.
// TRI_NO_MEMORY.
static inline tri_status tri_buffer_reserve(tri_buffer *buffer, size_t size_bytes) {
    enum { ALIGN_BYTES = 64 };
    if (size_bytes <= buffer->size_bytes) return TRI_OK;
    size_t wanted = (size_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    free(buffer->data);
    buffer->data = wanted >= size_bytes ? aligned_alloc(ALIGN_BYTES, wanted) : NULL;
    buffer->size_bytes = buffer->data ? wanted : 0;
    if (buffer->data) return TRI_OK;
    return TRI_FAIL(TRI_NO_MEMORY, "no memory for a buffer of %zu bytes", size_bytes);
}

static inline void tri_buffer_free(tri_buffer *buffer) {
    free(buffer->data);
    *buffer = (tri_buffer){0};
}

#endif
