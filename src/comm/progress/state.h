// The progress base: what communicators that work beside the caller have in common. A backend
// supplies one bounded step of an operation, how a thread sleeps until another rank has moved, and
// what it knows of other ranks. The base has the queues, the thread that advances operations while
// the caller computes, the order of sends and receives, the ledger's marks, time limits, reports,
// and failures that end all communicators of a family.
//
// A backend's own structs begin with those of this file. The files of this folder, each of which
// calls only those above it:
//   futex         words on which threads sleep
//   state         what the base keeps in each process, and the backend's functions
//   failure       the first failure, which ends a family and those that are linked to it
//   describe      what messages say of a rank
//   queue         the operations of a communicator in order, and the right to advance them
//   watch         which ranks are lost, and how long nothing advanced
//   thread        advances operations that no thread waits for
//   operation     start, test, wait
//   communicator  making, splitting and closing
#ifndef TRIREME_COMM_PROGRESS_STATE_H
#define TRIREME_COMM_PROGRESS_STATE_H

#include "comm/comm.h"
#include "rendezvous/health.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PROGRESS_NOBODY = -1 }; // instead of a rank

typedef enum progress_result {
    PROGRESS_IDLE, // there is nothing to do
    PROGRESS_BLOCKED,
    PROGRESS_ADVANCED,
} progress_result; // worst first

typedef struct progress_comm progress_comm;
typedef struct progress_family progress_family;

// An operation in the queue of its communicator.
typedef struct progress_item {
    tri_comm_op op;
    uint64_t sequence;     // its number in the communicator, from 1
    uint64_t group_ticket; // sequence of the last operation of its group
    tri_ledger_mark mark;
    bool begun, done;
    // Only the backend uses these; they are 0 at the beginning.
    int step;
    uint64_t number, bytes;
    void *state; // the base frees it
} progress_item;

// Some of a communicator's ranks, in the order in which the new communicator has them.
typedef struct progress_group {
    int size;         // 0: this rank takes part in the split and is in no group
    int rank;         // ours in the group
    const int *ranks; // ranks[r]: the parent's rank of rank r
} progress_group;

typedef struct progress_backend {
    // Does one bounded step of an operation; sets item->done at the end. Never waits, because the
    // thread has other communicators to serve. A collective is advanced alone. Sends and receives
    // advance side by side, but of those to one rank only the oldest, and likewise of those from
    // one rank. Called under the communicator's lock.
    progress_result (*advance)(progress_comm *comm, progress_item *item);
    // Finds whether a collective waits for rank r, which messages then name.
    bool (*awaits)(const progress_comm *comm, const progress_item *item, int r);
    // True if this rank has sent everything that the operation at the head sends. Then no thread
    // needs to advance the operation until one waits for it. NULL: never true.
    bool (*rests)(const progress_comm *comm);

    // A thread that is about to sleep announces it by `seen = sleep_begin(…)`. Then it checks once
    // more that it has nothing to do, and calls sleep. So no wake between the two calls gets lost.
    uint32_t (*sleep_begin)(progress_family *family);
    void (*sleep)(progress_family *family, uint32_t seen, int timeout_ms);
    void (*sleep_end)(progress_family *family);
    void (*wake)(progress_family *family);     // the threads of this process
    void (*wake_all)(progress_family *family); // of all ranks: there is a failure to be seen

    // Makes a communicator of the same family (progress_comm_init, …_add) for a split. Collective
    // over `parent`; *out = NULL where the group is empty.
    tri_status (*branch)(progress_comm *parent, const progress_group *group, progress_comm **out);
    // Tells the other ranks that this one closes the communicator, so that they do not take it for
    // lost. NULL: the ranks see that by themselves.
    void (*leave)(progress_comm *comm);
    // Called after a failure. When it returns, no thread of this process touches the memory of an
    // operation, so that the caller may free it. NULL: none does after a failure anyway.
    void (*quiesce)(progress_comm *comm);
    void (*close_comm)(progress_comm *comm); // frees it; the base has ended its part
    void (*close_family)(progress_family *family);

    // The functions below are what the backend knows of other ranks. Each may be NULL. Where a
    // function is about a family, a rank has its number in the job.
    void (*beat)(progress_family *family);    // called every TRI_HEARTBEAT_MS
    void (*observe)(progress_family *family); // called by a blocked rank before it asks `loss`
    // What happened to rank r: "died", "left the communicator"; NULL: it may still move.
    const char *(*loss)(progress_comm *comm, int r);
    // True if rank r has begun the next collective of the communicator, so that it will not send
    // what we wait for; writes "KIND 'label'".
    bool (*collective_of)(const progress_comm *comm, int r, char *out, size_t size);
    const tri_ledger_ring *(*ring)(const progress_family *family, int job_rank); // NULL: unknown
    const char *(*host)(const progress_family *family, int job_rank); // where it has no ring
    // Tells the others for which rank this one waits; PROGRESS_NOBODY: for none.
    void (*set_awaited)(progress_family *family, int job_rank);
    int (*awaited)(const progress_family *family, int job_rank); // what that rank told
} progress_backend;

typedef enum progress_failure_state {
    PROGRESS_FAILURE_NONE,
    PROGRESS_FAILURE_BEING_WRITTEN,
    PROGRESS_FAILURE_WRITTEN,
} progress_failure_state;

typedef struct progress_failure { // the first one of any communicator of the family
    _Atomic uint32_t state;       // progress_failure_state
    int32_t status;
    char text[TRI_MESSAGE_MAX_BYTES];
} progress_failure;

// A family: all communicators that were split from one, as this process keeps them.
struct progress_family {
    const progress_backend *backend;
    tri_ledger *ledger;
    tri_comm *control; // shows the ledgers of all ranks of the job; NULL: the backend does (`ring`)
    int size, job_rank; // how many ranks; this one's number in the job
    int timeout_ms;     // 0: what the operations wait for has its own limit
    bool can_spin;      // every rank has a core to itself
    // Where failures are recorded: in memory that all ranks share, if there is any, else in
    // own_failure.
    progress_failure *failure, own_failure;
    // Knows what ranks of other hosts do; NULL: nothing is known of them. Linked families have the
    // same.
    tri_health *_Atomic health;
    // The next of the families that fail together, which form a ring; under a lock of all families.
    progress_family *linked;
    _Atomic bool spread;      // the failure was passed on to them
    _Atomic int awaited_rank; // 1 + the job's rank that was last told to set_awaited
    pthread_mutex_t lock;     // of `comms`
    progress_comm *comms;
    pthread_t thread;
    bool has_thread;
    _Atomic uint32_t stop;
    _Atomic uint32_t work, work_sleeper; // futex on which the idle thread sleeps
};

struct progress_comm {
    tri_comm head;
    progress_family *family;
    progress_comm *next;
    int *job_rank; // job_rank[r]: the job's rank of our rank r
    // The operations that were started and are not completed, as a ring; `lock` guards it.
    pthread_mutex_t lock;
    progress_item *queue;
    uint64_t capacity; // a power of two
    _Atomic uint64_t started, completed;
    _Atomic uint64_t thread_target; // the thread carries out operations up to this one
    _Atomic uint32_t executing, waiters;
    // One call of `listener` is due when something ends (tri_comm_backend.notify), so that a caller
    // can sleep until then.
    _Atomic int armed; // progress_armed
    void (*_Atomic listener)(void *context);
    void *_Atomic listener_context;
    // Only the thread that has set `executing` uses what follows, except busy_since_ns.
    int messages; // sends and receives at the head that advance side by side; 0: a collective
    uint64_t advances, advances_seen; // calls that advanced, and how many progress_watch has seen
    int64_t advanced_ns, checked_ns;  // when progress_watch last saw an advance, and last looked
    _Atomic int64_t busy_since_ns;    // when the queue was last empty and an operation started
};

typedef enum progress_armed {
    PROGRESS_NOT_ARMED,
    PROGRESS_ARMED,       // the listener is to be called, and no thread of the caller waits for it
    PROGRESS_ARMED_WAITS, // the listener is to be called, and a thread of the caller waits for it
} progress_armed;

static inline progress_comm *progress_of(tri_comm *comm) { return (progress_comm *)comm; }
static inline progress_item *progress_at(const progress_comm *comm, uint64_t index) {
    return &comm->queue[index & (comm->capacity - 1)];
}

#endif
