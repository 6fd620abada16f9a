// A pseudo-random order of N items. The item at any position is computed instead of looked up in a
// list, so that the order takes no memory and a resumed run can begin anywhere in it. Only the
// order of a few items is a list: there, the computed orders would not be equally likely.
#ifndef TRIREME_DATA_PERMUTATION_H
#define TRIREME_DATA_PERMUTATION_H

#include <stdint.h>

enum {
    TRI_PERMUTATION_ROUNDS = 8,
    TRI_PERMUTATION_LISTED = 256, // orders of up to so many items are lists
};

// A cipher that encrypts a position to an item: a Feistel network over the numbers of b bits, for
// the smallest b with 2^b at least N. If b is odd, the two halves of a number differ by one bit in
// length. It never maps two positions to the same item. A result outside 0 … N-1 is encrypted again
// until it lies inside ("cycle walking": Black and Rogaway, "Ciphers with arbitrary finite
// domains", CT-RSA 2002). As 2^b is less than 2N, that takes fewer than two encryptions on average.
// The keys come from Philox.
//
// Each round is an even permutation, or nearly so: with few bits the network reaches only some of
// the N! orders. So up to TRI_PERMUTATION_LISTED items are shuffled by Fisher and Yates' method.
typedef struct tri_permutation {
    int64_t count;
    int low_bits, high_bits;
    uint64_t keys[TRI_PERMUTATION_ROUNDS];
    uint8_t list[TRI_PERMUTATION_LISTED]; // by position: the item, if count is small enough
} tri_permutation;

// Makes the order of `count` items in epoch `epoch` of the run with `seed`; each epoch has another
// order.
tri_permutation tri_permutation_make(uint64_t seed, int64_t epoch, int64_t count);
// Computes the item at `position`; both are 0 … count-1.
int64_t tri_permutation_at(const tri_permutation *order, int64_t position);

#endif
