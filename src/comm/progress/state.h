// The progress base: the common part of all communicators whose operations advance while the caller
// does other work. A backend supplies one bounded step of an operation, how a thread sleeps until
// another rank has done something, and what is known of other ranks. The base does the rest. It
// queues operations, and has a thread that advances them while the caller computes. It puts sends
// and receives in order, records operations and waits in the ledger (the record of this rank's
// latest actions), checks time limits and reports lost ranks. After a failure it ends all
// communicators of a family (those split from one). A family can be linked with others: then all of
// them fail together. A rank's number in the job is its number among all ranks of the run.
//
// A backend's own structs begin with those of this file. The files of this folder, each of which
// calls only those above it:
//   futex         words on which threads sleep
//   state         what the base keeps in each process, and the functions of a backend
//   failure       the first failure, which ends a family and the families linked with it
//   describe      what messages about failures tell of a rank
//   queue         the operations of a communicator in order, and the right to advance them
//   watch         checks which ranks are lost, and for how long nothing has advanced
//   thread        advances operations that no thread waits for
//   spin          what a thread that waits does before it sleeps
//   operation     start, test, wait
//   communicator  making, splitting and closing
#ifndef TRIREME_COMM_PROGRESS_STATE_H
#define TRIREME_COMM_PROGRESS_STATE_H

#include "comm/comm.h"
#include "rendezvous/health.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PROGRESS_NOBODY = -1 }; // the rank number that means "none"

typedef enum progress_result {
    PROGRESS_IDLE,     // there was nothing to do
    PROGRESS_BLOCKED,  // nothing could be done, because the operation waits for other ranks
    PROGRESS_ADVANCED, // a step of the operation was done
    // The values rise in this order, so that the result of several attempts is the maximum of their
    // results.
} progress_result;

typedef struct progress_comm progress_comm;
typedef struct progress_family progress_family;

// An operation in the queue of its communicator.
typedef struct progress_item {
    tri_comm_op op;
    uint64_t sequence;     // the operation's number in the communicator, from 1
    uint64_t group_ticket; // `sequence` of the last operation of its operation group
    tri_ledger_mark mark;
    bool begun, done;
    // Only the backend uses the next four members; when the operation is added to the queue they
    // are 0.
    int step;
    uint64_t number, bytes;
    void *state; // memory that the backend allocates; the progress base frees it with the operation
} progress_item;

// The ranks that a split puts into one new communicator, in the order of their new numbers.
typedef struct progress_group {
    int size;         // 0: this rank takes part in the split, but joins no group
    int rank;         // this rank's number in the group
    const int *ranks; // ranks[r]: the number in the parent of the group's rank r
} progress_group;

typedef struct progress_backend {
    // Does one bounded step of an operation; sets item->done after the last one. It never waits,
    // because the thread that calls it may serve several communicators. A collective advances
    // alone. Sends and receives advance side by side, but only the oldest send to each rank and the
    // oldest receive from each rank. Called under the communicator's lock.
    progress_result (*advance)(progress_comm *comm, progress_item *item);
    // Whether the collective `item` waits for rank r at present, so that messages can name that
    // rank.
    bool (*awaits)(const progress_comm *comm, const progress_item *item, int r);
    // True if this rank has sent everything that the operation at the head of the queue sends. Then
    // no thread needs to advance the operation until one waits for its result. NULL: some thread
    // always has to advance the operation.
    bool (*rests)(const progress_comm *comm);

    // How a thread sleeps: it first calls `seen = sleep_begin(…)`, then checks once more that it
    // has nothing to do, then calls sleep, and at last sleep_end. A wake that comes after
    // sleep_begin ends the sleep at once, so no wake is lost.
    uint32_t (*sleep_begin)(progress_family *family);
    void (*sleep)(progress_family *family, uint32_t seen, int timeout_ms);
    void (*sleep_end)(progress_family *family);
    void (*wake)(progress_family *family); // wakes the threads of this process
    // Wakes the threads of all ranks, because a failure was recorded.
    void (*wake_all)(progress_family *family);

    // Makes the communicator that a split of `parent` gives this rank, by progress_comm_init and
    // progress_comm_add. Collective over `parent`. *out is NULL if the group is empty, so that this
    // rank gets none.
    tri_status (*branch)(progress_comm *parent, const progress_group *group, progress_comm **out);
    // Tells the other ranks that this rank closes the communicator, so that they do not think it
    // was lost. NULL: the ranks notice it without being told.
    void (*leave)(progress_comm *comm);
    // Called after a failure. When it returns, no thread of this process touches the buffers of the
    // communicator's operations, so that the caller may free them. NULL: after a failure no thread
    // touches them anyway.
    void (*quiesce)(progress_comm *comm);
    // Frees the communicator, after the progress base has freed what the members of progress_comm
    // point to.
    void (*close_comm)(progress_comm *comm);
    void (*close_family)(progress_family *family);

    // The next functions show that this rank is alive, and tell what the backend knows of other
    // ranks. Each may be NULL. If the argument is a family (all communicators split from one),
    // ranks are given by their numbers in the job.

    // Called every TRI_HEARTBEAT_MS, to raise this rank's heartbeat or to move messages.
    void (*beat)(progress_family *family);
    // Reads the other ranks' heartbeats; a blocked rank calls this before it asks `loss`.
    void (*observe)(progress_family *family);
    // Tells what happened to rank r: "died", "left the communicator". The result NULL: the rank may
    // still be running.
    const char *(*loss)(progress_comm *comm, int r);
    // True if rank r has begun the communicator's next collective, which this rank has not begun;
    // rank r then sends no message until that collective is done. Writes the collective into `out`:
    // "KIND 'label'".
    bool (*collective_of)(const progress_comm *comm, int r, char *out, size_t size);
    // Returns the record of the rank's latest actions. The result NULL: not known.
    const tri_ledger_ring *(*ring)(const progress_family *family, int job_rank);
    // Returns the name of the rank's host, so that messages can also name the host of a rank whose
    // actions are not known. The result NULL: the host is not known.
    const char *(*host)(const progress_family *family, int job_rank);
    // Tells the other ranks that this rank waits for job_rank; PROGRESS_NOBODY: that it waits for
    // none.
    void (*set_awaited)(progress_family *family, int job_rank);
    // Returns the rank for which job_rank waits, as job_rank itself has told by set_awaited;
    // PROGRESS_NOBODY: it waits for none.
    int (*awaited)(const progress_family *family, int job_rank);
} progress_backend;

typedef enum progress_failure_state {
    PROGRESS_FAILURE_NONE,
    PROGRESS_FAILURE_BEING_WRITTEN,
    PROGRESS_FAILURE_WRITTEN,
} progress_failure_state;

typedef struct progress_failure { // the first failure of any of a family's communicators
    _Atomic uint32_t state;       // a progress_failure_state
    int32_t status;
    char text[TRI_MESSAGE_MAX_BYTES];
} progress_failure;

// A family: all communicators that were split from one. Each process keeps its own view of it.
struct progress_family {
    const progress_backend *backend;
    tri_ledger *ledger;
    // The control communicator, through which this rank reads what all ranks of the job do; NULL:
    // it reads that through the backend's `ring`.
    tri_comm *control;
    int size, job_rank; // how many ranks the family has, and this rank's number in the job
    // How long a thread waits for an operation that does not advance. 0: without limit, for
    // communicators that are made of others (comm/layered), because the inner ones have the limit.
    int timeout_ms;
    bool can_spin; // true: every rank has a core to itself, so a waiting thread may spin
    // Whether a thread that waits yields its core after one check, and not only after many, while
    // shares_core is true (spin.c). False with MPI, whose calls may themselves yield the core, so
    // that a second yield after each of them only costs time.
    bool yields_early;
    // True if the last thread to which a waiting thread of this family lent its core, by a yield,
    // soon gave the core back. Most likely that thread belongs to a rank that the system has put on
    // the same core.
    _Atomic bool shares_core;
    // Where failures are recorded: in memory that all ranks share if there is such memory, else in
    // own_failure.
    progress_failure *failure, own_failure;
    // Knows what ranks of other hosts do; NULL: nothing is known of them. All families that are
    // linked (see `linked`) share it.
    tri_health *_Atomic health;
    // The next family of a circular list of linked families (each is all communicators split from
    // one); without links, this family itself. If one family of the list fails, all of them fail.
    // One lock protects all these lists (failure.c).
    progress_family *linked;
    // True: this family's failure was passed on to the linked families.
    _Atomic bool failure_passed_on;
    // The rank for which this rank waits, as the others were last told (set_awaited): 1 + its
    // number in the job; 0: it waits for none.
    _Atomic int awaited_rank;
    pthread_mutex_t lock; // protects `comms`
    progress_comm *comms; // the list of the family's communicators
    pthread_t thread;
    bool has_thread;
    _Atomic uint32_t stop;
    // `thread`, which advances operations that no other thread waits for, sleeps on the futex
    // `work` when it has nothing to do. work_sleeper is 1 while it may be asleep.
    _Atomic uint32_t work, work_sleeper;
};

struct progress_comm {
    tri_comm head;
    progress_family *family;
    progress_comm *next;
    int *job_rank; // job_rank[r]: the number in the job of this communicator's rank r
    // A ring buffer of the operations that were started and are not completed; `lock` protects it.
    pthread_mutex_t lock;
    progress_item *queue;
    uint64_t capacity; // a power of two
    // How many operations were started so far, and how many of them, counted from the first, are
    // completed.
    _Atomic uint64_t started, completed;
    // The number of the last operation that the family's thread was asked to advance; operations
    // are numbered from 1 in the order of starting.
    _Atomic uint64_t thread_target;
    // `executing` is 1 while a thread advances operations (queue.h); `waiters` is the number of
    // threads that wait for operations.
    _Atomic uint32_t executing, waiters;
    // While `armed`, `listener` is to be called when an operation ends (tri_comm_backend.notify),
    // so that a caller can sleep until then.
    _Atomic int armed; // a progress_armed
    void (*_Atomic listener)(void *context);
    void *_Atomic listener_context;
    // Only the thread that has set `executing` uses the members below, except busy_since_ns.

    // How many sends and receives at the head of the queue advance side by side; 0: a collective is
    // at the head.
    int messages;
    // How many calls of progress_advance have advanced an operation, and the value of this count
    // that progress_watch saw last.
    uint64_t advances, advances_seen;
    // When progress_watch last found that an operation had advanced, and when it last checked the
    // other ranks.
    int64_t advanced_ns, checked_ns;
    _Atomic int64_t busy_since_ns; // since when the queue has not been empty
};

typedef enum progress_armed {
    PROGRESS_NOT_ARMED,
    // The listener is to be called, and no thread of the caller is waiting for the call.
    PROGRESS_ARMED,
    // The listener is to be called, and a thread of the caller is waiting for the call.
    PROGRESS_ARMED_WAITS,
} progress_armed;

static inline progress_comm *progress_of(tri_comm *comm) { return (progress_comm *)comm; }
static inline progress_item *progress_at(const progress_comm *comm, uint64_t index) {
    return &comm->queue[index & (comm->capacity - 1)];
}

#endif
