// The header of a NumPy array: a Python dictionary with three entries, which is read without
// Python.
#ifndef TRIREME_FORMAT_NPY_HEADER_H
#define TRIREME_FORMAT_NPY_HEADER_H

#include "base/status.h"

#include <trireme/tensor.h>

// The largest header that is accepted; NumPy itself rejects more than 10000 bytes.
enum { TRI_NPY_HEADER_BYTES = 1 << 16 };

typedef struct tri_npy_header {
    tri_dtype dtype;
    bool is_swapped; // the elements' byte order is not that of this machine
    tri_shape shape;
    int64_t header_bytes; // offset of the first element
} tri_npy_header;

// Reads the header from the first `size` bytes of an array. TRI_CORRUPT: it is damaged, or this is
// no NumPy array; TRI_UNSUPPORTED: another version of the format, rows in Fortran order, too many
// axes, or a type that is not supported. Messages begin with `name`.
tri_status tri_npy_header_read(const uint8_t *bytes, size_t size, const char *name,
                               tri_npy_header *out);

#endif
