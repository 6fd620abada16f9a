// The parameters of the module's kernels that only move elements.
#ifndef TRIREME_DEVICE_CUDA_PARAMS_MOVE_H
#define TRIREME_DEVICE_CUDA_PARAMS_MOVE_H

#include <stdint.h>
#include <trireme/tensor.h>

#define CUDA_MOVE_KERNEL_LIST(X)                                                                   \
    X(move)                                                                                        \
    X(reorder)

enum { CUDA_MOVE_AXES = TRI_MAX_RANK + 1, CUDA_REORDER_TERMS = TRI_MAX_RANK + 3 };

// An axis along which elements are copied. Strides are in elements.
typedef struct cuda_move_axis {
    int64_t size, from_stride, to_stride;
} cuda_move_axis;

// to[Σ index · to_stride] = from[Σ index · from_stride] for every combination of indices; the last
// axis runs fastest.
typedef struct cuda_move {
    int axes, element_bytes; // number of axes; size of an element: 1, 2, 4, 8 or 16 bytes
    cuda_move_axis axis[CUDA_MOVE_AXES];
    const void *from;
    void *to;
} cuda_move;

// One term of an element's offset in a layout: (index[axis] / divisor) % modulus * stride. A
// modulus of INT64_MAX has no effect. The offset is the sum of all terms. An axis has one term, and
// one more for each block into which the layout cuts it: in blocks of 16 channels, channel c has
// the terms c % 16 * 1 and c / 16 * stride.
typedef struct cuda_reorder_term {
    int axis;
    int64_t divisor, modulus, stride;
} cuda_reorder_term;

// One of the two layouts, as a sum of terms, which stand in the order of their axes.
typedef struct cuda_reorder_side {
    int terms; // number of terms
    cuda_reorder_term term[CUDA_REORDER_TERMS];
} cuda_reorder_side;

// Copies every element of a tensor from one layout to another.
typedef struct cuda_reorder {
    int element_bytes; // size of an element: 1, 2, 4 or 8 bytes
    tri_shape shape;
    int64_t count; // number of elements
    cuda_reorder_side from_side, to_side;
    // Above 0: `from` is a sequence of matrices [rows, columns], and the copy transposes each.
    int64_t rows, columns;
    const void *from;
    void *to;
} cuda_reorder;

#endif
