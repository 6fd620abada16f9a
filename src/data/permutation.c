// Computes the order of samples by a Feistel network over the positions, with keys from seed and
// epoch, or by a shuffled list. permutation.h tells why.
#include "data/permutation.h"

#include "base/philox.h"
#include "base/status.h"

#include <stdbool.h>

static bool is_listed(const tri_permutation *order) {
    return order->count <= TRI_PERMUTATION_LISTED;
}

static tri_philox_block draw(uint64_t key, uint32_t index, int64_t epoch) {
    const uint32_t counter[4] = {index, 0, (uint32_t)epoch, (uint32_t)((uint64_t)epoch >> 32)};
    return tri_philox(key, counter);
}

// Puts the items into the list in random order: each new one changes places with one of those
// before it, or stays.
static void shuffle(tri_permutation *order, uint64_t key, int64_t epoch) {
    enum { WORDS = 4 };
    tri_philox_block block = {{0}};
    for (uint32_t i = 0; i < (uint32_t)order->count; i++) {
        if (i % WORDS == 0) block = draw(key, i / WORDS, epoch);
        uint32_t other = (uint32_t)((uint64_t)block.word[i % WORDS] * (i + 1) >> 32);
        order->list[i] = order->list[other];
        order->list[other] = (uint8_t)i;
    }
}

tri_permutation tri_permutation_make(uint64_t seed, int64_t epoch, int64_t count) {
    tri_permutation order = {.count = count};
    int bits = count > 1 ? 64 - __builtin_clzll((uint64_t)count - 1) : 0;
    order.low_bits = (bits + 1) / 2;
    order.high_bits = bits / 2;
    uint64_t key = tri_philox_key(seed, "data/order");
    if (is_listed(&order)) shuffle(&order, tri_philox_key(seed, "data/order/list"), epoch);
    for (uint32_t i = 0; i < TRI_PERMUTATION_ROUNDS; i++) {
        tri_philox_block block = draw(key, i, epoch);
        order.keys[i] = (uint64_t)block.word[1] << 32 | block.word[0];
    }
    return order;
}

// The 64-bit finalizer of MurmurHash3: every bit of the input influences every bit of the result.
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

static uint64_t encrypt(const tri_permutation *order, uint64_t x) {
    uint64_t low_mask = (1ull << order->low_bits) - 1, high_mask = (1ull << order->high_bits) - 1;
    uint64_t low = x & low_mask, high = x >> order->low_bits;
    for (int i = 0; i < TRI_PERMUTATION_ROUNDS; i += 2) {
        low ^= mix(high ^ order->keys[i]) & low_mask;
        high ^= mix(low ^ order->keys[i + 1]) & high_mask;
    }
    return high << order->low_bits | low;
}

int64_t tri_permutation_at(const tri_permutation *order, int64_t position) {
    TRI_ASSERT(position >= 0 && position < order->count);
    if (is_listed(order)) return order->list[position];
    uint64_t x = (uint64_t)position;
    do x = encrypt(order, x);
    while (x >= (uint64_t)order->count);
    return (int64_t)x;
}
