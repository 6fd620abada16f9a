// Draws random numbers, with which tests fill memory and choose operations. Ranks that pass the
// same seed or key get the same numbers.
#ifndef TESTS_COMM_DRAW_H
#define TESTS_COMM_DRAW_H

#include "base/philox.h"

#include <trireme/tensor.h>

// Draws a whole number from 0 to below - 1. It depends only on the seed, the number of the
// operation, and `what`: each use of a random number in an operation has another `what`.
static inline uint32_t draw(unsigned seed, int op, int what, uint32_t below) {
    return tri_philox_at(seed, (uint64_t)op, (uint32_t)what, 0) % below;
}

// Fills `memory` with `count` random numbers of F32, F64 or BF16, which depend only on `key` and
// their index.
static inline void draw_numbers(void *memory, tri_dtype dtype, int64_t count, uint64_t key) {
    for (int64_t i = 0; i < count; i++) {
        double value = tri_philox_uniform(tri_philox_at(key, 0, 0, (uint64_t)i)) - 0.5;
        if (dtype == TRI_F32) ((float *)memory)[i] = (float)value;
        if (dtype == TRI_F64) ((double *)memory)[i] = value;
        if (dtype == TRI_BF16)
            ((uint16_t *)memory)[i] =
                (uint16_t)(0x3f00 + tri_philox_at(key, 1, 0, (uint64_t)i) % 128);
    }
}

#endif
