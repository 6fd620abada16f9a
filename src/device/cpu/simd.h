// Vectors of 16 floats (AVX-512): loads and stores of F32 and BF16, exp, dropout's random numbers,
// and transposition. For functions marked CPU_AVX512. A plane [pixels][16] is 16 channels of one
// sample, with the channels of a pixel side by side.
#ifndef TRIREME_DEVICE_CPU_SIMD_H
#define TRIREME_DEVICE_CPU_SIMD_H

#include "device/cpu/internal.h"

#include <immintrin.h>

#define CPU_INLINE static inline CPU_AVX512 __attribute__((always_inline))

// What is the same for all elements of one dropout layer in one step. key and step are arguments of
// tri_philox_at, which draws the elements' random words.
typedef struct cpu_dropout {
    uint64_t key, step;
    uint32_t threshold; // an element is kept if its random 32-bit word is at least this
    float scale;        // factor of elements that are kept: 1 / (1 − p)
    bool drops_all;     // the probability p of dropping is 1
} cpu_dropout;

cpu_dropout cpu_dropout_of(double p, uint64_t key);

// Draws the masks of 16 channels × `count` pixels of a sample: sets bit c of keep[pixel] if channel
// c of the pixel is kept. `first` is the number in the sample of channel 0 at pixel 0; channel c at
// a pixel is element number first + c · count + pixel.
void cpu_dropout_block_masks(const cpu_dropout *dropout, uint32_t sample, uint64_t first,
                             int64_t count, uint16_t *keep);
// Applies dropout to `count` elements of a plain tensor, F32 or BF16: reads them from element `at`
// of x on, writes them from element `at` of y on. `first`, a multiple of 64, is the number of the
// first of these elements in its sample.
void cpu_dropout_plain(const cpu_dropout *dropout, uint32_t sample, uint64_t first, int64_t count,
                       bool bf16, const void *x, void *y, int64_t at);

// Loads 16 elements, F32 or BF16, from element `at` on, as F32. Vector lanes that `inside` does not
// select read no memory and become 0.
CPU_INLINE __m512 cpu_load(const void *from, bool bf16, int64_t at, __mmask16 inside) {
    if (!bf16) return _mm512_maskz_loadu_ps(inside, (const float *)from + at);
    __m256i bits = _mm256_maskz_loadu_epi16(inside, (const uint16_t *)from + at);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// Interleaves 16 BF16 elements of a row with those of the next row, which lies `row` elements
// further, into 16 pairs, because instructions for BF16 multiply pairs. If `both` is false, there
// is no next row, and the second element of each pair is 0.
CPU_INLINE __m512i cpu_pairs_of_rows(const uint16_t *from, int64_t row, bool both,
                                     __mmask16 inside) {
    __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(inside, from));
    if (!both) return even;
    __m512i odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(inside, from + row));
    return _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
}

// Makes 16 pairs of BF16 values: the first of each from `even`, the second from `odd`.
CPU_INLINE __m512i cpu_pairs(__m256i even, __m256i odd) {
    return _mm512_or_si512(_mm512_cvtepu16_epi32(even),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
}

// Conversions between F32 and BF16 by instructions of AVX512_BF16; cpu_narrow_both puts `low`
// before `high`. They are written as assembly, because the compiler's intrinsics are only allowed
// in functions with another target attribute.
CPU_INLINE __m256i cpu_narrow(__m512 values) {
    __m256i narrow;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(narrow) : "v"(values));
    return narrow;
}
CPU_INLINE __m512i cpu_narrow_both(__m512 low, __m512 high) {
    __m512i narrow;
    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(narrow) : "v"(low), "v"(high));
    return narrow;
}
CPU_INLINE __m512 cpu_widen(__m256i narrow) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
}

// Rounds to the nearest BF16, ties to even. NaN stays NaN.
CPU_INLINE __m256i cpu_to_bf16(__m512 values) {
    __m512i bits = _mm512_castps_si512(values);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    up = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000)); // a quiet NaN
    const __m512i upper_halves =
        _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 31, 29, 27, 25, 23, 21, 19,
                         17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi16(upper_halves, up));
}

// Rounds as cpu_to_bf16 does, and gives the results as F32.
CPU_INLINE __m512 cpu_round_bf16(__m512 values) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(cpu_to_bf16(values)), 16));
}

CPU_INLINE void cpu_store(void *to, bool bf16, int64_t at, __mmask16 inside, __m512 values) {
    if (!bf16)
        _mm512_mask_storeu_ps((float *)to + at, inside, values);
    else
        _mm256_mask_storeu_epi16((uint16_t *)to + at, inside, cpu_to_bf16(values));
}

// Makes a mask of the first `left` of 16 vector lanes, or of all if `left` is larger.
CPU_INLINE __mmask16 cpu_first_lanes(int64_t left) {
    return left >= 16 ? 0xFFFF : (__mmask16)((1u << left) - 1);
}

// e^x with an error of about one unit in the last place, as 2^n · e^r with |r| <= ln 2 / 2. Returns
// 0 below -104, infinity above 88.8, where F32 overflows, and NaN for NaN.
CPU_INLINE __m512 cpu_exp(__m512 x) {
    // Clamps x first, because r would be meaningless for huge or infinite x. NaN stays: min and max
    // return their second operand if one is NaN.
    x = _mm512_min_ps(_mm512_set1_ps(90), _mm512_max_ps(_mm512_set1_ps(-105), x));
    const __m512 log2e = _mm512_set1_ps(1.44269504f);
    const __m512 high = _mm512_set1_ps(-0.693359375f), low = _mm512_set1_ps(2.12194440e-4f);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, log2e), _MM_FROUND_TO_NEAREST_INT);
    __m512 r = _mm512_fmadd_ps(n, low, _mm512_fmadd_ps(n, high, x));
    __m512 p = _mm512_set1_ps(1.9875691500e-4f); // the polynomial of expf in the Cephes library
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1)));
    return _mm512_scalef_ps(p, n);
}

// Transposes 16 vectors as a 16 × 16 matrix.
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

// Converts a plane [pixels][16] of F32 to 16 plain rows [16][pixels] of F32 or BF16, which begin at
// element `at` of `rows`. cpu_rows_to_block does the reverse.
void cpu_block_to_rows(bool bf16, const float *block, void *rows, int64_t at, int64_t pixels);
void cpu_rows_to_block(bool bf16, const void *rows, int64_t at, float *block, int64_t pixels);
// out[p] = the sum of the 16 values of pixel p of a plane [pixels][16].
void cpu_sum_lanes(const float *block, float *out, int64_t pixels);

#endif
