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

// r[i][k] = r[k][i].
CPU_INLINE void cpu_transpose16(__m512 r[16]) {
    __m512 t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xEE);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    // r[4q + k] holds column 4j + k of rows 4q to 4q + 3 in its 128-bit lane j.
    for (int k = 0; k < 4; k++) {
        t[k] = _mm512_shuffle_f32x4(r[k], r[4 + k], 0x88);
        t[4 + k] = _mm512_shuffle_f32x4(r[8 + k], r[12 + k], 0x88);
        t[8 + k] = _mm512_shuffle_f32x4(r[k], r[4 + k], 0xDD);
        t[12 + k] = _mm512_shuffle_f32x4(r[8 + k], r[12 + k], 0xDD);
    }
    for (int k = 0; k < 4; k++) {
        r[k] = _mm512_shuffle_f32x4(t[k], t[4 + k], 0x88);
        r[8 + k] = _mm512_shuffle_f32x4(t[k], t[4 + k], 0xDD);
        r[4 + k] = _mm512_shuffle_f32x4(t[8 + k], t[12 + k], 0x88);
        r[12 + k] = _mm512_shuffle_f32x4(t[8 + k], t[12 + k], 0xDD);
    }
}

// [places][16] to 16 rows of `places` that are `stride` apart, and back.
void cpu_block_to_rows(const float *block, float *rows, int64_t places, int64_t stride);
void cpu_rows_to_block(const float *rows, float *block, int64_t places, int64_t stride);
// out[p] = the sum of the 16 values of place p of [places][16].
void cpu_sum_lanes(const float *block, float *out, int64_t places);

#endif
