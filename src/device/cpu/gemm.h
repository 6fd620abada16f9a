// Matrix products of F32, on any number of rows: c = a·b.
#ifndef TRIREME_DEVICE_CPU_GEMM_H
#define TRIREME_DEVICE_CPU_GEMM_H

#include "device/cpu/tile.h"

// Element (r, c) lies at data[r / 64 · row_block + r % 64 · row + c / 64 · column_block +
// c % 64 · column], so that plain matrices, those in panels and their transposed ones are one
// thing.
typedef struct cpu_matrix {
    float *data;
    int64_t row, row_block, column, column_block;
} cpu_matrix;

cpu_matrix cpu_matrix_plain(const float *data, int64_t row_stride);
cpu_matrix cpu_matrix_transposed(cpu_matrix matrix);

typedef struct cpu_gemm {
    int64_t m, n, k;    // a [m, k], b [k, n], c [m, n]; at least 1 each
    cpu_matrix a, b, c; // c.column and one stride of each of the others are 1
    cpu_epilogue epilogue;
} cpu_gemm;

// A rectangle of c for each thread; each packs what it needs for itself.
typedef struct cpu_gemm_split {
    int64_t unit;           // rows that stay together
    int64_t groups, panels; // of so many rows, of 64 columns
    int rows, columns;      // threads along each
} cpu_gemm_split;

cpu_gemm_split cpu_gemm_split_of(const cpu_device *device, int64_t m, int64_t unit, int64_t n);

// Bytes that cpu_gemm_run needs; depends on sizes, strides and the device alone, not on data.
size_t cpu_gemm_workspace(const cpu_device *device, const cpu_gemm *gemm);
// Every element is summed in one order of k, whatever the number of threads.
void cpu_gemm_run(const cpu_device *device, const cpu_gemm *gemm, void *workspace);

#endif
