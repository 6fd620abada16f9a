// Sorts numbers with the indices that they had, for devices that compute in the host's memory.
#ifndef TRIREME_DEVICE_SORT_PAIRS_H
#define TRIREME_DEVICE_SORT_PAIRS_H

#include <stdint.h>

typedef struct tri_sort_pair {
    int64_t key, index;
} tri_sort_pair;

// Brings the `count` smallest keys of `size` pairs to the front, in their order; equal ones stay in
// the order in which they are given. What the others are afterwards is not defined. `room` has as
// many pairs.
void tri_sort_pairs(tri_sort_pair *pairs, tri_sort_pair *room, int64_t size, int64_t count);

#endif
