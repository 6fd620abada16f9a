// Computes keys for the random generator Philox and draws numbers from it. Philox turns a key and a
// counter into four random words. The generator is in the header, so that the compiler can
// vectorise loops over it.
#include "base/philox.h"

#include "base/hash.h"

uint64_t tri_philox_key(uint64_t seed, const char *name) {
    uint64_t hash = tri_hash_text(TRI_HASH_OF_NOTHING, name);
    uint64_t mixed = hash + 0x9E3779B97F4A7C15u * (seed + 1);
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    return mixed ^ (mixed >> 31);
}

uint32_t tri_philox_at(uint64_t key, uint64_t step, uint32_t sample, uint64_t element) {
    return tri_philox_quad(key, step, sample, element / 4).word[element % 4];
}
