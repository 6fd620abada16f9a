// IDX files, raw or gzip-compressed: the format of MNIST and similar data. Format: "The IDX file
// format" at http://yann.lecun.com/exdb/mnist/: a big-endian magic number (type << 8 | axes),
// big-endian sizes, then the elements, row-major and big-endian.
#ifndef TRIREME_FORMAT_IDX_H
#define TRIREME_FORMAT_IDX_H

#include "base/status.h"

#include <trireme/tensor.h>

typedef struct tri_idx {
    tri_dtype dtype; // U8, I8, I16, I32, F32 or F64
    tri_shape shape;
    void *data; // row-major, in the byte order of this machine; NULL: it stays in the file
    int64_t size_bytes;
    int64_t offset; // of the elements in a file that is not compressed
} tri_idx;

typedef enum tri_idx_kind {
    TRI_IDX_ANY,
    TRI_IDX_IMAGES, // U8 [N, H, W]
    TRI_IDX_LABELS, // U8 [N]
} tri_idx_kind;

// Reads the whole file into memory and decompresses it, because samples are later read in random
// order. Of a file of bytes that is not compressed and has more than `most_bytes`, only the header
// is read: its elements can be read from the file, at `offset`. TRI_NOT_FOUND, TRI_IO, TRI_CORRUPT
// (wrong magic number, truncated, trailing bytes, damaged gzip), TRI_BAD_INPUT (images where labels
// are expected, or the reverse). Sizes that the file cannot contain are rejected before memory is
// allocated. The caller frees *out with tri_idx_free.
tri_status tri_idx_read(const char *path, tri_idx_kind kind, int64_t most_bytes, tri_idx *out);
void tri_idx_free(tri_idx *idx);

#endif
