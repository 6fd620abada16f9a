// The ledger: the record of what a rank does now and did last. It is a ring buffer of its latest
// actions, in memory that other processes may read, and the total time of each kind of action. When
// a rank no longer answers, other processes can thus still say what it is doing. All times are
// CLOCK_MONOTONIC, which all processes of a host share.
//
// A lane is a sequence of actions, which run at the same time as those of other lanes. Lane 0 is
// the compute lane, and its actions can be nested. Each communicator has a lane, and so have
// storage of offloaded state and a device that works asynchronously. Any thread may begin and end
// actions of its own lane. Lane 0 belongs to one thread, the one that last called tri_ledger_attach
// or tri_ledger_step.
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
    TRI_LEDGER_DEPTH = 16,   // how deep actions of the compute lane can be nested
    TRI_LEDGER_NONE = -1,    // the subject or micro-batch of an action that has none
    TRI_LANE_OF_COMPUTE = 0, // lane 0: the actions of the thread that computes
    TRI_LEDGER_PACKED_BYTES = 6144
};

// The kind of an action that waits for other ranks, so that a rank that waits can be distinguished
// from one that is stuck. Callers pass this pointer and not an equal text, because the ledger (the
// record of a rank's actions) compares pointers.
extern const char TRI_LEDGER_WAIT[];
// The kind of an action that only issues work to a device. Its time is not the time of the work,
// which the device measures itself.
extern const char TRI_LEDGER_ISSUE[];
// The kinds of actions of the computing thread that rank 0 alone has: it commits checkpoints and
// writes metrics, and the others wait.
extern const char TRI_LEDGER_COMMIT[];
extern const char TRI_LEDGER_METRICS[];

typedef struct tri_ledger_event {
    // Number of the event: events are numbered from 1, in the order in which they begin. 0: this
    // entry is empty, or is being written.
    _Atomic uint64_t number;
    _Atomic int64_t end_ns; // 0: the event has not ended
    int64_t begin_ns, bytes;
    uint64_t sequence; // number of a communicator's operation; 0: the event is no such operation
    int32_t lane, kind;
    // `subject`: number of the block, unit (parameters that are reduced together) or edge (values
    // for another pipeline stage) on which the action works; `round`: number of the action's
    // micro-batch. TRI_LEDGER_NONE: the action has none.
    int32_t subject, round;
    char label[TRI_LEDGER_LABEL_BYTES];
} tri_ledger_event;

// How many actions of one kind there were, and their total time. For the compute lane (lane 0), the
// time of nested actions is not included, so that no time counts twice. Actions that tri_ledger_add
// has added count too.
typedef struct tri_ledger_total {
    _Atomic int64_t count, busy_ns;
} tri_ledger_total;

// The part of a ledger (the record of what a rank does) that other processes read. Zeroed memory is
// an empty ring, so that others can look at a rank that has not started yet. Only one process
// writes it.
typedef struct tri_ledger_ring {
    char host[64];
    int32_t pid;
    _Atomic int32_t peers; // ranks with the same number do the same work (tri_ledger_set_peers)
    int64_t realtime_offset_ns; // CLOCK_REALTIME minus CLOCK_MONOTONIC
    _Atomic int64_t steps;      // how many steps have begun so far
    _Atomic int64_t step;       // number of the latest step
    _Atomic uint64_t begun;     // how many events have begun
    // Counts begun steps, and begins and ends of actions of the compute lane (lane 0). While the
    // count does not change, the rank makes no progress.
    _Atomic uint64_t progress_count;
    // Actions of the compute lane (lane 0) that have not ended: open[0 … depth - 1], the outermost
    // first.
    _Atomic int32_t depth;
    _Atomic int32_t kinds, lanes;
    char kind_names[TRI_MAX_LEDGER_KINDS][TRI_LEDGER_NAME_BYTES];
    char lane_names[TRI_MAX_LANES][TRI_LEDGER_NAME_BYTES];
    tri_ledger_total totals[TRI_MAX_LEDGER_KINDS];
    tri_ledger_event open[TRI_LEDGER_DEPTH];
    tri_ledger_event events[TRI_LEDGER_EVENTS];
} tri_ledger_ring;

typedef struct tri_ledger tri_ledger;

// Describes an action to record. The text `kind` must live as long as the ledger (the record of
// actions), which keeps the pointer. `label`, such as the name of a block, is copied; NULL: the
// action has no label.
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

// Makes a ledger, a record of this rank's actions, with one user: the caller. `ring`: where to
// write, in memory of the caller that other processes can read; NULL: in the ledger's own memory.
// Fails only with TRI_NO_MEMORY.
tri_status tri_ledger_open(tri_ledger_ring *ring, tri_ledger **out);
// Adds a user: the ledger lives until each user has called tri_ledger_close.
tri_ledger *tri_ledger_retain(tri_ledger *ledger);
// Removes a user; without users the ledger is freed. NULL allowed.
void tri_ledger_close(tri_ledger *ledger);
const tri_ledger_ring *tri_ledger_ring_of(const tri_ledger *ledger);

// Adds a lane (a sequence of actions, which run beside those of other lanes) and returns its
// number. Lane 0, "compute", exists from the start. Once there are TRI_MAX_LANES lanes, further
// calls return the last one.
int tri_ledger_lane(tri_ledger *ledger, const char *name);
void tri_ledger_name_lane(tri_ledger *ledger, int lane, const char *name);
// Sets this rank's peers: all ranks that call this with the same number are peers, whose actions
// should take the same time. Slow ranks are found by comparing peers.
void tri_ledger_set_peers(tri_ledger *ledger, int peers);

// Each of the functions from here to tri_ledger_is_compute_thread takes well below a microsecond,
// so that every step can call them. If `ledger` is NULL, nothing is recorded.

// Makes the calling thread the one that computes: its actions are recorded in lane 0.
void tri_ledger_attach(tri_ledger *ledger);
void tri_ledger_step(tri_ledger *ledger, int64_t step);
tri_ledger_mark tri_ledger_begin(tri_ledger *ledger, const tri_ledger_action *action);
void tri_ledger_end(tri_ledger *ledger, tri_ledger_mark mark);
// Adds an action that is over already, of any lane but the compute lane, and adds it to the totals
// of its kind. It is used for work of a device whose times are only known later.
void tri_ledger_add(tri_ledger *ledger, const tri_ledger_action *action, int64_t begin_ns,
                    int64_t end_ns);
// Begins an action of the compute lane (lane 0) that does not end with a training step, such as
// "loading data" or "evaluation": steps may begin and end inside it.
tri_ledger_mark tri_ledger_enter(tri_ledger *ledger, const char *kind, const char *label);
// True on the thread to which the compute lane (lane 0) belongs: only it may begin actions of that
// lane.
bool tri_ledger_is_compute_thread(const tri_ledger *ledger);

// Starts a trace: from now on the ledger also keeps the last `events` actions in memory of its own.
// The ring that other processes read keeps only the last TRI_LEDGER_EVENTS. Fails only with
// TRI_NO_MEMORY.
tri_status tri_ledger_trace(tri_ledger *ledger, size_t events);
// Returns how many actions the trace contains. *dropped: how many earlier actions it no longer
// contains, because it has no room for them. No action may begin or end until the caller has copied
// the actions, which are sorted, the oldest first.
size_t tri_ledger_traced(const tri_ledger *ledger, uint64_t *dropped);
const tri_ledger_event *tri_ledger_traced_at(const tri_ledger *ledger, size_t index);

// Copies the event that has this number. False: it is not in the ring yet or no longer, or is being
// written.
bool tri_ledger_read(const tri_ledger_ring *ring, uint64_t number, tri_ledger_event *out);
// True while the innermost open action of the compute lane (lane 0) is a wait for other ranks. Then
// this rank is not the one that is stuck, so messages name another one.
bool tri_ledger_waits(const tri_ledger_ring *ring);
// Finds two actions among those of all lanes except the compute lane (lane 0), such as a
// communicator's operations: *running is the newest that has not ended, and *latest_ended the
// newest that has ended. If there is none, the `number` of *running or *latest_ended is 0.
void tri_ledger_latest(const tri_ledger_ring *ring, tri_ledger_event *running,
                       tri_ledger_event *latest_ended);
// Describes what the rank does, for example "in FORWARD 'conv2' of step 17, after all_reduce 'NORM'
// (sequence 16)" or "before its first action".
char *tri_ledger_text(const tri_ledger_ring *ring, char *out, size_t size);

// Packs the totals of a ring, and what tri_ledger_waits, tri_ledger_latest and tri_ledger_text
// need, as bytes for a process on another host, which cannot read the memory. Returns how many
// bytes; `out` has room for TRI_LEDGER_PACKED_BYTES, the most.
size_t tri_ledger_pack(const tri_ledger_ring *ring, void *out);
// Fills a ring from bytes that tri_ledger_pack made. The ring then has only the events that were
// packed. All calls for one ring must come from one thread. False: tri_ledger_pack did not make
// these bytes, and the ring is unchanged.
bool tri_ledger_unpack(const void *data, size_t size, tri_ledger_ring *ring);
// A lock for readers of rings that tri_ledger_unpack fills. While a reader holds it,
// tri_ledger_unpack waits, so that all fields that the reader reads belong to one moment. Hold it
// briefly, and take no other lock meanwhile. tri_ledger_text and tri_ledger_waits take it
// themselves.
void tri_ledger_lock_unpacked(void);
void tri_ledger_unlock_unpacked(void);

#endif
