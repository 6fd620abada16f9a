// Start, test and wait: who advances an operation, and how long a caller spins before it sleeps.
#include "comm/shm/operation.h"

#include "base/os.h"
#include "comm/op.h"
#include "comm/shm/bell.h"
#include "comm/shm/failure.h"
#include "comm/shm/queue.h"
#include "comm/shm/watch.h"
#include "comm/shm/worker.h"

enum { SPINS_BEFORE_YIELD = 100 }; // some microseconds

typedef enum lock_use { LOCK_WAITS, LOCK_ONLY_IF_FREE } lock_use;

// True when the group is done or the communicator failed. LOCK_ONLY_IF_FREE: also false while
// another thread advances the queue.
static bool is_over(shm_comm *comm, uint64_t ticket, lock_use use) {
    if (atomic_load_explicit(&comm->completed, memory_order_acquire) >= ticket) return true;
    if (shm_has_failed(comm)) return true;
    if (use == LOCK_WAITS)
        pthread_mutex_lock(&comm->lock);
    else if (pthread_mutex_trylock(&comm->lock))
        return false;
    bool done = shm_queue_group_done(comm, ticket);
    pthread_mutex_unlock(&comm->lock);
    return done;
}

// An operation whose data went with its announcement needs no worker until a thread waits for it.
static bool needs_worker(shm_comm *comm) {
    return !(comm->current.eager && comm->current.state == SHM_MEET);
}

tri_status shm_start(tri_comm *head, const tri_comm_op *ops, int count, tri_comm_ticket *out) {
    shm_comm *comm = shm_of(head);
    *out = (tri_comm_ticket){atomic_load(&comm->started)};
    if (shm_has_failed(comm)) return shm_failure_status(comm);
    bool waits_at_once = count > 0;
    for (int i = 0; i < count; i++) {
        tri_status status = tri_comm_op_check(head, &ops[i]);
        if (status) {
            shm_fail(comm, status, "rank %d: %s", comm->world_rank[head->rank],
                     tri_error_message());
            return status;
        }
        waits_at_once = waits_at_once && ops[i].waits_at_once;
    }
    pthread_mutex_lock(&comm->lock);
    if (atomic_load(&comm->started) == atomic_load(&comm->completed))
        atomic_store(&comm->busy_since_ns, tri_os.monotonic_ns());
    tri_status status = shm_queue_push(comm, ops, count);
    uint64_t started = atomic_load(&comm->started);
    pthread_mutex_unlock(&comm->lock);
    TRI_TRY(status);
    *out = (tri_comm_ticket){started};
    bool needs_nothing = false;
    if (shm_try_execute(comm)) {
        shm_advance(comm); // announces the operation if it is at the head
        uint64_t left = started - atomic_load(&comm->completed);
        needs_nothing = left == 0 || (left == 1 && !needs_worker(comm));
        shm_end_execute_and_wake(comm);
    }
    if (!needs_nothing && !waits_at_once) {
        atomic_store(&comm->worker_target, started);
        shm_worker_wake(comm->family);
    }
    return TRI_OK;
}

bool shm_test(tri_comm *head, tri_comm_ticket ticket) {
    shm_comm *comm = shm_of(head);
    if (is_over(comm, ticket.value, LOCK_ONLY_IF_FREE)) return true;
    if (shm_try_execute(comm)) {
        shm_advance(comm);
        shm_end_execute_and_wake(comm);
    }
    return is_over(comm, ticket.value, LOCK_ONLY_IF_FREE);
}

static void pause_core(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

typedef struct spin_state {
    int spins;
    int64_t since_ns; // 0: not begun
} spin_state;

// Spins for a moment, then yields the core, and returns false after TRI_SHM_YIELD_US. The peer may
// need this core because another program runs on its own; to spin on would delay what we wait for.
static bool may_spin(shm_comm *comm, spin_state *spin) {
    if (!comm->family->can_spin) return false;
    if (spin->spins < SPINS_BEFORE_YIELD) {
        spin->spins++;
        pause_core();
        return true;
    }
    int64_t now = tri_os.monotonic_ns();
    if (!spin->since_ns) spin->since_ns = now;
    sched_yield();
    return now - spin->since_ns < TRI_SHM_YIELD_US * 1000;
}

// Sleeps until a rank rings, unless the operation can advance after all.
static shm_progress sleep_blocked(shm_comm *comm, uint64_t ticket) {
    uint32_t seen = shm_sleep_begin(comm->family);
    shm_progress progress = SHM_BLOCKED;
    if (shm_try_execute(comm)) {
        progress = shm_advance(comm);
        if (progress == SHM_BLOCKED) shm_watch(comm);
        shm_end_execute(comm);
    }
    bool over = is_over(comm, ticket, LOCK_WAITS);
    if (progress == SHM_BLOCKED && !over) shm_sleep(comm->family, seen, TRI_SHM_CHECK_MS);
    shm_sleep_end(comm->family);
    return progress;
}

// Records the wait in the ledger if the calling thread is the one that computes.
static tri_ledger_mark record_wait(shm_comm *comm, uint64_t ticket) {
    if (!tri_ledger_is_compute_thread(comm->head.ledger)) return (tri_ledger_mark){0};
    pthread_mutex_lock(&comm->lock);
    bool pending = ticket > atomic_load(&comm->completed);
    const char *label = pending ? shm_queue_at(comm, ticket - 1)->op.label : NULL;
    pthread_mutex_unlock(&comm->lock);
    return tri_ledger_begin(comm->head.ledger, &(tri_ledger_action){.kind = TRI_LEDGER_WAIT,
                                                                    .label = label,
                                                                    .lane = TRI_LANE_OF_COMPUTE,
                                                                    .subject = TRI_LEDGER_NONE,
                                                                    .round = TRI_LEDGER_NONE,
                                                                    .sequence = ticket});
}

tri_status shm_wait(tri_comm *head, tri_comm_ticket ticket) {
    shm_comm *comm = shm_of(head);
    TRI_ASSERT(ticket.value <= atomic_load(&comm->started));
    spin_state spin = {0};
    tri_ledger_mark mark = {0};
    if (!is_over(comm, ticket.value, LOCK_WAITS)) mark = record_wait(comm, ticket.value);
    atomic_fetch_add(&comm->waiters, 1);
    while (!is_over(comm, ticket.value, LOCK_WAITS)) {
        shm_progress progress = SHM_BLOCKED;
        if (shm_try_execute(comm)) {
            progress = shm_advance(comm);
            shm_end_execute(comm);
        }
        if (progress == SHM_BLOCKED) {
            if (may_spin(comm, &spin)) continue;
            progress = sleep_blocked(comm, ticket.value);
        }
        if (progress == SHM_ADVANCED) spin = (spin_state){0};
    }
    // Another thread may have gone to sleep because it found us executing; now it has to advance
    // its own operation.
    if (atomic_fetch_sub(&comm->waiters, 1) > 1) shm_ring(comm->family, comm->family->rank);
    tri_ledger_end(head->ledger, mark);
    shm_clear_awaited(comm->family);
    if (atomic_load(&comm->worker_target) > atomic_load(&comm->completed))
        shm_worker_wake(comm->family);
    pthread_mutex_lock(&comm->lock);
    bool done = shm_queue_group_done(comm, ticket.value);
    pthread_mutex_unlock(&comm->lock);
    if (done) return TRI_OK;
    // When this returns, no thread of this process touches the buffers of the failed operation.
    while (!shm_try_execute(comm)) pause_core();
    shm_end_execute(comm);
    return shm_failure_status(comm);
}
