// The sums of a trace: time by action and by rank, waiting, the longest gaps.
#ifndef TRIREME_OBSERVE_TRACE_SUMS_H
#define TRIREME_OBSERVE_TRACE_SUMS_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

// The events of one name, "FORWARD conv1", or of one kind, "FORWARD". The time of nested events is
// not included, so that sums can be added.
typedef struct tri_trace_sum {
    const char *name, *lane;
    int64_t count, bytes;
    double seconds;
} tri_trace_sum;

typedef struct tri_trace_rank {
    int rank;
    double busy_s, waiting_s; // of the compute lane; together they are the trace's span
} tri_trace_rank;

// Time in which a rank's compute lane is idle between two of its actions: what could be won by
// better overlap.
typedef struct tri_trace_gap {
    int rank;
    double begin_s, seconds;
    const char *before, *after; // the actions before and after the gap
} tri_trace_gap;

typedef struct tri_trace_sums {
    double span_s; // from the first event's begin to the last one's end
    int64_t events;
    tri_trace_sum *kinds, *names; // those with the most time first
    int kind_count, name_count;
    tri_trace_rank *ranks;
    int rank_count;
    tri_trace_gap *gaps; // the longest first
    int gap_count;
} tri_trace_sums;

// Reads a file that --trace wrote. All memory is in `arena`. TRI_NOT_FOUND; TRI_BAD_INPUT: not a
// trace.
tri_status tri_trace_sum_file(tri_arena *arena, const char *path, tri_trace_sums *out);

#endif
