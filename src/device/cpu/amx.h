// The tiles of AMX: whether this process may use them, and their shape.
#ifndef TRIREME_DEVICE_CPU_AMX_H
#define TRIREME_DEVICE_CPU_AMX_H

#include "device/cpu/simd.h"

// Functions with this run only on a device with amx set, between cpu_amx_begin and cpu_amx_end.
#define CPU_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl")))

// Whether the CPU has tiles for BF16 and the kernel lets this process use them, for which it is
// asked once.
bool cpu_amx_is_allowed(void);

// Operands lie in chunks of 32 × 32 numbers, zeros beyond the edges: a in rows of 32 steps, b in
// two halves of 16 columns, each in 16 pairs of steps.
enum { CPU_AMX_SIDE = 32, CPU_AMX_CHUNK = CPU_AMX_SIDE * CPU_AMX_SIDE };

// [columns / 32][steps / 32][chunk] of b [steps, columns], which lies as [columns, steps] with
// rows `stride` apart, or plain; [rows / 32][steps / 32][chunk] of a [rows, steps], which lies
// plain or as [steps, rows].
void cpu_amx_pack_b_rows(const uint16_t *b, int64_t stride, int64_t k, int64_t columns,
                         uint16_t *to);
void cpu_amx_pack_b_plain(const uint16_t *b, int64_t stride, int64_t k, int64_t columns,
                          uint16_t *to);
void cpu_amx_pack_a_rows(const uint16_t *a, int64_t stride, int64_t rows, int64_t k, uint16_t *to);
void cpu_amx_pack_a_columns(const uint16_t *a, int64_t stride, int64_t rows, int64_t k,
                            uint16_t *to);

// 32 rows of a, packed or not: how far apart they and their chunks lie, in bytes.
typedef struct cpu_amx_rows {
    const uint16_t *data;
    int64_t row, chunk;
} cpu_amx_rows;
static inline cpu_amx_rows cpu_amx_packed(const uint16_t *chunks) {
    return (cpu_amx_rows){chunks, CPU_AMX_SIDE * sizeof(uint16_t),
                          CPU_AMX_CHUNK * sizeof(uint16_t)};
}

// sums [32][32], or with `more` what they hold, plus the products of the chunks. Of a height or
// width up to 16 the other half is left out.
void cpu_amx_block(const cpu_amx_rows *a, const uint16_t *b, int64_t chunks, float *sums,
                   bool accumulate, int64_t height, int64_t width);

// To BF16, which every CPU with AMX has an instruction for, and back; as assembly, because the
// intrinsic would ask for functions of its own.
CPU_INLINE __m256i cpu_amx_narrow(__m512 values) {
    __m256i narrow;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(narrow) : "v"(values));
    return narrow;
}
CPU_INLINE __m512i cpu_amx_narrow_both(__m512 low, __m512 high) {
    __m512i narrow;
    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(narrow) : "v"(low), "v"(high));
    return narrow;
}
CPU_INLINE __m512 cpu_amx_widen(__m256i narrow) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
}

// All eight tiles of the calling thread with 16 rows of 64 bytes, and none.
void cpu_amx_begin(void);
void cpu_amx_end(void);

#endif
