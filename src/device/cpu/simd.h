// Vectors of 16 floats: random numbers and transposition. For functions marked CPU_AVX512.
#ifndef TRIREME_DEVICE_CPU_SIMD_H
#define TRIREME_DEVICE_CPU_SIMD_H

#include "device/cpu/internal.h"

#include <immintrin.h>

#define CPU_INLINE static inline CPU_AVX512 __attribute__((always_inline))

// Where a draw of dropout stands: tri_philox_at's arguments that do not vary by element.
typedef struct cpu_dropout {
    uint64_t key, step;
    uint32_t threshold; // keep when word ≥ threshold
    float scale;        // of what is kept: 1 / (1 − p); p = 1 keeps nothing
    bool keep_none;
} cpu_dropout;

cpu_dropout cpu_dropout_of(double p, uint64_t key);

// Masks of what is kept of 16 channels × `count` places of a sample, whose elements are
// channel · `count` + place from `first` on: keep[place] has one bit for each channel.
void cpu_dropout_block_masks(const cpu_dropout *dropout, uint32_t sample, uint64_t first,
                             int64_t count, uint16_t *keep);
// Multiplies `count` elements of a sample in plain order, from `first` (a multiple of 64), by the
// mask and the scale.
void cpu_dropout_plain(const cpu_dropout *dropout, uint32_t sample, uint64_t first, int64_t count,
                       const float *x, float *y);

// [places][16] to 16 rows of `places` that are `stride` apart, and back.
void cpu_block_to_rows(const float *block, float *rows, int64_t places, int64_t stride);
void cpu_rows_to_block(const float *rows, float *block, int64_t places, int64_t stride);
// out[p] = the sum of the 16 values of place p of [places][16].
void cpu_sum_lanes(const float *block, float *out, int64_t places);

#endif
