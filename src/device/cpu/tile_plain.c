// Tiles of F32 matrix products c = a·b and packing of their operands in plain C, compiled once for
// AVX2 and once for any CPU. A tile is at most 6 × 64 sums; 16 of its columns are computed at a
// time, in vectors of eight floats. tile.h describes the functions.
#include "device/cpu/tile.h"

#include <string.h>

#define PLAIN static inline __attribute__((always_inline))

enum { PLAIN_COLUMNS = 16, PLAIN_K_RUN = 64 };

typedef float lanes __attribute__((vector_size(32), aligned(4)));

// Computes columns [first, first + columns), at most 16, of `rows` rows.
PLAIN void tile(const cpu_tile *job, int rows, int64_t first, int64_t columns) {
    lanes low[CPU_TILE_ROWS], high[CPU_TILE_ROWS];
    const float *a = job->a, *b = job->b + first;
    const float *bias = job->bias;
    const int64_t a_row = job->a_row, a_k = job->a_k;
    const int64_t run = job->a_skip ? PLAIN_K_RUN : job->k;
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) low[i] = high[i] = (lanes){0};
    for (int64_t left = job->k; left > 0; left -= run, a += job->a_skip)
        for (int64_t p = left < run ? left : run; p > 0; p--) {
            const lanes x = *(const lanes *)b, y = *(const lanes *)(b + 8);
#pragma GCC unroll 6
            for (int i = 0; i < rows; i++) {
                low[i] += a[i * a_row] * x;
                high[i] += a[i * a_row] * y;
            }
            a += a_k;
            b += CPU_TILE_COLUMNS;
        }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        float sums[PLAIN_COLUMNS], *c = job->c + i * job->c_row + first;
        *(lanes *)sums = low[i];
        *(lanes *)(sums + 8) = high[i];
        for (int64_t k = 0; k < columns; k++) {
            float sum = job->accumulate ? sums[k] + c[k] : sums[k];
            c[k] = bias ? sum + bias[first + k] : sum;
        }
    }
}

PLAIN void tile_of_rows(const cpu_tile *job, int64_t rows, int64_t first, int64_t columns) {
    if (rows == 6) tile(job, 6, first, columns);
    if (rows == 5) tile(job, 5, first, columns);
    if (rows == 4) tile(job, 4, first, columns);
    if (rows == 3) tile(job, 3, first, columns);
    if (rows == 2) tile(job, 2, first, columns);
    if (rows == 1) tile(job, 1, first, columns);
}

// Computes a tile, at most `most` rows at a time: six in the code for AVX2 and two in the code for
// any CPU, because the registers hold the sums of no more rows.
PLAIN void multiply(const cpu_tile *job, int64_t rows, int64_t columns, int64_t most) {
    TRI_ASSERT(!job->pairs && !job->c_bf16);
    for (int64_t i = 0; i < rows; i += most) {
        cpu_tile part = *job;
        part.a += i * job->a_row;
        part.c += i * job->c_row;
        for (int64_t k = 0; k < columns; k += PLAIN_COLUMNS)
            tile_of_rows(&part, rows - i < most ? rows - i : most, k,
                         columns - k < PLAIN_COLUMNS ? columns - k : PLAIN_COLUMNS);
    }
}

PLAIN void pack_rows(const void *numbers, bool bf16, int64_t stride, int64_t rows, int64_t columns,
                     float *to, int64_t panel) {
    TRI_ASSERT(!bf16);
    const float *from = numbers;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < columns; j += CPU_TILE_COLUMNS) {
            float *out = to + j / CPU_TILE_COLUMNS * panel + r * CPU_TILE_COLUMNS;
            int64_t left = columns - j < CPU_TILE_COLUMNS ? columns - j : CPU_TILE_COLUMNS;
            for (int64_t k = 0; k < left; k++) out[k] = from[r * stride + j + k];
            for (int64_t k = left; k < CPU_TILE_COLUMNS; k++) out[k] = 0;
        }
}

PLAIN void pack_columns(const void *numbers, bool bf16, int64_t stride, int64_t k, int64_t columns,
                        float *to) {
    TRI_ASSERT(!bf16);
    const float *from = numbers;
    for (int64_t p = 0; p < k; p += 16) { // reads one cache line of each row at a time
        int64_t count = k - p < 16 ? k - p : 16;
        for (int64_t j = 0; j < CPU_TILE_COLUMNS; j++)
            for (int64_t i = 0; i < count; i++)
                to[(p + i) * CPU_TILE_COLUMNS + j] = j < columns ? from[j * stride + p + i] : 0;
    }
}

PLAIN void pack_groups(const float *from, int64_t stride, int64_t k, int64_t rows, float *to) {
    for (int64_t p = 0; p < k; p++)
        for (int64_t row = 0; row < rows; row += CPU_TILE_GROUP) {
            float *out = to + row * k + p * CPU_TILE_GROUP;
            int64_t left = rows - row < CPU_TILE_GROUP ? rows - row : CPU_TILE_GROUP;
            for (int64_t i = 0; i < left; i++) out[i] = from[p * stride + row + i];
            for (int64_t i = left; i < CPU_TILE_GROUP; i++) out[i] = 0;
        }
}

PLAIN void transpose(const float *from, int64_t stride, int64_t rows, int64_t columns,
                     const float *bias, float *to, int64_t to_stride) {
    for (int64_t row = 0; row < rows; row += 16)
        for (int64_t c = 0; c < columns; c++)
            for (int64_t i = row; i < row + 16 && i < rows; i++)
                to[c * to_stride + i] =
                    bias ? from[i * stride + c] + bias[i] : from[i * stride + c];
}

// clang-format off
#define PLAIN_CODE(isa, target, most)                                                              \
    target static void multiply_##isa(const cpu_tile *tile, int64_t rows, int64_t columns) {       \
        multiply(tile, rows, columns, most);                                                       \
    }                                                                                              \
    target static void pack_rows_##isa(const void *from, bool bf16, int64_t stride, int64_t rows,  \
                                       int64_t columns, float *to, int64_t panel) {                \
        pack_rows(from, bf16, stride, rows, columns, to, panel);                                   \
    }                                                                                              \
    target static void pack_columns_##isa(const void *from, bool bf16, int64_t stride,             \
                                          int64_t k, int64_t columns, float *to) {                 \
        pack_columns(from, bf16, stride, k, columns, to);                                          \
    }                                                                                              \
    target static void pack_groups_##isa(const float *from, int64_t stride, int64_t k,             \
                                         int64_t rows, float *to) {                                \
        pack_groups(from, stride, k, rows, to);                                                    \
    }                                                                                              \
    target static void transpose_##isa(const float *from, int64_t stride, int64_t rows,            \
                                       int64_t columns, const float *bias, float *to,             \
                                       int64_t to_stride) {                                        \
        transpose(from, stride, rows, columns, bias, to, to_stride);                               \
    }                                                                                              \
    const cpu_tile_code cpu_tile_code_##isa = {.multiply = multiply_##isa,                         \
                                               .pack_rows = pack_rows_##isa,                       \
                                               .pack_columns = pack_columns_##isa,                 \
                                               .pack_groups = pack_groups_##isa,                   \
                                               .transpose = transpose_##isa};
PLAIN_CODE(avx2, __attribute__((target("avx2,fma"))), CPU_TILE_ROWS)
PLAIN_CODE(base, , 2)
// clang-format on
