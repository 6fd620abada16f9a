// Parameters of the kernels that work on rows: norms, embedding, rotary position embedding.
#ifndef TRIREME_DEVICE_CUDA_PARAMS_ROWS_H
#define TRIREME_DEVICE_CUDA_PARAMS_ROWS_H

#include <stdbool.h>
#include <stdint.h>
#include <trireme/tensor.h>

#define CUDA_ROW_KERNEL_LIST(X)                                                                    \
    X(row_norm)                                                                                    \
    X(row_norm_grad)

// y = (x - mean) * inv * weight + bias for each of the rows, where inv is 1 / sqrt(variance + eps)
// (layer norm); without `centred`, the mean is 0 (RMS norm).
typedef struct cuda_row_norm {
    bool centred;
    int64_t rows, width;
    float eps;
    tri_dtype x_type, y_type;
    const void *x;
    const float *weight, *bias; // [width]; NULL: none
    void *y;
    float *mean, *inv; // [rows]; mean of layer norm only
} cuda_row_norm;

// The gradient. dx may lie over dy. Each of `parts` blocks of rows has its sums over rows in a row
// of `dweight` and one of `dbias`, which are then to be added.
typedef struct cuda_row_norm_grad {
    bool centred;
    int64_t rows, width, parts;
    tri_dtype x_type, y_type; // of x, sum and dx; of dy
    const void *x, *dy, *sum; // sum is added to dx; NULL: none
    const float *mean, *inv, *weight;
    void *dx;
    float *dweight, *dbias; // [parts, width]; NULL: not wanted
} cuda_row_norm_grad;

// A block of row_norm_grad takes this many rows at a time.
enum { CUDA_NORM_ROWS = 16, CUDA_NORM_MAX_PARTS = 1024 };

#endif
