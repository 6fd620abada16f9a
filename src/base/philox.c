// Computes keys for the random generator Philox and draws numbers from it. Philox turns a key and a
// counter into four random words. The generator is in the header, so that the compiler can
// vectorise loops over it.
#include "base/philox.h"

#include <math.h>

uint64_t tri_philox_key(uint64_t seed, const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    uint64_t mixed = hash + 0x9E3779B97F4A7C15u * (seed + 1);
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    return mixed ^ (mixed >> 31);
}

uint32_t tri_philox_at(uint64_t key, uint64_t step, uint32_t sample, uint64_t element) {
    return tri_philox_quad(key, step, sample, element / 4).word[element % 4];
}

static tri_philox_block init_block(uint64_t key, uint64_t element) {
    uint64_t block = element / 4;
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
    return tri_philox(key, counter);
}

float tri_philox_init_uniform(uint64_t key, uint64_t element, float low, float high) {
    return low + (high - low) * tri_philox_uniform(init_block(key, element).word[element % 4]);
}

float tri_philox_init_normal(uint64_t key, uint64_t element, float mean, float std) {
    tri_philox_block block = init_block(key, element);
    const uint32_t *pair = &block.word[element % 4 / 2 * 2];
    double u = ((double)pair[0] + 1.0) * 0x1p-32, angle = (double)pair[1] * 0x1p-32 * 2.0 * M_PI;
    double radius = sqrt(-2.0 * log(u));
    return (float)(mean + std * radius * (element % 2 ? sin(angle) : cos(angle)));
}
