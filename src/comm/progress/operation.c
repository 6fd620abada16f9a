// Starts operations, tests them and waits for them: decides which thread advances an operation, and
// when a caller sleeps.
#include "comm/progress/operation.h"

#include "base/limits.h"
#include "base/os.h"
#include "comm/op.h"
#include "comm/progress/failure.h"
#include "comm/progress/queue.h"
#include "comm/progress/spin.h"
#include "comm/progress/thread.h"
#include "comm/progress/watch.h"

typedef enum lock_use { LOCK_WAITS, LOCK_ONLY_IF_FREE } lock_use;

// True when the operation group is done or the communicator has failed. LOCK_ONLY_IF_FREE: returns
// false while another thread advances the queue, so that `test` never blocks.
static bool is_over(progress_comm *comm, uint64_t ticket, lock_use use) {
    if (atomic_load_explicit(&comm->completed, memory_order_acquire) >= ticket) return true;
    if (progress_has_failed(comm)) return true;
    if (use == LOCK_WAITS)
        pthread_mutex_lock(&comm->lock);
    else if (pthread_mutex_trylock(&comm->lock))
        return false;
    bool done = progress_group_done(comm, ticket);
    pthread_mutex_unlock(&comm->lock);
    return done;
}

static bool rests(const progress_comm *comm) {
    return comm->family->backend->rests && comm->family->backend->rests(comm);
}

static tri_status check(progress_comm *comm, const tri_comm_op *op) {
    tri_status status = tri_comm_op_check(&comm->head, op);
    if (status != TRI_OK)
        progress_fail(comm, status, "rank %d: %s", comm->job_rank[comm->head.rank],
                      tri_error_message());
    return status;
}

tri_status progress_start(tri_comm *head, const tri_comm_op *ops, int count, tri_comm_ticket *out) {
    progress_comm *comm = progress_of(head);
    *out = (tri_comm_ticket){atomic_load(&comm->started)};
    if (progress_has_failed(comm)) return progress_failure_status(comm);
    bool waits_at_once = count > 0;
    for (int i = 0; i < count; i++) {
        TRI_TRY(check(comm, &ops[i]));
        waits_at_once = waits_at_once && ops[i].waits_at_once;
    }
    pthread_mutex_lock(&comm->lock);
    if (atomic_load(&comm->started) == atomic_load(&comm->completed))
        atomic_store(&comm->busy_since_ns, tri_os.monotonic_ns());
    tri_status status = progress_push(comm, ops, count);
    uint64_t started = atomic_load(&comm->started);
    pthread_mutex_unlock(&comm->lock);
    TRI_TRY(status);
    *out = (tri_comm_ticket){started};
    bool needs_nothing = false;
    if (progress_try_execute(comm)) {
        // If the first of these operations is at the head of the queue, progress_advance announces
        // that operation to the other ranks.
        progress_advance(comm);
        uint64_t left = started - atomic_load(&comm->completed);
        needs_nothing = left == 0 || (left == 1 && rests(comm));
        progress_end_execute_and_wake(comm);
    }
    if (!needs_nothing && !waits_at_once) {
        atomic_store(&comm->thread_target, started);
        progress_thread_wake(comm->family);
    }
    return TRI_OK;
}

bool progress_test(tri_comm *head, tri_comm_ticket ticket) {
    progress_comm *comm = progress_of(head);
    if (is_over(comm, ticket.value, LOCK_ONLY_IF_FREE)) return true;
    if (progress_try_execute(comm)) {
        progress_advance(comm);
        progress_end_execute_and_wake(comm);
    }
    return is_over(comm, ticket.value, LOCK_ONLY_IF_FREE);
}

void progress_notify(tri_comm *head, void (*wake)(void *context), void *context, bool waits) {
    progress_comm *comm = progress_of(head);
    atomic_store(&comm->listener_context, context);
    atomic_store(&comm->listener, wake);
    atomic_store(&comm->armed, waits ? PROGRESS_ARMED_WAITS : PROGRESS_ARMED);
    uint64_t started = atomic_load(&comm->started);
    if (atomic_load(&comm->completed) < started && !progress_has_failed(comm)) {
        atomic_store(&comm->thread_target, started);
        progress_thread_wake(comm->family);
    } else {
        progress_call_listener(comm);
    }
}

// Sleeps until the backend wakes this thread, or TRI_COMM_CHECK_MS have passed. It first announces
// its sleep and then tries once more to advance the operation, so that no wake is lost.
static progress_result sleep_blocked(progress_comm *comm, uint64_t ticket) {
    const progress_backend *backend = comm->family->backend;
    uint32_t seen = backend->sleep_begin(comm->family);
    progress_result result = PROGRESS_BLOCKED;
    if (progress_try_execute(comm)) {
        result = progress_advance(comm);
        if (result == PROGRESS_BLOCKED) progress_watch(comm);
        progress_end_execute(comm);
    }
    bool over = is_over(comm, ticket, LOCK_WAITS);
    if (result == PROGRESS_BLOCKED && !over) backend->sleep(comm->family, seen, TRI_COMM_CHECK_MS);
    backend->sleep_end(comm->family);
    return result;
}

// Records the wait in the ledger of this rank's actions, but only if the calling thread is the one
// that runs the training steps: a wait of any other thread costs the rank no time.
static tri_ledger_mark record_wait(progress_comm *comm, uint64_t ticket) {
    if (!tri_ledger_is_compute_thread(comm->head.ledger)) return (tri_ledger_mark){0};
    pthread_mutex_lock(&comm->lock);
    bool pending = ticket > atomic_load(&comm->completed);
    const char *label = pending ? progress_at(comm, ticket - 1)->op.label : NULL;
    pthread_mutex_unlock(&comm->lock);
    return tri_ledger_begin(comm->head.ledger, &(tri_ledger_action){.kind = TRI_LEDGER_WAIT,
                                                                    .label = label,
                                                                    .lane = TRI_LANE_OF_COMPUTE,
                                                                    .subject = TRI_LEDGER_NONE,
                                                                    .round = TRI_LEDGER_NONE,
                                                                    .sequence = ticket});
}

// Advances operations, spins and sleeps until the operation group is done or has failed.
static void wait_until_over(progress_comm *comm, uint64_t ticket) {
    progress_spin spin = {0};
    while (!is_over(comm, ticket, LOCK_WAITS)) {
        progress_result result = PROGRESS_BLOCKED;
        if (progress_try_execute(comm)) {
            result = progress_advance(comm);
            progress_end_execute(comm);
        }
        if (result == PROGRESS_BLOCKED) {
            if (progress_spin_on(comm->family, &spin)) continue;
            result = sleep_blocked(comm, ticket);
        }
        if (result == PROGRESS_ADVANCED) spin = (progress_spin){0};
    }
}

tri_status progress_wait(tri_comm *head, tri_comm_ticket ticket) {
    progress_comm *comm = progress_of(head);
    progress_family *family = comm->family;
    TRI_ASSERT(ticket.value <= atomic_load(&comm->started));
    tri_ledger_mark mark = {0};
    if (!is_over(comm, ticket.value, LOCK_WAITS)) mark = record_wait(comm, ticket.value);
    atomic_fetch_add(&comm->waiters, 1);
    wait_until_over(comm, ticket.value);
    // Another thread that waits may have gone to sleep because this thread was advancing
    // operations. The sleeping thread now has to wake and advance its own operation.
    if (atomic_fetch_sub(&comm->waiters, 1) > 1) family->backend->wake(family);
    tri_ledger_end(head->ledger, mark);
    progress_clear_awaited(family);
    if (atomic_load(&comm->thread_target) > atomic_load(&comm->completed))
        progress_thread_wake(family);
    pthread_mutex_lock(&comm->lock);
    bool done = progress_group_done(comm, ticket.value);
    pthread_mutex_unlock(&comm->lock);
    if (done) return TRI_OK;
    // Returns only when no thread of this process touches the buffers of the failed operation, so
    // that the caller may free them.
    while (!progress_try_execute(comm)) progress_pause();
    if (family->backend->quiesce) family->backend->quiesce(comm);
    progress_end_execute(comm);
    return progress_failure_status(comm);
}
