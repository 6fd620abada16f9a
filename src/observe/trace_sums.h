// Sums up a trace file: the time of each action and of each rank, how long ranks wait, and the
// longest gaps between their actions.
#ifndef TRIREME_OBSERVE_TRACE_SUMS_H
#define TRIREME_OBSERVE_TRACE_SUMS_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

// The sum of all events of one name, such as "FORWARD conv1", or of one kind, such as "FORWARD".
// The time of nested events is not included, so that sums can be added.
typedef struct tri_trace_sum {
    const char *name, *lane;
    int64_t count, bytes;
    double seconds;
} tri_trace_sum;

typedef struct tri_trace_rank {
    int rank;
    double busy_s, waiting_s; // computing, and waiting; together they are the span of the trace
} tri_trace_rank;

// A gap in which a rank computes nothing: between two actions, or in one or several WAITs. It could
// be shorter if computation and communication overlapped better.
typedef struct tri_trace_gap {
    int rank;
    double begin_s, seconds;
    const char *before, *after; // what the rank computed before and after the gap
    const char *wait;           // the longest WAIT in it, such as "WAIT RECV"; "": there is none
} tri_trace_gap;

typedef struct tri_trace_sums {
    double span_s; // time from the start of the first event to the end of the last one
    int64_t events;
    tri_trace_sum *kinds, *names; // sorted, those with the most time first
    int kind_count, name_count;
    tri_trace_rank *ranks;
    int rank_count;
    tri_trace_gap *gaps; // sorted, the longest first
    int gap_count;
} tri_trace_sums;

// Reads a file that --trace has written. All memory is in `arena`. TRI_NOT_FOUND: there is no such
// file. TRI_BAD_INPUT: it cannot be read, or is not a trace.
tri_status tri_trace_sum_file(tri_arena *arena, const char *path, tri_trace_sums *out);

#endif
