// Philox4x32-10, a counter-based random number generator: Salmon, Moraes, Dror and Shaw, "Parallel
// random numbers: as easy as 1, 2, 3", SC 2011. Every number is a pure function of key and counter.
// So any rank can compute any number, and the numbers do not depend on the number of ranks.
#ifndef TRIREME_BASE_PHILOX_H
#define TRIREME_BASE_PHILOX_H

#include "base/kernel_inline.h"

#include <stdint.h>

typedef struct tri_philox_block {
    uint32_t word[4];
} tri_philox_block;

// Computes four random words from a 128-bit counter (least significant word first) and a 64-bit
// key. The compiler vectorises loops over counters.
TRI_KERNEL_INLINE tri_philox_block tri_philox(uint64_t key, const uint32_t counter[4]) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    TRI_KERNEL_UNROLL_10
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    tri_philox_block block = {{c0, c1, c2, c3}};
    return block;
}

// Computes the block with the random numbers of elements 4 · quad to 4 · quad + 3 of sample
// `sample` in step `step`: see tri_philox_at.
TRI_KERNEL_INLINE tri_philox_block tri_philox_quad(uint64_t key, uint64_t step, uint32_t sample,
                                                   uint64_t quad) {
    uint32_t counter[4] = {(uint32_t)quad, sample, (uint32_t)step, (uint32_t)(step >> 32)};
    return tri_philox(key, counter);
}

// Makes the key of a stream of random numbers from the seed and a name ("dropout1",
// "conv1.weight"), mixed by FNV-1a and SplitMix64. Different names give independent streams, so
// that two layers never draw the same numbers.
uint64_t tri_philox_key(uint64_t seed, const char *name);

// Converts a random word to a number in [0, 1) with 24 bits, which a float holds exactly.
TRI_KERNEL_INLINE float tri_philox_uniform(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

// Draws the random number of element `element` of sample `sample` in step `step`: word element % 4
// of the block whose counter is (element / 4, sample, low 32 bits of step, high 32 bits of step).
// Dropout uses these numbers.
uint32_t tri_philox_at(uint64_t key, uint64_t step, uint32_t sample, uint64_t element);

// Draw uniform or normal numbers for initial weights. Element e of a parameter uses word e % 4 of
// the block whose counter is (low 32 bits of e / 4, high 32 bits of e / 4, 0, 0). Normal numbers
// are computed in double by Box-Muller, which makes two of them from words 0 and 1 of the block,
// and two from words 2 and 3.
float tri_philox_init_uniform(uint64_t key, uint64_t element, float low, float high);
float tri_philox_init_normal(uint64_t key, uint64_t element, float mean, float std);
// Write the numbers of elements first to first + count - 1 to `out`: the same bits, several times
// faster.
void tri_philox_init_uniforms(uint64_t key, uint64_t first, int64_t count, float low, float high,
                              float *out);
void tri_philox_init_normals(uint64_t key, uint64_t first, int64_t count, float mean, float std,
                             float *out);

#endif
