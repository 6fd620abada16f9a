// Parameters of the kernels that work on rows (norms, embedding, rotary position embedding, bias)
// and on gates.
#ifndef TRIREME_DEVICE_CUDA_PARAMS_ROWS_H
#define TRIREME_DEVICE_CUDA_PARAMS_ROWS_H

#include <stdbool.h>
#include <stdint.h>
#include <trireme/tensor.h>

#define CUDA_ROW_KERNEL_LIST(X)                                                                    \
    X(row_norm)                                                                                    \
    X(row_norm_grad)                                                                               \
    X(embedding)                                                                                   \
    X(token_order)                                                                                 \
    X(row_starts)                                                                                  \
    X(embedding_grad)                                                                              \
    X(next_token)                                                                                  \
    X(rotary)                                                                                      \
    X(add_bias)                                                                                    \
    X(gate_grad)

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

// The gradient of row_norm. dx may lie over dy. Each of `parts` blocks of rows has its sums over
// rows in a row of `dweight` and one of `dbias`, which a second kernel adds up, so that the order
// is fixed.
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

// Tokens, and the rows of a table that a rank has: `first` to first + rows - 1 of `total`. Tokens
// that are not below `total` are refused.
typedef struct cuda_tokens {
    const int64_t *ids; // [count]
    int64_t count, first, rows, total;
    struct cuda_fault *fault;
} cuda_tokens;

// y [count, width] = rows of the table [rows, width]; 0 for rows that the rank does not have.
typedef struct cuda_embedding {
    cuda_tokens tokens;
    int64_t width;
    tri_dtype type;
    const void *table;
    void *y;
} cuda_embedding;

// Sorts positions by their tokens' rows; positions of one row stay in order. Row number `rows`
// stands for all that the rank does not have. Each pass of `passes` sorts by CUDA_DIGIT_BITS bits,
// from keys[i] and positions[i] to the other one; the first pass reads number 0.
typedef struct cuda_token_order {
    cuda_tokens tokens;
    int passes;
    int32_t *keys[2], *positions[2]; // [count]
} cuda_token_order;
enum { CUDA_DIGIT_BITS = 4 };

// starts[r] = how many of the sorted keys are below r, for r from 0 to `rows`.
typedef struct cuda_row_starts {
    int64_t count, rows;
    const int32_t *keys;
    int32_t *starts; // [rows + 1]
} cuda_row_starts;

// Row r of dtable [rows, width] = the sum of dy [count, width] at positions[starts[r]] and
// following, up to those of row r + 1.
typedef struct cuda_embedding_grad {
    int64_t rows, width;
    tri_dtype type; // of dy
    const void *dy;
    const int32_t *positions, *starts;
    float *dtable;
} cuda_embedding_grad;

// labels [samples, length]: each token's successor, and TRI_IGNORED_LABEL for the last. Labels may
// lie over the tokens.
typedef struct cuda_next_token {
    int64_t samples, length, ignored;
    const int64_t *ids;
    int64_t *labels;
} cuda_next_token;

// x, y [samples, length, heads, 2 * half]: elements i and i + half are turned by the angle
// (first + t) * theta^(-i / half). y may lie over x.
typedef struct cuda_rotary {
    int64_t samples, length, heads, half, first;
    double log_theta; // of base 2
    bool inverse;
    tri_dtype type;
    const void *x;
    void *y;
} cuda_rotary;

// y [rows, width] = x + bias [width]; y may lie over x.
typedef struct cuda_add_bias {
    int64_t rows, width;
    tri_dtype type;
    const void *x, *bias;
    void *y;
} cuda_add_bias;

// The gradient of silu(gate) * up; dgate may lie over gate.
typedef struct cuda_gate_grad {
    int64_t count;
    tri_dtype type;
    const void *gate, *up, *dy;
    void *dgate, *dup;
} cuda_gate_grad;

#endif
