// Which elements dropout keeps, for the kernels of pooling with dropout and of dropout itself. The
// mask gives each element a factor: 0 if it is dropped, else 1 / (1 - probability of dropping).
#ifndef TRIREME_DEVICE_CUDA_MODULE_MASK_H
#define TRIREME_DEVICE_CUDA_MODULE_MASK_H

#include "device/cuda/module/gpu.h"

#include "base/philox.h"

// Computes dropout's factors of elements 4 · quad to 4 · quad + 3 of a sample. One block of the
// random generator Philox has the random numbers of all four.
GPU_DEVICE void mask_quad(const cuda_mask &mask, int64_t sample, int64_t quad, float *factors) {
    for (int i = 0; i < 4; i++) factors[i] = mask.scale;
    if (mask.threshold == 0) return;
    tri_philox_block random =
        tri_philox_quad(mask.key, (uint64_t)mask.position[0],
                        (uint32_t)mask.position[1] + (uint32_t)sample, (uint64_t)quad);
    for (int i = 0; i < 4; i++)
        if (random.word[i] < mask.threshold) factors[i] = 0;
}

GPU_DEVICE float mask_one(const cuda_mask &mask, int64_t sample, int64_t element) {
    float factors[4];
    mask_quad(mask, sample, element / 4, factors);
    // Registers cannot be indexed by a variable.
    float pair[2] = {element & 2 ? factors[2] : factors[0], element & 2 ? factors[3] : factors[1]};
    return element & 1 ? pair[1] : pair[0];
}

// Sets bit i of the result if dropout keeps element 4 · quad + i of a sample.
GPU_DEVICE uint32_t mask_quad_bits(const cuda_mask &mask, int64_t sample, int64_t quad) {
    float factors[4];
    uint32_t bits = 0;
    mask_quad(mask, sample, quad, factors);
    for (int i = 0; i < 4; i++) bits |= (uint32_t)(factors[i] != 0) << i;
    return bits;
}

// Turns e, the number of an element in this rank's slice of a sample, into its number in the whole
// sample. An element's random number depends on its number in the whole sample, so that slices have
// the same mask as a whole sample.
GPU_DEVICE int64_t whole_element(const cuda_dropout &p, int64_t e) {
    return p.run ? e / p.run * p.stride + p.first + e % p.run : e;
}

#endif
