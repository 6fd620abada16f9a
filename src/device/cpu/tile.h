// The innermost piece of matrix products, and how its operands are packed.
#ifndef TRIREME_DEVICE_CPU_TILE_H
#define TRIREME_DEVICE_CPU_TILE_H

#include "device/cpu/internal.h"

enum {
    CPU_TILE_ROWS = 6,
    CPU_TILE_COLUMNS = 64, // of a panel of b: four vectors
    CPU_TILE_GROUP = 16,   // rows of a packed together: a line of cache
};

// What becomes of a sum in the end.
typedef struct cpu_epilogue {
    const void *bias;          // [columns], added to each row, BF16 where a is; NULL: none
    tri_activation activation; // applied last
    float slope;
} cpu_epilogue;

// c [rows][columns] = the sum over `steps` p of a(i, p) · b[p][j]. With `pairs` a float of a or b
// is in truth two BF16, of steps 2p and 2p + 1; for devices with AVX512_BF16.
typedef struct cpu_tile {
    int64_t k;
    const float *a; // element (i, p) at i · a_row + p · a_step
    int64_t a_row, a_k;
    int64_t a_skip; // added to the place in a after every 64 steps
    const float *b; // [steps][64]
    float *c;
    int64_t c_row;
    cpu_epilogue epilogue;
    bool accumulate; // adds to c instead
    bool pairs;
    uint16_t *c_bf16; // where the sums go as BF16; c is then only what they are added to
    int64_t c_bf16_row;
} cpu_tile;

// At most 6 rows and 64 columns. Each element is one chain of sums, in order of p.
void cpu_tile_multiply(const cpu_tile *tile, int64_t rows, int64_t columns);
// Any number of rows. AVX-512 alone.
void cpu_tile_multiply_rows(const cpu_tile *tile, int64_t rows, int64_t columns);

// Panels [row][64], `panel` floats apart, from rows of floats, or of BF16, that are `stride`
// elements apart; the last one with zeros behind `columns`.
void cpu_pack_rows(const void *from, bool bf16, int64_t stride, int64_t rows, int64_t columns,
                   float *to, int64_t panel);
// One panel of the transposed matrix: to[p][j] is element p of row j < columns, else 0.
void cpu_pack_columns(const void *from, bool bf16, int64_t stride, int64_t k, int64_t columns,
                      float *to);
// Groups [row / 16][step][16] of a matrix whose rows lie side by side and whose steps are `stride`
// apart, zeros behind `rows`.
void cpu_pack_groups(const float *from, int64_t stride, int64_t k, int64_t rows, float *to);
// The transposed [rows][columns] of floats, its rows `stride` apart, to columns that are
// `to_stride` apart; `end` has a bias for each row.
void cpu_transpose(const float *from, int64_t stride, int64_t rows, int64_t columns,
                   const cpu_epilogue *epilogue, float *to, int64_t to_stride);

// The same for all instruction sets; those below AVX-512 know F32 alone.
typedef struct cpu_tile_code {
    void (*multiply)(const cpu_tile *tile, int64_t rows, int64_t columns);
    void (*pack_rows)(const void *from, bool bf16, int64_t stride, int64_t rows, int64_t columns,
                      float *to, int64_t panel);
    void (*pack_columns)(const void *from, bool bf16, int64_t stride, int64_t k, int64_t columns,
                         float *to);
    void (*pack_groups)(const float *from, int64_t stride, int64_t k, int64_t rows, float *to);
    void (*transpose)(const float *from, int64_t stride, int64_t rows, int64_t columns,
                      const cpu_epilogue *epilogue, float *to, int64_t to_stride);
} cpu_tile_code;

extern const cpu_tile_code cpu_tile_code_avx512, cpu_tile_code_avx2, cpu_tile_code_base;
const cpu_tile_code *cpu_tile_code_of(const cpu_device *device);

#endif
