// Vectors of 16 floats: types, random numbers, transposition. For functions marked CPU_AVX512.
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
// mask and the scale: those from element `at` of x on, BF16 or F32.
void cpu_dropout_plain(const cpu_dropout *dropout, uint32_t sample, uint64_t first, int64_t count,
                       bool bf16, const void *x, void *y, int64_t at);

// 16 floats, or BF16 that become floats, from element `at` on; zero outside the mask, where nothing
// is read.
CPU_INLINE __m512 cpu_load(const void *from, bool bf16, int64_t at, __mmask16 inside) {
    if (!bf16) return _mm512_maskz_loadu_ps(inside, (const float *)from + at);
    __m256i bits = _mm256_maskz_loadu_epi16(inside, (const uint16_t *)from + at);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// 16 elements of a row and of the next one, `row` elements on, in pairs; the latter zeros unless
// `both`.
CPU_INLINE __m512i cpu_pairs_of_rows(const uint16_t *from, int64_t row, bool both,
                                     __mmask16 inside) {
    __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(inside, from));
    if (!both) return even;
    __m512i odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(inside, from + row));
    return _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
}

// To nearest BF16, ties to even; what is not a number stays so.
CPU_INLINE __m256i cpu_to_bf16(__m512 values) {
    __m512i bits = _mm512_castps_si512(values), high = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(_mm512_srli_epi32(up, 16), nan, quiet));
}

CPU_INLINE void cpu_store(void *to, bool bf16, int64_t at, __mmask16 inside, __m512 values) {
    if (!bf16)
        _mm512_mask_storeu_ps((float *)to + at, inside, values);
    else
        _mm256_mask_storeu_epi16((uint16_t *)to + at, inside, cpu_to_bf16(values));
}

// The first `left` of 16 lanes; all from 16 on.
CPU_INLINE __mmask16 cpu_first_lanes(int64_t left) {
    return left >= 16 ? 0xFFFF : (__mmask16)((1u << left) - 1);
}

// e^x to about 1 in the last place: 2^n · e^r with |r| <= ln 2 / 2. 0 below -104 and infinity above
// 88.8, as it is in F32; what is not a number stays so.
CPU_INLINE __m512 cpu_exp(__m512 x) {
    // Of far numbers and infinities r would be nonsense. The second operand is kept where it is
    // NaN.
    x = _mm512_min_ps(_mm512_set1_ps(90), _mm512_max_ps(_mm512_set1_ps(-105), x));
    const __m512 log2e = _mm512_set1_ps(1.44269504f);
    const __m512 high = _mm512_set1_ps(-0.693359375f), low = _mm512_set1_ps(2.12194440e-4f);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, log2e), _MM_FROUND_TO_NEAREST_INT);
    __m512 r = _mm512_fmadd_ps(n, low, _mm512_fmadd_ps(n, high, x));
    __m512 p = _mm512_set1_ps(1.9875691500e-4f); // Cephes, expf
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1)));
    return _mm512_scalef_ps(p, n);
}

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

// [places][16] of F32 to 16 rows of `places` from element `at` on, of BF16 or F32, and back.
void cpu_block_to_rows(bool bf16, const float *block, void *rows, int64_t at, int64_t pixels);
void cpu_rows_to_block(bool bf16, const void *rows, int64_t at, float *block, int64_t pixels);
// out[p] = the sum of the 16 values of place p of [places][16].
void cpu_sum_lanes(const float *block, float *out, int64_t pixels);

#endif
