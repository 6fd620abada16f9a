// Parameters of the module's kernels that work on rows (norms, embedding, rotary position
// embedding, bias) and on gates. dx is the gradient of the loss with respect to x, and dy, dweight
// and the like are gradients too. Where a rank has only some rows of the embedding's table, other
// ranks have the rest.
#ifndef TRIREME_DEVICE_CUDA_PARAMS_ROWS_H
#define TRIREME_DEVICE_CUDA_PARAMS_ROWS_H

#include "base/kernel_inline.h"
#include "ops/rotary_rate.h"

#include <stdbool.h>
#include <stdint.h>
#include <trireme/tensor.h>

#define CUDA_ROW_KERNEL_LIST(X)                                                                    \
    X(row_norm)                                                                                    \
    X(row_norm_grad)                                                                               \
    X(group_norm)                                                                                  \
    X(group_norm_grad)                                                                             \
    X(embedding)                                                                                   \
    X(token_order)                                                                                 \
    X(row_starts)                                                                                  \
    X(embedding_grad)                                                                              \
    X(next_token)                                                                                  \
    X(rotary)                                                                                      \
    X(add_bias)

// For each row of x, y = (x - mean) * inv * weight + bias, where inv is 1 / sqrt(variance + eps)
// (layer norm); if not `centred`, the mean counts as 0 (RMS norm).
typedef struct cuda_row_norm {
    bool centred;
    int64_t rows, width;
    float eps;
    tri_dtype x_type, y_type;
    const void *x;
    const float *weight, *bias; // [width]; NULL: the norm has none
    void *y;
    float *mean, *inv; // [rows]; RMS norm has no mean
} cuda_row_norm;

// The gradient of row_norm. dx may be the memory of dy. The rows are divided among `blocks` thread
// blocks. Each block writes its sums over rows to its own row of `dweight` and `dbias`, and a
// second kernel adds these up, so that the order of the sum is fixed.
typedef struct cuda_row_norm_grad {
    bool centred;
    int64_t rows, width, blocks;
    tri_dtype x_type, y_type; // x_type is the type of x, sum and dx; y_type that of dy
    const void *x, *dy, *sum; // `sum` is added to dx; NULL: nothing is added
    const float *mean, *inv, *weight;
    void *dx;
    float *dweight, *dbias; // [blocks, width]; NULL: not needed
} cuda_row_norm_grad;

// How many thread blocks compute row_norm_grad. It depends on the shape alone, so that the sums
// over rows have the same bits on every device. A block should have at least CUDA_ROW_NORM_ROWS
// rows of x, because it also writes a row of sums; but if that gives fewer than
// CUDA_ROW_NORM_FEW_BLOCKS blocks, which would not fill a GPU, it may have fewer.
// CUDA_ROW_NORM_MOST_SUMS limits the memory for these sums.
enum { CUDA_ROW_NORM_ROWS = 4, CUDA_ROW_NORM_FEW_BLOCKS = 256, CUDA_ROW_NORM_MOST_SUMS = 1 << 21 };
static inline int64_t cuda_row_norm_blocks(int64_t rows, int64_t width) {
    int64_t blocks = (rows + CUDA_ROW_NORM_ROWS - 1) / CUDA_ROW_NORM_ROWS;
    int64_t most = CUDA_ROW_NORM_MOST_SUMS / width, few = CUDA_ROW_NORM_FEW_BLOCKS;
    if (most > 8 * few) most = 8 * few;
    if (blocks > most) blocks = most;
    if (blocks < few) blocks = rows < few ? rows : few;
    return blocks;
}

// For each group of channels of a sample, y = (x - mean) * inv * weight + bias, as row_norm does
// for rows, but with a weight for each channel. A group is `group` channels of `inner` elements.
typedef struct cuda_group_norm {
    int64_t samples, channels, group, inner;
    float eps;
    tri_dtype x_type, y_type;
    const void *x;
    const float *weight, *bias; // [channels]; NULL: the norm has none
    void *y;
    float *mean, *inv; // [samples, groups]
} cuda_group_norm;

// The gradient of group_norm. dx may be the memory of dy.
typedef struct cuda_group_norm_grad {
    int64_t samples, channels, group, inner;
    tri_dtype x_type, y_type; // x_type is the type of x and dx; y_type that of dy
    const void *x, *dy;
    const float *mean, *inv, *weight;
    void *dx;
    float *dweight, *dbias; // [samples, channels]: sums over a sample's pixels
} cuda_group_norm_grad;

// Tokens, and the rows of the table that this rank has: `first` to first + rows - 1 of `total`. A
// token that is not below `total` is an error.
typedef struct cuda_tokens {
    const int64_t *ids; // [count]
    int64_t count, first, rows, total;
    struct cuda_fault *fault;
} cuda_tokens;

// y [count, width] = rows of the table [rows, width]; 0 for tokens whose rows other ranks have.
typedef struct cuda_embedding {
    cuda_tokens tokens;
    int64_t width;
    tri_dtype type;
    const void *table;
    void *y;
} cuda_embedding;

// Sorts positions of tokens by the rows that the tokens read; positions of one row stay in order.
// If another rank has the row of a token, the row's number is taken to be `rows`. The sort is a
// radix sort: the key of a position is its row number, which has `digits` digits of CUDA_DIGIT_BITS
// bits. For each digit, the lowest first, keys and positions move, sorted by this digit, from one
// pair of arrays to the other: at first from keys[0] and positions[0] to keys[1] and positions[1].
typedef struct cuda_token_order {
    cuda_tokens tokens;
    int digits;
    int32_t *keys[2], *positions[2]; // the two pairs of arrays; each has tokens.count elements
} cuda_token_order;
enum { CUDA_DIGIT_BITS = 4 };

// starts[r] = how many of the sorted keys (row numbers) are below r, for r from 0 to `rows`. This
// is the index, among the sorted positions, of the first one that reads row r.
typedef struct cuda_row_starts {
    int64_t count, rows; // number of keys; number of rows of the table
    const int32_t *keys; // [count], sorted
    int32_t *starts;     // [rows + 1]
} cuda_row_starts;

// Row r of dtable [rows, width], the gradient of the table, = the sum of those rows of dy [tokens,
// width] whose numbers are positions[starts[r]] to positions[starts[r + 1] - 1]. The sorted
// positions are cut into chunks of CUDA_TOKEN_CHUNK. If more than CUDA_TOKEN_CHUNK positions read a
// row, the sum over each chunk is computed first, and then these sums are added in their order.
typedef struct cuda_embedding_grad {
    int64_t count, rows, width; // count: the number of tokens
    tri_dtype type;             // type of dy
    const void *dy;
    const int32_t *keys, *positions, *starts; // keys: the rows of the sorted positions
    float *chunk_sums; // [chunks, 2, width]: a chunk can have positions of two such rows
    float *dtable;
    bool adds; // the sums are added to dtable; false: they overwrite it
} cuda_embedding_grad;

enum { CUDA_TOKEN_CHUNK = 64 };
TRI_KERNEL_INLINE int64_t cuda_token_chunks(int64_t count) {
    return (count + CUDA_TOKEN_CHUNK - 1) / CUDA_TOKEN_CHUNK;
}

// labels [samples, length]: each token's successor, and `ignored` (TRI_IGNORED_LABEL) for the last
// token of a sample. The labels may be written over the tokens.
typedef struct cuda_next_token {
    int64_t samples, length, ignored;
    const int64_t *ids;
    int64_t *labels;
} cuda_next_token;

// x, y [samples, length, heads, 2 * half]: for token t of a sample, elements i and i + half are the
// coordinates of a point, which is rotated by the angle (first + t) * theta^(-i / half), or back
// with `inverse`. With spans [samples, 2], spans[n][0] is added to t. y may be the memory of x.
typedef struct cuda_rotary {
    int64_t samples, length, heads, half, first;
    double log_theta;           // logarithm of theta to the base 2
    tri_rotary_scaling scaling; // of the rates theta^(-i / half)
    bool inverse;
    tri_dtype type;
    const void *x;
    const int64_t *spans; // NULL: there are none
    void *y;
} cuda_rotary;

// y [rows, width] = x + bias [width]; y may be the memory of x.
typedef struct cuda_add_bias {
    int64_t rows, width;
    tri_dtype type;
    const void *x, *bias;
    void *y;
} cuda_add_bias;

#endif
