// Scales with the instructions of AVX2 that multiply and add pairs: see scale.h.
#include "data/transform/scale.h"

#include <string.h>

enum { LOWER_BITS = 11, LOWER_MASK = (1 << LOWER_BITS) - 1, HALVES = 4 };

size_t scale_pairs_bytes(int64_t outputs, int64_t taps) {
    int64_t pairs = (taps + 1) / 2;
    return (size_t)outputs * (sizeof(int32_t) + (size_t)(pairs * HALVES) * sizeof(int16_t));
}

#ifdef __x86_64__
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

bool scale_pairs_make(const scale_axis *axis, void *memory, scale_pairs *out) {
    int32_t most = 0, *first = memory;
    for (int64_t i = 0; i < axis->outputs; i++)
        if (axis->count[i] > most) most = axis->count[i];
    int64_t pairs = (most + 1) / 2, last = axis->inputs - 2 * pairs;
    if (!__builtin_cpu_supports("avx2") || last < 0) return false;
    int16_t *weights = (int16_t *)(first + axis->outputs);
    memset(weights, 0, (size_t)(axis->outputs * pairs * HALVES) * sizeof *weights);
    for (int64_t i = 0; i < axis->outputs; i++) {
        // No pair reaches beyond the inputs: the last ones begin earlier, with weights of 0.
        first[i] = axis->first[i] < last ? axis->first[i] : (int32_t)last;
        for (int32_t k = 0; k < axis->count[i]; k++) {
            int32_t weight = axis->weights[i * axis->taps + k], at = axis->first[i] + k - first[i];
            int16_t *pair = weights + (i * pairs + at / 2) * HALVES;
            pair[at % 2] = (int16_t)(weight >> LOWER_BITS);
            pair[2 + at % 2] = (int16_t)(weight & LOWER_MASK);
        }
    }
    *out = (scale_pairs){axis->outputs, pairs, first, weights};
    return true;
}

// The two weights of a half, in every 32 bits.
AVX2 static inline __m256i broadcast(const int16_t *half) {
    int32_t both;
    memcpy(&both, half, sizeof both);
    return _mm256_set1_epi32(both);
}

typedef struct sums {
    __m256i upper, lower;
} sums;

AVX2 static inline sums begin_sums(void) {
    return (sums){_mm256_setzero_si256(), _mm256_set1_epi32(1 << (SCALE_PRECISION_BITS - 1))};
}

AVX2 static inline void add_pairs(sums *s, __m256i values, __m256i upper, __m256i lower) {
    s->upper = _mm256_add_epi32(s->upper, _mm256_madd_epi16(values, upper));
    s->lower = _mm256_add_epi32(s->lower, _mm256_madd_epi16(values, lower));
}

AVX2 static inline __m256i end_sums(const sums *s) {
    __m256i upper = _mm256_slli_epi32(s->upper, LOWER_BITS);
    return _mm256_srai_epi32(_mm256_add_epi32(upper, s->lower), SCALE_PRECISION_BITS);
}

// Two rows of pixels at a time.
AVX2 static void scale_two(const scale_pairs *axis, const uint8_t *a, const uint8_t *b,
                           uint8_t *to_a, uint8_t *to_b) {
    enum { TWO_BYTES = 2 * SCALE_PIXEL_BYTES };
    // Puts the same channel of both pixels side by side.
    const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    const int16_t *half = axis->weights;
    for (int64_t i = 0; i < axis->outputs; i++) {
        int64_t at = (int64_t)axis->first[i] * SCALE_PIXEL_BYTES;
        sums s = begin_sums();
        for (int64_t k = 0; k < axis->pairs; k++, at += TWO_BYTES, half += HALVES) {
            __m128i bytes = _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)(a + at)),
                                               _mm_loadl_epi64((const __m128i *)(b + at)));
            __m256i values = _mm256_cvtepu8_epi16(_mm_shuffle_epi8(bytes, order));
            add_pairs(&s, values, broadcast(half), broadcast(half + 2));
        }
        __m256i pixels = end_sums(&s);
        pixels = _mm256_packs_epi32(pixels, pixels);
        pixels = _mm256_packus_epi16(pixels, pixels);
        int32_t of_a = _mm_cvtsi128_si32(_mm256_castsi256_si128(pixels)),
                of_b = _mm_cvtsi128_si32(_mm256_extracti128_si256(pixels, 1));
        memcpy(to_a + i * SCALE_PIXEL_BYTES, &of_a, sizeof of_a);
        memcpy(to_b + i * SCALE_PIXEL_BYTES, &of_b, sizeof of_b);
    }
}

void scale_pairs_rows(const scale_pairs *axis, const uint8_t *from, int64_t row_stride, int64_t low,
                      int64_t high, uint8_t *to) {
    int64_t row_bytes = axis->outputs * SCALE_PIXEL_BYTES;
    for (int64_t row = low; row < high; row += 2) {
        int64_t other = row + 1 < high ? row + 1 : row;
        scale_two(axis, from + row * row_stride, from + other * row_stride, to + row * row_bytes,
                  to + other * row_bytes);
    }
}

// One row of the result: columns of SCALE_LEAST_BYTES bytes at a time.
AVX2 static void scale_columns(const scale_pairs *axis, int64_t row, const uint8_t *from,
                               int64_t row_bytes, uint8_t *to) {
    enum { PARTS = SCALE_LEAST_BYTES / 8 };
    const int16_t *weights = axis->weights + row * axis->pairs * HALVES;
    const __m256i zero = _mm256_setzero_si256();
    from += axis->first[row] * row_bytes;
    for (int64_t at = 0; at < row_bytes; at += SCALE_LEAST_BYTES) {
        if (at + SCALE_LEAST_BYTES > row_bytes) at = row_bytes - SCALE_LEAST_BYTES;
        sums s[PARTS];
        for (int i = 0; i < PARTS; i++) s[i] = begin_sums();
        for (int64_t k = 0; k < axis->pairs; k++) {
            const uint8_t *bytes = from + 2 * k * row_bytes + at;
            __m256i a = _mm256_loadu_si256((const __m256i *)bytes),
                    b = _mm256_loadu_si256((const __m256i *)(bytes + row_bytes)),
                    upper = broadcast(weights + k * HALVES),
                    lower = broadcast(weights + k * HALVES + 2), left = _mm256_unpacklo_epi8(a, b),
                    right = _mm256_unpackhi_epi8(a, b);
            add_pairs(&s[0], _mm256_unpacklo_epi8(left, zero), upper, lower);
            add_pairs(&s[1], _mm256_unpackhi_epi8(left, zero), upper, lower);
            add_pairs(&s[2], _mm256_unpacklo_epi8(right, zero), upper, lower);
            add_pairs(&s[3], _mm256_unpackhi_epi8(right, zero), upper, lower);
        }
        __m256i left = _mm256_packs_epi32(end_sums(&s[0]), end_sums(&s[1])),
                right = _mm256_packs_epi32(end_sums(&s[2]), end_sums(&s[3]));
        _mm256_storeu_si256((__m256i *)(to + at), _mm256_packus_epi16(left, right));
    }
}

void scale_pairs_columns(const scale_pairs *axis, const uint8_t *from, int64_t row_bytes,
                         uint8_t *to) {
    for (int64_t row = 0; row < axis->outputs; row++)
        scale_columns(axis, row, from, row_bytes, to + row * row_bytes);
}

#else

bool scale_pairs_make(const scale_axis *axis, void *memory, scale_pairs *out) { return false; }
void scale_pairs_rows(const scale_pairs *axis, const uint8_t *from, int64_t row_stride, int64_t low,
                      int64_t high, uint8_t *to) {}
void scale_pairs_columns(const scale_pairs *axis, const uint8_t *from, int64_t row_bytes,
                         uint8_t *to) {}

#endif
