// Packs buffers with lifetimes into one range of memory, so that buffers in use at the same time do
// not overlap:
//
//     offset |        bbbbbbb
//            | aaaaaaa   ccccccccc
//            +----------------------> moments
#ifndef TRIREME_PLAN_MEMORY_H
#define TRIREME_PLAN_MEMORY_H

#include "base/arena.h"

#include <stdint.h>

// A buffer, and when it is in use. Time is counted in moments: a moment is the index of an action
// in a schedule, or of a node in a graph.
typedef struct tri_interval {
    int64_t size_bytes;
    int first, last; // the moments of its first and last use
    int64_t offset;  // set by tri_memory_pack
} tri_interval;

// Packs intervals greedily, each at the lowest offset that is free from its first to its last
// moment (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020). It
// does so twice: once with the largest intervals first, and once with those first that use the most
// bytes for the longest time. The packing that needs less memory is taken. If there are thousands
// of intervals, they are packed only once, and those of one size whose times do not overlap get one
// offset. So the time of the search grows with the number of intervals in use at once, not with the
// length of the schedule. Returns how many bytes are needed; they and the offsets are multiples of
// `alignment`. Temporary memory comes from `scratch`.
int64_t tri_memory_pack(tri_arena *scratch, tri_interval *intervals, int count, int64_t alignment);

static inline int64_t tri_memory_round_up(int64_t bytes, int64_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

#endif
