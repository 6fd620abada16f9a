// Dropout's random numbers for 16 elements at a time (Philox 4x32-10, the same numbers as
// tri_philox_at), and conversions between planes of 16 channels and plain rows. Philox turns a
// counter of four 32-bit words and a key into four random words.
#include "device/cpu/simd.h"

#include "base/philox.h"

#include <math.h>
#include <string.h>

enum { PHILOX_ROUNDS = 10 };

// Eight counters of four 32-bit words. Each word lies in the lower half of a 64-bit vector lane.
// The upper halves may hold any bits, because the multiplication does not read them.
typedef struct philox8 {
    __m512i word[4];
} philox8;

// The keys of all rounds of Philox, computed once, so that a round only loads them.
typedef struct philox_keys {
    uint64_t low[PHILOX_ROUNDS], high[PHILOX_ROUNDS];
} philox_keys;

static philox_keys keys_of(uint64_t key) {
    philox_keys keys;
    uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        keys.low[round] = low;
        keys.high[round] = high;
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    return keys;
}

CPU_INLINE __m512i xor3(__m512i a, __m512i b, uint64_t c) {
    return _mm512_ternarylogic_epi64(a, b, _mm512_set1_epi64((int64_t)c), 0x96);
}

// Draws the random words of 16 counters. Counter i consists of its own word 0, the sample and the
// step (two words). `even` has word 0 of counters 0, 2, 4, …, and `odd` has word 0 of the other
// counters, because the product of two 32-bit words fills a vector lane of 64 bits. Bit i of
// mask[w] becomes 1 if random word w of counter i is at least the threshold.
CPU_INLINE void keep_masks(const cpu_dropout *d, const philox_keys *keys, uint32_t sample,
                           __m512i even, __m512i odd, uint16_t mask[4]) {
    __m512i s = _mm512_set1_epi64(sample), low = _mm512_set1_epi64((uint32_t)d->step);
    __m512i high = _mm512_set1_epi64((int64_t)(d->step >> 32));
    philox8 a = {{even, s, low, high}}, b = {{odd, s, low, high}};
    const __m512i m0 = _mm512_set1_epi64(0xD2511F53), m1 = _mm512_set1_epi64(0xCD9E8D57);
#pragma GCC unroll 10
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        __m512i a0 = _mm512_mul_epu32(a.word[0], m0), a1 = _mm512_mul_epu32(a.word[2], m1);
        __m512i b0 = _mm512_mul_epu32(b.word[0], m0), b1 = _mm512_mul_epu32(b.word[2], m1);
        a.word[0] = xor3(_mm512_srli_epi64(a1, 32), a.word[1], keys->low[round]);
        b.word[0] = xor3(_mm512_srli_epi64(b1, 32), b.word[1], keys->low[round]);
        a.word[2] = xor3(_mm512_srli_epi64(a0, 32), a.word[3], keys->high[round]);
        b.word[2] = xor3(_mm512_srli_epi64(b0, 32), b.word[3], keys->high[round]);
        a.word[1] = a1;
        b.word[1] = b1;
        a.word[3] = a0;
        b.word[3] = b0;
    }
    __m512i threshold = _mm512_set1_epi32((int)d->threshold);
    for (int w = 0; w < 4; w++) {
        __m512i both = _mm512_mask_blend_epi32(0xAAAA, a.word[w], _mm512_slli_epi64(b.word[w], 32));
        mask[w] = (uint16_t)_mm512_cmpge_epu32_mask(both, threshold);
    }
}

cpu_dropout cpu_dropout_of(double p, uint64_t key) {
    double threshold = ceil(p * 0x1p32);
    bool drops_all = threshold > UINT32_MAX;
    return (cpu_dropout){.key = key,
                         .threshold = drops_all ? 0 : (uint32_t)threshold,
                         .scale = p >= 1 ? 0 : (float)(1 / (1 - p)),
                         .drops_all = drops_all};
}

// Does the work of cpu_dropout_block_masks if `count`, the number of pixels, is a multiple of four.
// Then the four random words of one Philox counter belong to four neighbouring pixels of one
// channel.
static CPU_AVX512 void block_masks_aligned(const cpu_dropout *d, uint32_t sample, uint64_t first,
                                           int64_t count, uint16_t *keep) {
    const philox_keys keys = keys_of(d->key);
    uint32_t groups = (uint32_t)(count / 4), base = (uint32_t)(first / 4);
    const __m512i pair = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0);
    __m512i even = _mm512_mullo_epi64(pair, _mm512_set1_epi64(groups));
    even = _mm512_add_epi64(even, _mm512_set1_epi64(base));
    __m512i odd = _mm512_add_epi64(even, _mm512_set1_epi64(groups));
    const __m512i one = _mm512_set1_epi64(1);
    for (uint32_t g = 0; g < groups; g++) {
        keep_masks(d, &keys, sample, even, odd, keep + 4 * g);
        even = _mm512_add_epi64(even, one);
        odd = _mm512_add_epi64(odd, one);
    }
}

static CPU_AVX512 void block_masks_any(const cpu_dropout *d, uint32_t sample, uint64_t first,
                                       int64_t count, uint16_t *keep) {
    const philox_keys keys = keys_of(d->key);
    const __m512i pair = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0);
    __m512i start = _mm512_add_epi64(_mm512_mullo_epi64(pair, _mm512_set1_epi64(count)),
                                     _mm512_set1_epi64((int64_t)first));
    for (int64_t pixel = 0; pixel < count; pixel++) {
        __m512i even = _mm512_add_epi64(start, _mm512_set1_epi64(pixel));
        __m512i odd = _mm512_add_epi64(even, _mm512_set1_epi64(count));
        uint16_t mask[4], bits = 0;
        keep_masks(d, &keys, sample, _mm512_srli_epi64(even, 2), _mm512_srli_epi64(odd, 2), mask);
        for (int channel = 0; channel < 16; channel++) {
            uint64_t word = (first + (uint64_t)(channel * count + pixel)) % 4;
            bits |= mask[word] & (1u << channel);
        }
        keep[pixel] = bits;
    }
}

void cpu_dropout_block_masks(const cpu_dropout *dropout, uint32_t sample, uint64_t first,
                             int64_t count, uint16_t *keep) {
    if (dropout->drops_all)
        memset(keep, 0, (size_t)count * sizeof *keep);
    else if (count % 4 == 0)
        block_masks_aligned(dropout, sample, first, count, keep);
    else
        block_masks_any(dropout, sample, first, count, keep);
}

CPU_INLINE void dropout_plain(const cpu_dropout *dropout, uint32_t sample, uint64_t first,
                              int64_t count, bool bf16, const void *x, void *y, int64_t at) {
    const __m512i pair = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0);
    const __m512 scale = _mm512_set1_ps(dropout->scale);
    const philox_keys keys = keys_of(dropout->key);
    for (int64_t i = 0; i < count; i += 64) {
        __m512i even = _mm512_add_epi64(pair, _mm512_set1_epi64((int64_t)(first + i) / 4));
        uint16_t mask[4];
        keep_masks(dropout, &keys, sample, even, _mm512_add_epi64(even, _mm512_set1_epi64(1)),
                   mask);
        uint64_t bits = 0;
        for (int w = 0; w < 4; w++) bits |= _pdep_u64(mask[w], 0x1111111111111111u << w);
        if (dropout->drops_all) bits = 0;
        for (int64_t k = i; k < i + 64 && k < count; k += 16, bits >>= 16) {
            __mmask16 inside = cpu_first_lanes(count - k);
            __m512 value = cpu_load(x, bf16, at + k, inside & (__mmask16)bits);
            cpu_store(y, bf16, at + k, inside, _mm512_mul_ps(value, scale));
        }
    }
}

CPU_AVX512 void cpu_dropout_plain(const cpu_dropout *dropout, uint32_t sample, uint64_t first,
                                  int64_t count, bool bf16, const void *x, void *y, int64_t at) {
    if (bf16)
        dropout_plain(dropout, sample, first, count, true, x, y, at);
    else
        dropout_plain(dropout, sample, first, count, false, x, y, at);
}

CPU_INLINE void block_to_rows(bool bf16, const float *block, void *rows, int64_t at,
                              int64_t pixels) {
    __m512 r[16];
    for (int64_t p = 0; p < pixels; p += 16) {
        int64_t left = pixels - p < 16 ? pixels - p : 16;
        for (int i = 0; i < 16; i++)
            r[i] = i < left ? _mm512_loadu_ps(block + (p + i) * 16) : _mm512_setzero_ps();
        cpu_transpose16(r);
        for (int i = 0; i < 16; i++)
            cpu_store(rows, bf16, at + i * pixels + p, cpu_first_lanes(left), r[i]);
    }
}

CPU_INLINE void rows_to_block(bool bf16, const void *rows, int64_t at, float *block,
                              int64_t pixels) {
    __m512 r[16];
    for (int64_t p = 0; p < pixels; p += 16) {
        int64_t left = pixels - p < 16 ? pixels - p : 16;
        for (int i = 0; i < 16; i++)
            r[i] = cpu_load(rows, bf16, at + i * pixels + p, cpu_first_lanes(left));
        cpu_transpose16(r);
        for (int i = 0; i < left; i++) _mm512_storeu_ps(block + (p + i) * 16, r[i]);
    }
}

CPU_AVX512 void cpu_block_to_rows(bool bf16, const float *block, void *rows, int64_t at,
                                  int64_t pixels) {
    if (bf16)
        block_to_rows(true, block, rows, at, pixels);
    else
        block_to_rows(false, block, rows, at, pixels);
}

CPU_AVX512 void cpu_rows_to_block(bool bf16, const void *rows, int64_t at, float *block,
                                  int64_t pixels) {
    if (bf16)
        rows_to_block(true, rows, at, block, pixels);
    else
        rows_to_block(false, rows, at, block, pixels);
}

CPU_AVX512 void cpu_sum_lanes(const float *block, float *out, int64_t pixels) {
    __m512 r[16];
    for (int64_t p = 0; p < pixels; p += 16) {
        int64_t left = pixels - p < 16 ? pixels - p : 16;
        for (int i = 0; i < 16; i++)
            r[i] = i < left ? _mm512_loadu_ps(block + (p + i) * 16) : _mm512_setzero_ps();
        cpu_transpose16(r);
        for (int width = 8; width; width /= 2)
            for (int i = 0; i < width; i++) r[i] = _mm512_add_ps(r[i], r[i + width]);
        _mm512_mask_storeu_ps(out + p, (__mmask16)((1u << left) - 1), r[0]);
    }
}
