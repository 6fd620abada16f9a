// Matrix products of F32, c = a·b, of any sizes and on any instruction set.
#ifndef TRIREME_DEVICE_CPU_GEMM_H
#define TRIREME_DEVICE_CPU_GEMM_H

#include "device/cpu/tile.h"

// A matrix in memory, by its strides. Element (r, c) lies at data[r / 64 · row_block + r % 64 · row
// + c / 64 · column_block + c % 64 · column]. So one product reads plain matrices, matrices in
// panels of 64 columns, and both of them transposed.
typedef struct cpu_matrix {
    float *data;
    int64_t row, row_block, column, column_block;
} cpu_matrix;

cpu_matrix cpu_matrix_plain(const float *data, int64_t row_stride);
cpu_matrix cpu_matrix_transposed(cpu_matrix matrix);

typedef struct cpu_gemm {
    int64_t m, n, k;    // a [m, k], b [k, n], c [m, n]; at least 1 each
    cpu_matrix a, b, c; // c.column is 1; so is `row` or `column` of a, and of b
    cpu_epilogue epilogue;
} cpu_gemm;

// How c is split among the threads: each computes one rectangle, and packs the operands that it
// needs itself, so that threads never wait for each other.
typedef struct cpu_gemm_split {
    int64_t unit;           // rows that are never split
    int64_t groups, panels; // of c: groups of `unit` rows, panels of 64 columns
    int rows, columns;      // rectangles below each other, and beside each other
} cpu_gemm_split;

cpu_gemm_split cpu_gemm_split_of(const tri_device_description *device, int64_t m, int64_t unit,
                                 int64_t n);

// Bytes of workspace that cpu_gemm_run needs. Only reads sizes and strides, not data.
size_t cpu_gemm_workspace(const tri_device_description *device, const cpu_gemm *gemm);
// Computes the product. Adds up every element in the same order of k, whatever the number of
// threads, so that its bits do not depend on them.
void cpu_gemm_run(const cpu_device *device, const cpu_gemm *gemm, void *workspace);

#endif
