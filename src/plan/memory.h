// Places buffers that live for a while in one stretch of memory, so that those that live at the
// same time do not overlap.
#ifndef TRIREME_PLAN_MEMORY_H
#define TRIREME_PLAN_MEMORY_H

#include "base/arena.h"

#include <stdint.h>

enum { TRI_MEMORY_ALIGNMENT = 64 };

typedef struct tri_interval {
    int64_t size_bytes;
    int first, last; // moments of its first and last use, both included
    int64_t offset;  // set by tri_memory_pack
} tri_interval;

// Greedy by size: the largest first, each at the lowest place that is free all its life (Pisarchyk
// and Lee, "Efficient memory management for deep neural net inference", 2020). Of thousands, those
// of one size that follow each other in time are placed as one, so that time grows with what lives
// together, not with the length of the schedule. Returns the bytes needed.
int64_t tri_memory_pack(tri_arena *scratch, tri_interval *intervals, int count);

#endif
