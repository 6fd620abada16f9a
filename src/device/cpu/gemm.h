// Matrix products of F32, c = a·b, of any sizes and on any instruction set. k is the axis that is
// summed over. A panel is 64 columns of b or c. To pack an operand is to copy it into the order in
// which the tiles of the product (tile.h) read it.
#ifndef TRIREME_DEVICE_CPU_GEMM_H
#define TRIREME_DEVICE_CPU_GEMM_H

#include "device/cpu/tile.h"

// A matrix in memory, described by strides. Element (r, c) lies at
//
//   data[r / 64 · row_block + r % 64 · row + c / 64 · column_block + c % 64 · column].
//
// These strides can describe plain matrices and matrices in panels of 64 columns, and the transpose
// of both, so one function computes products of all of them.
typedef struct cpu_matrix {
    float *data;
    int64_t row, row_block, column, column_block;
} cpu_matrix;

cpu_matrix cpu_matrix_plain(const float *data, int64_t row_stride);
cpu_matrix cpu_matrix_transposed(cpu_matrix matrix);

typedef struct cpu_gemm {
    int64_t m, n, k; // sizes: a [m, k], b [k, n], c [m, n]; each is at least 1
    // `a` and `b` have contiguous rows (column = 1) or contiguous columns (row = 1); c has
    // contiguous rows.
    cpu_matrix a, b, c;
    const float *bias;        // [n], added to each row; NULL: there is none
    bool accumulate;          // true: adds the product to what c holds; false: overwrites c
    const cpu_finish *finish; // only if c is plain; NULL: the sums are what is wanted
} cpu_gemm;

// How c is divided among the threads. Each thread computes one rectangle and itself packs the
// operands that it needs, so that threads never wait for each other.
typedef struct cpu_gemm_split {
    int64_t unit; // a rectangle's rows are a multiple of this number, except at the end of c
    // c consists of `groups` groups of `unit` rows, and of `panels` panels of 64 columns.
    int64_t groups, panels;
    // How many rectangles c is cut into: `rows` from top to bottom, `columns` from left to right.
    int rows, columns;
} cpu_gemm_split;

// Divides c [m, n] into at most one rectangle for each thread, so that the largest is as small as
// possible.
cpu_gemm_split cpu_gemm_split_of(const tri_device_description *device, int64_t m, int64_t unit,
                                 int64_t n);

// How many bytes of workspace cpu_gemm_run needs. Reads only sizes and strides of `gemm`, not data.
size_t cpu_gemm_workspace(const tri_device_description *device, const cpu_gemm *gemm);
// Computes the product. The terms of every element are added in the order of k, so that the result
// has the same bits with any number of threads.
void cpu_gemm_run(const cpu_device *device, const cpu_gemm *gemm, void *workspace);

// Packs b for products that all read the same one: into panels of 64 columns, in `to`, which has k
// · n floats with n rounded up to a multiple of 64; further columns are 0. Returns what such a
// product takes as b, with the n that was rounded up. It then needs no workspace, if rows of `a`
// are contiguous. A b that lies in such panels already is not packed.
cpu_matrix cpu_gemm_pack(const cpu_device *device, const cpu_gemm *gemm, float *to);
// Whether cpu_gemm_pack has to pack b.
bool cpu_gemm_packs(const cpu_gemm *gemm);

#endif
