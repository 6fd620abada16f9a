// Computes one tile of a matrix product c = a·b in registers, and packs the operands: copies them
// into the order in which a tile reads them. A tile is at most 6 × 64 sums, a panel is 64 columns
// of b, and k is the axis that is summed over.
#ifndef TRIREME_DEVICE_CPU_TILE_H
#define TRIREME_DEVICE_CPU_TILE_H

#include "device/cpu/epilogue.h"

enum {
    CPU_TILE_ROWS = 6,
    CPU_TILE_COLUMNS = 64, // columns of a panel of the right operand `b`: four vectors
    // Rows of the left operand `a` that are packed together: for one k they fill a cache line.
    CPU_TILE_GROUP = 16,
};

// A tile to compute: c[i][j] = the sum over p < k of a(i, p) · b[p][j]. With `pairs`, each 4-byte
// element of a and b holds two BF16 values, those of 2p and 2p + 1 along the product's k; only
// devices with AVX512_BF16 compute such tiles.
typedef struct cpu_tile {
    int64_t k;
    const float *a;     // element (i, p) lies at i · a_row + p · a_k
    int64_t a_row, a_k; // distances in elements: between rows, and between neighbouring k
    // How many more elements of `a` are skipped after every 64 of k, because a matrix in panels of
    // 64 columns does not continue there; 0: none are skipped.
    int64_t a_skip;
    const float *b; // [k][64]
    float *c;
    int64_t c_row;    // distance in elements between the rows of c
    const void *bias; // of the tile's columns: F32, or BF16 with `pairs`; NULL: there is none
    // False: overwrites c. True: adds the sums to what c holds; with `pairs` each sum begins with
    // what c holds, so that its bits do not depend on how k is divided into tiles.
    bool accumulate;
    bool pairs;
    // If not NULL, the result is stored here as BF16, with a distance of c_bf16_row elements
    // between rows; c is then only read, to accumulate.
    uint16_t *c_bf16;
    int64_t c_bf16_row;
    // Memory that later tiles need, to be prefetched; NULL: none. The first step of k prefetches
    // the cache line at `ahead`, and each further step the line ahead_step bytes behind the line
    // before. So the requests are spread over the time of the tile, and none waits for a free
    // line-fill buffer of the L1 cache. Only the tiles of AVX-512 prefetch.
    const char *ahead;
    int64_t ahead_step;
} cpu_tile;

// Computes a tile of at most 6 rows and 64 columns, whose sums stay in registers. Adds up each sum
// in the order of the axis k.
void cpu_tile_multiply(const cpu_tile *tile, int64_t rows, int64_t columns);
// As cpu_tile_multiply, for any number of rows. Needs AVX-512.
void cpu_tile_multiply_rows(const cpu_tile *tile, int64_t rows, int64_t columns);

// Packs rows of F32 or BF16, `stride` elements apart, into panels [row][64] of F32 that lie `panel`
// floats apart. Fills the last panel with zeros beyond `columns`.
void cpu_pack_rows(const void *from, bool bf16, int64_t stride, int64_t rows, int64_t columns,
                   float *to, int64_t panel);
// Packs one panel [k][64] of the transpose of a matrix [columns, k]: to[p][j] is element p of the
// matrix's row j, or 0 for j from `columns` on.
void cpu_pack_columns(const void *from, bool bf16, int64_t stride, int64_t k, int64_t columns,
                      float *to);
// Packs `rows` rows of an operand into groups [row / 16][k][16]. Element p of row i lies at
// from[p · stride + i]. Fills the last group with zeros behind the last row.
void cpu_pack_groups(const float *from, int64_t stride, int64_t k, int64_t rows, float *to);
// Transposes a matrix [rows][columns]: element (i, j) goes from from[i · stride + j] to
// to[j · to_stride + i]. Adds a bias, if it is not NULL, of which row i has an element.
void cpu_transpose(const float *from, int64_t stride, int64_t rows, int64_t columns,
                   const float *bias, float *to, int64_t to_stride);

// The functions above for one instruction set; a device uses the best set that it has. Only the
// functions for AVX-512 take BF16.
typedef struct cpu_tile_code {
    void (*multiply)(const cpu_tile *tile, int64_t rows, int64_t columns);
    void (*pack_rows)(const void *from, bool bf16, int64_t stride, int64_t rows, int64_t columns,
                      float *to, int64_t panel);
    void (*pack_columns)(const void *from, bool bf16, int64_t stride, int64_t k, int64_t columns,
                         float *to);
    void (*pack_groups)(const float *from, int64_t stride, int64_t k, int64_t rows, float *to);
    void (*transpose)(const float *from, int64_t stride, int64_t rows, int64_t columns,
                      const float *bias, float *to, int64_t to_stride);
} cpu_tile_code;

extern const cpu_tile_code cpu_tile_code_avx512, cpu_tile_code_avx2, cpu_tile_code_base;
const cpu_tile_code *cpu_tile_code_of(const cpu_device *device);

#endif
