// Rows that are added one after the other to the rows of a table that their indices name. A table
// row takes F32 sums of at most CPU_SUM_TERMS rows; these are added in F64, in memory that only
// rows with more terms take.
#ifndef TRIREME_DEVICE_CPU_ROW_SUMS_H
#define TRIREME_DEVICE_CPU_ROW_SUMS_H

#include "device/cpu/scalar.h"

#include <stdatomic.h>

// What a table row has so far: the terms of its F32 sum, and where its F64 sum is; 0: it has none.
typedef struct cpu_row_state {
    int32_t terms, slot;
} cpu_row_state;

typedef struct cpu_row_sums {
    float *table;
    int64_t width;
    cpu_row_state *rows; // NULL: too few rows are added for any F64 sum
    double *totals;      // [slot - 1][width]
    _Atomic int32_t slots;
} cpu_row_sums;

// The bytes that cpu_row_sums_open needs to add `added` rows to a table of `rows` rows.
size_t cpu_row_sums_bytes(int64_t rows, int64_t added, int64_t width);
void cpu_row_sums_open(cpu_row_sums *sums, float *table, int64_t rows, int64_t added, int64_t width,
                       void *workspace);
// A thread calls cpu_row_sums_begin, adds to rows [begin, end) alone, calling cpu_row_sums_added
// after each term, and calls cpu_row_sums_end.
void cpu_row_sums_begin(cpu_row_sums *sums, int64_t begin, int64_t end);
void cpu_row_sums_spill(cpu_row_sums *sums, int64_t row);
void cpu_row_sums_end(cpu_row_sums *sums, int64_t begin, int64_t end);

CPU_SCALAR void cpu_row_sums_added(cpu_row_sums *sums, int64_t row) {
    if (sums->rows && ++sums->rows[row].terms == CPU_SUM_TERMS) cpu_row_sums_spill(sums, row);
}

#endif
