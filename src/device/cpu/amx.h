// Matrix products by AMX, the instructions of Intel's CPUs that multiply 16 × 32 by 32 × 16 BF16
// values at once: whether this process may use them, how operands are packed (copied into the order
// in which the instructions read them), and products of blocks of 32 × 32 results. A tile is a
// register of AMX: 16 rows of 64 bytes. k is the axis of a product that is summed over.
#ifndef TRIREME_DEVICE_CPU_AMX_H
#define TRIREME_DEVICE_CPU_AMX_H

#include "device/cpu/simd.h"

// Marks functions that use AMX. They may run only on a device with CPU_HAS_AMX, between
// cpu_amx_begin, which sets up the tiles, and cpu_amx_end. The list of targets contains all
// instruction sets of CPU_AVX512, so that functions marked CPU_INLINE can be inlined.
#ifdef __clang__
#define CPU_AMX                                                                                    \
    __attribute__((                                                                                \
        target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2")))
#else
#define CPU_AMX                                                                                    \
    __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,"     \
                          "bmi2,prefer-vector-width=512")))
#endif

// Asks Linux for permission to use the tiles; without it their instructions fault. Returns whether
// the CPU has tiles for BF16 and Linux has granted the request.
bool cpu_amx_is_allowed(void);

// Packed operands consist of chunks of 32 × 32 BF16 values, in the order in which tiles read them;
// where a chunk reaches beyond the matrix, it has zeros. A chunk of the left operand `a` has
// 32 rows of 32 values of k. A chunk of the right operand `b` consists of two halves with 16 of the
// 32 columns each. A half is [16 pairs][16 columns][2]: a pair has a column's values for two
// neighbouring k, because an instruction of AMX multiplies pairs.
// CPU_AMX_SIDE is a chunk's side, in rows, columns or k; CPU_AMX_CHUNK its size, in elements.
enum { CPU_AMX_SIDE = 32, CPU_AMX_CHUNK = CPU_AMX_SIDE * CPU_AMX_SIDE };

// How many blocks of 32 cover `count` rows, columns or k.
static inline int64_t cpu_amx_blocks(int64_t count) {
    return (count + CPU_AMX_SIDE - 1) / CPU_AMX_SIDE;
}

// Packs the right operand `b`, [k, columns], into [columns / 32][k / 32] chunks. pack_b_rows reads
// it transposed, stored as [columns, k]; pack_b_plain reads it stored as [k, columns]. `stride` is
// the distance in elements between the rows as they are stored.
void cpu_amx_pack_b_rows(const uint16_t *b, int64_t stride, int64_t k, int64_t columns,
                         uint16_t *to);
void cpu_amx_pack_b_plain(const uint16_t *b, int64_t stride, int64_t k, int64_t columns,
                          uint16_t *to);
// Packs the left operand `a`, [rows, k], into [rows / 32][k / 32] chunks. pack_a_rows reads it
// stored as [rows, k]; pack_a_columns reads it transposed, stored as [k, rows].
void cpu_amx_pack_a_rows(const uint16_t *a, int64_t stride, int64_t rows, int64_t k, uint16_t *to);
void cpu_amx_pack_a_columns(const uint16_t *a, int64_t stride, int64_t rows, int64_t k,
                            uint16_t *to);

// 32 rows of the left operand `a`. They are packed in chunks, or are read in place from the tensor.
typedef struct cpu_amx_rows {
    const uint16_t *data;
    // Distances in bytes: `row` from one row to the next, `chunk` from 32 values of k in a row to
    // the row's next 32.
    int64_t row, chunk;
} cpu_amx_rows;
static inline cpu_amx_rows cpu_amx_packed(const uint16_t *chunks) {
    return (cpu_amx_rows){chunks, CPU_AMX_SIDE * sizeof(uint16_t),
                          CPU_AMX_CHUNK * sizeof(uint16_t)};
}

typedef enum cpu_amx_sums { CPU_AMX_OVERWRITE, CPU_AMX_ACCUMULATE } cpu_amx_sums;

// Multiplies 32 rows of `a` by 32 packed columns of `b` over `chunks` chunks of k and stores the
// results in `sums` [32][32], or adds them to what `sums` holds. Computes only the first 16 rows if
// `height` is at most 16, and only the first 16 columns if `width` is at most 16.
void cpu_amx_block(const cpu_amx_rows *a, const uint16_t *b, int64_t chunks, float *sums,
                   cpu_amx_sums mode, int64_t height, int64_t width);

// Work that cpu_amx_block_beside does for other blocks while the tiles multiply for its own block,
// so that this work costs little time: it stores an earlier block's finished sums as BF16, and
// prefetches `lines` cache lines for each chunk of k.
typedef struct cpu_amx_beside {
    const float *sums; // [32][32] sums to store; NULL: nothing is stored
    uint16_t *c;       // where the first of these sums is stored
    int64_t c_row;     // distance in elements between the rows of c
    const char *ahead; // the cache line to prefetch first
    // For each chunk of k, `lines` cache lines are prefetched, `line` bytes apart. The first line
    // of the next chunk lies `chunk` bytes behind the first line of this one.
    int64_t line, chunk, lines;
} cpu_amx_beside;

// As cpu_amx_block, but always computes all 32 × 32 sums, whose rows lie `stride` floats apart.
// Meanwhile does the work `beside`.
void cpu_amx_block_beside(const cpu_amx_rows *a, const uint16_t *b, int64_t chunks, float *sums,
                          int64_t stride, cpu_amx_sums mode, const cpu_amx_beside *beside);
// Stores the sums of `beside` that no call of cpu_amx_block_beside has stored yet.
void cpu_amx_store_beside(cpu_amx_beside *beside);

// cpu_amx_begin configures all eight tiles of the calling thread as 16 rows of 64 bytes.
// cpu_amx_end releases them, because Linux saves more state for a thread while its tiles are in
// use.
void cpu_amx_begin(void);
void cpu_amx_end(void);

#endif
