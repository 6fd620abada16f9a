// What a rank does now and did last: a ring of its latest actions, in memory that other processes
// may read, and the total time of each kind of action. So others can tell what a rank does that
// does not answer. All times are CLOCK_MONOTONIC, which all processes of a host share.
//
// Lane 0 is computation, and its actions nest; the other lanes run beside it (a communicator, a
// copy). Any thread may begin and end actions of its own lane. Lane 0 belongs to one thread, the
// one that last called tri_ledger_attach or tri_ledger_step.
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
    TRI_LEDGER_DEPTH = 16, // of nested actions of lane 0
    TRI_LEDGER_NONE = -1,  // subject or round of an action that has none
    TRI_LANE_OF_COMPUTE = 0,
    TRI_LEDGER_PACKED_BYTES = 6144
};

// The kind of an action that waits for other ranks, by which a rank that waits is told from one
// that is stuck. Pass these pointers, not other texts: they are compared, not the letters.
extern const char TRI_LEDGER_WAIT[];
// The kind of an action that only issues work to a device. Its time is not the work's time, which
// the device measures itself.
extern const char TRI_LEDGER_ISSUE[];

typedef struct tri_ledger_event {
    _Atomic uint64_t number; // from 1, in the order of beginnings; 0: being written
    _Atomic int64_t end_ns;  // 0: has not ended
    int64_t begin_ns, bytes;
    uint64_t sequence; // number of an operation in its communicator; 0: none
    int32_t lane, kind;
    int32_t subject, round; // block, unit or edge, and micro-batch; or TRI_LEDGER_NONE
    char label[TRI_LEDGER_LABEL_BYTES];
} tri_ledger_event;

// Number and time of one kind of action: of lane 0, without the time of actions nested in them, so
// that no time counts twice; and those that tri_ledger_add added.
typedef struct tri_ledger_total {
    _Atomic int64_t count, busy_ns;
} tri_ledger_total;

// What other processes read. Zeroed memory is an empty ring, so that a rank that has not started
// yet can be looked at. One process writes it.
typedef struct tri_ledger_ring {
    char host[64];
    int32_t pid;
    _Atomic int32_t peers; // ranks with the same number do the same work (tri_ledger_set_peers)
    int64_t realtime_offset_ns; // CLOCK_REALTIME minus CLOCK_MONOTONIC
    _Atomic int64_t steps;      // begun so far
    _Atomic int64_t step;       // number of the latest
    _Atomic uint64_t begun;     // events
    _Atomic uint64_t moves;     // counts steps begun, and actions of lane 0 begun or ended
    // Actions of lane 0 that have not ended: open[0 … depth - 1], outermost first.
    _Atomic int32_t depth;
    _Atomic int32_t kinds, lanes;
    char kind_names[TRI_MAX_LEDGER_KINDS][TRI_LEDGER_NAME_BYTES];
    char lane_names[TRI_MAX_LANES][TRI_LEDGER_NAME_BYTES];
    tri_ledger_total totals[TRI_MAX_LEDGER_KINDS];
    tri_ledger_event open[TRI_LEDGER_DEPTH];
    tri_ledger_event events[TRI_LEDGER_EVENTS];
} tri_ledger_ring;

typedef struct tri_ledger tri_ledger;

// An action that begins. `kind` lives as long as the ledger; `label` is copied, NULL: none.
typedef struct tri_ledger_action {
    const char *kind, *label;
    int lane, subject, round;
    int64_t bytes;
    uint64_t sequence;
} tri_ledger_action;

typedef struct tri_ledger_mark { // identifies an action that was begun; zero: none
    uint64_t number;
    int64_t begin_ns;
} tri_ledger_mark;

// Makes a ledger. `ring`: where to write, in memory of the caller that others can read; NULL: in
// the ledger's own. TRI_NO_MEMORY.
tri_status tri_ledger_open(tri_ledger_ring *ring, tri_ledger **out);
tri_ledger *tri_ledger_retain(tri_ledger *ledger); // needs one more close
void tri_ledger_close(tri_ledger *ledger);         // NULL allowed; the last close ends it
const tri_ledger_ring *tri_ledger_ring_of(const tri_ledger *ledger);

// Adds a lane and returns its number; lane 0, "compute", is there from the start. Beyond
// TRI_MAX_LANES lanes, the last one is reused.
int tri_ledger_lane(tri_ledger *ledger, const char *name);
void tri_ledger_name_lane(tri_ledger *ledger, int lane, const char *name);
// Sets this rank's peers: ranks with the same number, whose actions should take the same time.
// Stragglers are found by comparison with them.
void tri_ledger_set_peers(tri_ledger *ledger, int peers);

// Each of these takes well below a microsecond, so that they may stand in every step. A NULL ledger
// records nothing.
void tri_ledger_attach(tri_ledger *ledger); // makes the calling thread the one of lane 0
void tri_ledger_step(tri_ledger *ledger, int64_t step);
tri_ledger_mark tri_ledger_begin(tri_ledger *ledger, const tri_ledger_action *action);
void tri_ledger_end(tri_ledger *ledger, tri_ledger_mark mark);
// Adds an action of another lane that is over already, and counts it in the totals of its kind:
// what a device did while the host went on, as it told later.
void tri_ledger_add(tri_ledger *ledger, const tri_ledger_action *action, int64_t begin_ns,
                    int64_t end_ns);
// Begins an action of lane 0 that is not in a schedule: "loading data", "evaluation". Steps may
// begin and end inside it.
tri_ledger_mark tri_ledger_enter(tri_ledger *ledger, const char *kind, const char *label);
// True on the thread of lane 0: other threads must not begin actions there.
bool tri_ledger_is_compute_thread(const tri_ledger *ledger);

// From now on also keeps the last `events` actions in private memory, more than the ring has.
// TRI_NO_MEMORY.
tri_status tri_ledger_trace(tri_ledger *ledger, size_t events);
// Returns how many actions are kept. *dropped is how many actions began since the start of the
// trace and are not kept. No action may begin or end until the caller has copied the events, which
// lie oldest first.
size_t tri_ledger_traced(const tri_ledger *ledger, uint64_t *dropped);
const tri_ledger_event *tri_ledger_traced_at(const tri_ledger *ledger, size_t index);

// Copies event `number`; false: it is not in the ring yet, or not any more.
bool tri_ledger_read(const tri_ledger_ring *ring, uint64_t number, tri_ledger_event *out);
// True while the innermost open action of lane 0 is a wait for other ranks. Then this rank is not
// the one that is stuck, so messages look further.
bool tri_ledger_waits(const tri_ledger_ring *ring);
// Copies the newest action of the other lanes that has not ended, and the newest that has; number
// 0: there is none.
void tri_ledger_latest(const tri_ledger_ring *ring, tri_ledger_event *operates,
                       tri_ledger_event *operated);
// Describes what the rank does: "in FORWARD 'conv2' of step 17, after all_reduce 'NORM' (sequence
// 16)"; "before its first action".
char *tri_ledger_text(const tri_ledger_ring *ring, char *out, size_t size);

// Packs what the functions above and the totals need of a ring, as bytes for a process on another
// host, which cannot read the memory. Returns how many; at most TRI_LEDGER_PACKED_BYTES, which
// `out` has.
size_t tri_ledger_pack(const tri_ledger_ring *ring, void *out);
// Makes a ring of such bytes; its other events are missing. One thread writes a ring. False: the
// bytes are not what tri_ledger_pack makes; the ring is unchanged.
bool tri_ledger_unpack(const void *data, size_t size, tri_ledger_ring *ring);
// While it is locked, tri_ledger_unpack waits, so that several fields of a ring belong to one
// moment. Lock it briefly, and take no other lock meanwhile. tri_ledger_text and tri_ledger_waits
// lock it themselves.
void tri_ledger_lock_unpacked(void);
void tri_ledger_unlock_unpacked(void);

#endif
