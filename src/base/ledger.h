// What a rank did last and does now: a ring of its latest actions, in memory that others may read,
// and what each kind of action took in all. All times are CLOCK_MONOTONIC, one clock of a host.
//
// Lane 0 is computation, whose actions nest; every other lane is somebody's that works beside it (a
// communicator, a copy). Any thread may begin and end actions of its own lane; those of lane 0 are
// of one thread, the one that last called tri_ledger_attach or tri_ledger_step.
#ifndef TRIREME_BASE_LEDGER_H
#define TRIREME_BASE_LEDGER_H

#include "base/limits.h"
#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRI_LEDGER_LABEL_BYTES = 72,
    TRI_LEDGER_NAME_BYTES = 24,
    TRI_LEDGER_DEPTH = 16, // actions of lane 0 inside each other
    TRI_LANE_OF_COMPUTE = 0
};

// The kind of an action that waits for others; it is told apart from work by this very pointer.
extern const char TRI_LEDGER_WAIT[];

typedef struct tri_ledger_event {
    _Atomic uint64_t number; // from 1 in the order of beginnings; 0: being written
    _Atomic int64_t end_ns;  // 0: goes on
    int64_t begin_ns, bytes;
    uint64_t sequence; // of an operation in its communicator; 0: none
    int32_t lane, kind;
    int32_t subject, round; // block, unit or edge, and micro-batch; -1: none
    char label[TRI_LEDGER_LABEL_BYTES];
} tri_ledger_event;

typedef struct tri_ledger_total { // of a kind of action in lane 0, without what nested in it
    _Atomic int64_t count, busy_ns;
} tri_ledger_total;

// Zeroed memory is an empty ring. One process writes it.
typedef struct tri_ledger_ring {
    char host[64];
    int32_t pid;
    _Atomic int32_t group;      // ranks of one group do the same work (tri_ledger_set_group)
    int64_t realtime_offset_ns; // CLOCK_REALTIME minus CLOCK_MONOTONIC
    _Atomic int64_t steps;      // that were begun
    _Atomic int64_t step;       // the latest one's number
    _Atomic uint64_t begun;     // events
    _Atomic uint64_t moves;     // steps begun and actions of lane 0 begun or ended
    _Atomic int32_t depth; // actions of lane 0 that go on: now[0 … depth - 1], outermost first
    _Atomic int32_t kinds, lanes;
    char kind_names[TRI_MAX_LEDGER_KINDS][TRI_LEDGER_NAME_BYTES];
    char lane_names[TRI_MAX_LANES][TRI_LEDGER_NAME_BYTES];
    tri_ledger_total totals[TRI_MAX_LEDGER_KINDS];
    tri_ledger_event now[TRI_LEDGER_DEPTH];
    tri_ledger_event events[TRI_LEDGER_EVENTS];
} tri_ledger_ring;

typedef struct tri_ledger tri_ledger;

// What begins. `kind` lives as long as the ledger; `label` is copied, NULL is none.
typedef struct tri_ledger_action {
    const char *kind, *label;
    int lane, subject, round;
    int64_t bytes;
    uint64_t sequence;
} tri_ledger_action;

typedef struct tri_ledger_mark { // of an action that was begun; zero: none
    uint64_t number;
    int64_t begin_ns;
} tri_ledger_mark;

// `ring` NULL: in memory of its own. TRI_NO_MEMORY.
tri_status tri_ledger_open(tri_ledger_ring *ring, tri_ledger **out);
tri_ledger *tri_ledger_share(tri_ledger *ledger); // one close more
void tri_ledger_close(tri_ledger *ledger);        // NULL allowed; the last one ends it
const tri_ledger_ring *tri_ledger_ring_of(const tri_ledger *ledger);

// A new lane; "compute" is there from the start. When there are too many, the last one again.
int tri_ledger_lane(tri_ledger *ledger, const char *name);
void tri_ledger_name_lane(tri_ledger *ledger, int lane, const char *name);
// Ranks of one group are compared with each other by what their actions take.
void tri_ledger_set_group(tri_ledger *ledger, int group);

// Well below a microsecond each. A NULL ledger records nothing.
void tri_ledger_attach(tri_ledger *ledger); // the calling thread is the one that computes
void tri_ledger_step(tri_ledger *ledger, int64_t step);
tri_ledger_mark tri_ledger_begin(tri_ledger *ledger, const tri_ledger_action *action);
void tri_ledger_end(tri_ledger *ledger, tri_ledger_mark mark);
// Begins an action of lane 0 that is no part of a schedule: "loading data", "evaluation". Steps may
// lie inside it.
tri_ledger_mark tri_ledger_enter(tri_ledger *ledger, const char *kind, const char *label);
// True on the thread that computes.
bool tri_ledger_computes(const tri_ledger *ledger);

// From now on the last `events` actions are kept in private memory too. TRI_NO_MEMORY.
tri_status tri_ledger_trace(tri_ledger *ledger, size_t events);
// Those kept, oldest first; *dropped: begun since the start of the trace, but no longer kept. No
// action may begin or end meanwhile. The caller copies `count` events one by one.
size_t tri_ledger_traced(const tri_ledger *ledger, uint64_t *dropped);
const tri_ledger_event *tri_ledger_traced_at(const tri_ledger *ledger, size_t index);

// A copy of event `number`; false: it is not there (any more).
bool tri_ledger_read(const tri_ledger_ring *ring, uint64_t number, tri_ledger_event *out);
// True while the innermost action of lane 0 is a wait for other ranks.
bool tri_ledger_waits(const tri_ledger_ring *ring);
// "in FORWARD 'conv2' of step 17, after all_reduce 'NORM' (sequence 16)"; "before its first
// action".
char *tri_ledger_text(const tri_ledger_ring *ring, char *out, size_t size);

#endif
