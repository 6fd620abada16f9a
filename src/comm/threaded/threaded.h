// The base of communicators that have a thread of their own, because their operations wait for a
// device. An operation group is operations of one call of `start` that are advanced together; a
// call may make several groups, which share one ticket (it stands for work that was started and is
// waited for later). The base keeps the groups in the order in which they were started, makes their
// tickets, reports failures, and can end everything at once. A backend supplies what a group
// consists of and how it is advanced. An inner communicator of the same ranks, in the host's
// memory, tells the other ranks of failures.
#ifndef TRIREME_COMM_THREADED_THREADED_H
#define TRIREME_COMM_THREADED_THREADED_H

#include "comm/comm.h"
#include "device/device.h"

#include <pthread.h>

enum { THREADED_MOST_AFTER = 64 };

typedef struct threaded_comm threaded_comm;

// An operation group. A backend's own struct begins with this one.
typedef struct threaded_group {
    struct threaded_group *next;
    uint64_t number; // number, from 1, of the call of `start` that made the group
    bool done;
    tri_ticket *after; // the group may begin when the work of these tickets is done
    int after_count;
} threaded_group;

typedef struct threaded_kind {
    // Makes a list of the groups of one call of `start`, in order; *out is the first group, or NULL
    // if there are none.
    tri_status (*make)(threaded_comm *comm, const tri_comm_op *ops, int count,
                       threaded_group **out);
    void (*free_group)(threaded_group *group);
    // The communicator's thread goes through all groups that are not done, from the first to the
    // last, again and again. It calls `begin` before each pass (unless `begin` is NULL), and in the
    // pass `advance` for each group. `advance` never waits for another rank. It sets *moved if the
    // group has advanced, and group->done once the group is done.
    void (*begin)(threaded_comm *comm);
    tri_status (*advance)(threaded_comm *comm, threaded_group *group, bool *moved);
    // Called once after a failure. Ends what is under way, and returns the status that is to be
    // reported; the calling thread's tri_error_message is then the message. NULL: nothing has to be
    // ended.
    tri_status (*give_up)(threaded_comm *comm, tri_status status);
} threaded_kind;

struct threaded_comm {
    tri_comm head;
    const threaded_kind *kind;
    tri_comm *inner;
    tri_device *device;
    // The next operation group may begin when the work of these tickets is done.
    tri_ticket after[THREADED_MOST_AFTER];
    int after_count;
    pthread_t thread;
    bool has_thread;
    bool can_spin;          // every rank has a core to itself, and this rank has more than one
    int64_t spins_until_ns; // until then the thread does not sleep; only the thread uses this

    pthread_mutex_t lock;
    // Signalled when a group was added, and when a group is done. A failure also signals
    // group_done, and the end of the thread both.
    pthread_cond_t group_added, group_done;
    threaded_group *first, *last; // the groups that are not done yet; only the thread removes them
    uint64_t started;
    bool stops;
    tri_status status; // TRI_OK, or the first failure
    char message[TRI_MESSAGE_MAX_BYTES];
};

static inline threaded_comm *threaded_of(const tri_comm *comm) {
    return (threaded_comm *)(uintptr_t)comm;
}

// Sets up everything except the thread. `slots`: the communicator's functions. The backend still
// has to close `inner` itself.
void threaded_init(threaded_comm *comm, const threaded_kind *kind, const tri_comm_backend *slots,
                   tri_comm *inner, tri_device *device);
tri_status threaded_run(threaded_comm *comm); // starts the thread
// Ends the thread. After that, a device's queues no longer wait for the communicator's tickets, and
// the communicator no longer tests the tickets that it got through `after`. Returns whether
// operation groups were under way.
bool threaded_stop(threaded_comm *comm);
// Frees the groups and what threaded_init has set up. Nobody may use the groups' memory any more.
void threaded_end(threaded_comm *comm);

// Lets the thread look at the groups again and again for so long, without sleeping, unless it
// shares its core (threaded_comm.can_spin). Only the communicator's thread calls this: `advance`
// may, if it expects that a group can advance within such a short time.
void threaded_spin(threaded_comm *comm, int64_t duration_ns);
void threaded_free_groups(threaded_group *first, void (*free_group)(threaded_group *group));
// True if all tickets in `group->after` are done, so that the group may begin.
bool threaded_comes_after(const threaded_group *group);

// Functions of tri_comm_backend that are the same for all communicators on this base.
tri_status threaded_split(tri_comm *comm, int colour, int key, tri_comm **out);
// Allocates memory of the device.
tri_status threaded_alloc(tri_comm *comm, size_t size_bytes, void **out);
void threaded_free(tri_comm *comm, void *memory);
tri_status threaded_after(tri_comm *comm, const tri_ticket *ticket);
tri_status threaded_start(tri_comm *comm, const tri_comm_op *ops, int count, tri_comm_ticket *out);
bool threaded_test(tri_comm *comm, tri_comm_ticket ticket);
tri_status threaded_wait(tri_comm *comm, tri_comm_ticket ticket);
void threaded_abort(tri_comm *comm, const char *why);
tri_status threaded_failed(tri_comm *comm);
struct progress_family *threaded_family(tri_comm *comm);
const tri_ledger_ring *threaded_ledger_of(tri_comm *comm, int rank);
#define THREADED_SLOTS                                                                             \
    .split = threaded_split, .after = threaded_after, .start = threaded_start,                     \
    .test = threaded_test, .wait = threaded_wait, .abort = threaded_abort,                         \
    .failed = threaded_failed, .family = threaded_family, .ledger_of = threaded_ledger_of

#endif
