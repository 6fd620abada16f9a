// Operations in order: who carries them out, and how long a caller spins and sleeps. Sends and
// receives that follow each other advance side by side, and end in any order.
//
// Whoever sets `executing` may advance the operation at the head of the queue: the thread that
// waits for it, or the worker while nobody waits. Both do it in bounded pieces.
#include "comm/op.h"
#include "comm/shm/internal.h"

#include "base/os.h"

#include <stdlib.h>
#include <string.h>

enum { SHM_SPINS = 100 }; // some microseconds

bool shm_try_execute(shm_comm *comm) {
    if (atomic_load(&comm->executing)) return false;
    return !atomic_exchange_explicit(&comm->executing, 1, memory_order_acquire);
}

void shm_end_execute(shm_comm *comm) {
    atomic_store_explicit(&comm->executing, 0, memory_order_release);
}

void shm_hand_over(shm_comm *comm) {
    atomic_store(&comm->executing, 0);
    shm_ring(comm->family, comm->family->rank);
}

// Another thread may wait for what we carried out.
static void queue_tell_waiters(shm_comm *comm) {
    if (atomic_load(&comm->waiters) > 1) shm_ring(comm->family, comm->family->rank);
}

static void queue_complete(shm_comm *comm, uint64_t count) {
    memset(&comm->current, 0, offsetof(shm_current, from));
    atomic_fetch_add(&comm->completed, count);
    queue_tell_waiters(comm);
}

// The run of sends and receives at the head takes in those that were started since.
static void queue_take_pairs(shm_comm *comm, uint64_t head, uint64_t started) {
    for (uint64_t at = head + (uint64_t)comm->current.pairs; at < started; at++) {
        shm_pending *item = shm_at(comm, at);
        if (!tri_comm_kind_is_pair(item->op.kind)) break;
        item->mark = tri_comm_op_begin(&comm->head, &item->op, at + 1);
        comm->current.pairs++;
    }
}

// Takes the ones that are done off the head of the run.
static void queue_drop_pairs(shm_comm *comm, uint64_t head) {
    int done = 0;
    while (done < comm->current.pairs && shm_at(comm, head + (uint64_t)done)->done) done++;
    if (done == 0) return;
    int left = comm->current.pairs - done;
    queue_complete(comm, (uint64_t)done);
    comm->current.pairs = left;
}

// True when all of the ticket's group is done. Needs `lock`, or to have set `executing`.
static bool queue_group_done(shm_comm *comm, uint64_t ticket) {
    uint64_t completed = atomic_load_explicit(&comm->completed, memory_order_acquire);
    for (uint64_t i = ticket; i > completed && shm_at(comm, i - 1)->group == ticket; i--)
        if (!shm_at(comm, i - 1)->done) return false;
    return true;
}

// Without `patience`, false while somebody is at work on a piece.
static bool queue_is_over(shm_comm *comm, uint64_t ticket, bool patience) {
    if (atomic_load_explicit(&comm->completed, memory_order_acquire) >= ticket) return true;
    if (shm_failed(comm)) return true;
    if (patience)
        pthread_mutex_lock(&comm->lock);
    else if (pthread_mutex_trylock(&comm->lock))
        return false;
    bool done = queue_group_done(comm, ticket);
    pthread_mutex_unlock(&comm->lock);
    return done;
}

static shm_progress queue_step(shm_comm *comm) {
    uint64_t head = atomic_load_explicit(&comm->completed, memory_order_relaxed);
    uint64_t started = atomic_load_explicit(&comm->started, memory_order_acquire);
    if (head == started || shm_failed(comm)) return SHM_IDLE;
    shm_pending *first = shm_at(comm, head);
    if (!tri_comm_kind_is_pair(first->op.kind)) {
        shm_progress progress = shm_collective_advance(comm, first);
        if (comm->current.phase == SHM_DONE) {
            tri_ledger_end(comm->head.ledger, first->mark);
            queue_complete(comm, 1);
        }
        return progress;
    }
    queue_take_pairs(comm, head, started);
    shm_progress progress = shm_pairs_advance(comm);
    queue_drop_pairs(comm, head);
    if (progress == SHM_MOVED) queue_tell_waiters(comm);
    return progress;
}

shm_progress shm_advance(shm_comm *comm) {
    // The lock keeps `start` from moving the queue; it is never held over a wait.
    pthread_mutex_lock(&comm->lock);
    shm_progress progress = queue_step(comm);
    pthread_mutex_unlock(&comm->lock);
    if (progress == SHM_MOVED) comm->moves++;
    return progress;
}

static tri_status queue_grow(shm_comm *comm, uint64_t needed) {
    if (needed <= comm->capacity) return TRI_OK;
    uint64_t capacity = comm->capacity;
    while (capacity < needed) capacity *= 2;
    shm_pending *queue = calloc(capacity, sizeof *queue);
    if (!queue)
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for %llu operations", (unsigned long long)needed);
    uint64_t started = atomic_load(&comm->started);
    for (uint64_t i = atomic_load(&comm->completed); i < started; i++)
        queue[i % capacity] = *shm_at(comm, i);
    free(comm->queue);
    comm->queue = queue;
    comm->capacity = capacity;
    return TRI_OK;
}

static tri_status queue_push(shm_comm *comm, const tri_comm_op *ops, int count) {
    uint64_t started = atomic_load(&comm->started), completed = atomic_load(&comm->completed);
    TRI_TRY(queue_grow(comm, started - completed + (uint64_t)count));
    for (int i = 0; i < count; i++)
        *shm_at(comm, started + (uint64_t)i) =
            (shm_pending){.op = ops[i], .group = started + (uint64_t)count};
    atomic_store_explicit(&comm->started, started + (uint64_t)count, memory_order_release);
    return TRI_OK;
}

// An operation whose data went out with its announcement needs nobody until it is waited for.
static bool queue_needs_worker(shm_comm *comm) {
    return !(comm->current.eager && comm->current.phase == SHM_MEET);
}

tri_status shm_start(tri_comm *head, const tri_comm_op *ops, int count, tri_comm_ticket *out) {
    shm_comm *comm = shm_of(head);
    *out = (tri_comm_ticket){atomic_load(&comm->started)};
    if (shm_failed(comm)) return shm_failure_status(comm);
    bool waits = count > 0;
    for (int i = 0; i < count; i++) {
        tri_status status = tri_comm_op_check(head, &ops[i]);
        if (status) {
            shm_fail(comm, status, "rank %d: %s", comm->world[head->rank], tri_error_message());
            return status;
        }
        waits = waits && ops[i].waits;
    }
    pthread_mutex_lock(&comm->lock);
    if (atomic_load(&comm->started) == atomic_load(&comm->completed))
        atomic_store(&comm->asked_ns, tri_os.monotonic_ns());
    tri_status status = queue_push(comm, ops, count);
    uint64_t started = atomic_load(&comm->started);
    pthread_mutex_unlock(&comm->lock);
    TRI_TRY(status);
    *out = (tri_comm_ticket){started};
    bool alone = true;
    if (shm_try_execute(comm)) {
        shm_advance(comm); // announces it if it is the first
        uint64_t left = started - atomic_load(&comm->completed);
        alone = left == 0 || (left == 1 && !queue_needs_worker(comm));
        shm_hand_over(comm);
    } else {
        alone = false;
    }
    if (!alone && !waits) {
        atomic_store(&comm->behind, started);
        shm_worker_wake(comm->family);
    }
    return TRI_OK;
}

bool shm_test(tri_comm *head, tri_comm_ticket ticket) {
    shm_comm *comm = shm_of(head);
    if (queue_is_over(comm, ticket.value, false)) return true;
    if (shm_try_execute(comm)) {
        shm_advance(comm);
        shm_hand_over(comm);
    }
    return queue_is_over(comm, ticket.value, false);
}

static void queue_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

typedef struct queue_patience {
    int spins;
    int64_t since_ns; // 0: not begun
} queue_patience;

// Spins for a moment, then leaves the core to others who want it, then gives up. Somebody else's
// program may sit on the core that our peer needs, so spinning on would delay what we wait for.
static bool queue_may_spin(shm_comm *comm, queue_patience *patience) {
    if (!comm->family->can_spin) return false;
    if (patience->spins < SHM_SPINS) {
        patience->spins++;
        queue_pause();
        return true;
    }
    int64_t now = tri_os.monotonic_ns();
    if (!patience->since_ns) patience->since_ns = now;
    sched_yield();
    return now - patience->since_ns < TRI_SHM_YIELD_US * 1000;
}

// Sleeps until somebody rings, unless there is something to do after all.
static shm_progress queue_sleep(shm_comm *comm, uint64_t ticket) {
    uint32_t seen = shm_sleep_begin(comm->family);
    shm_progress progress = SHM_BLOCKED;
    if (shm_try_execute(comm)) {
        progress = shm_advance(comm);
        if (progress == SHM_BLOCKED) shm_watch(comm);
        shm_end_execute(comm);
    }
    bool over = queue_is_over(comm, ticket, true);
    if (progress == SHM_BLOCKED && !over) shm_sleep(comm->family, seen, TRI_SHM_CHECK_MS);
    shm_sleep_end(comm->family);
    return progress;
}

// The wait as an action of the thread that computes.
static tri_ledger_mark queue_begin_wait(shm_comm *comm, uint64_t ticket) {
    if (!tri_ledger_computes(comm->head.ledger)) return (tri_ledger_mark){0};
    pthread_mutex_lock(&comm->lock);
    bool pending = ticket > atomic_load(&comm->completed);
    const char *label = pending ? shm_at(comm, ticket - 1)->op.label : NULL;
    pthread_mutex_unlock(&comm->lock);
    return tri_ledger_begin(comm->head.ledger, &(tri_ledger_action){.kind = TRI_LEDGER_WAIT,
                                                                    .label = label,
                                                                    .lane = TRI_LANE_OF_COMPUTE,
                                                                    .subject = -1,
                                                                    .round = -1,
                                                                    .sequence = ticket});
}

tri_status shm_wait(tri_comm *head, tri_comm_ticket ticket) {
    shm_comm *comm = shm_of(head);
    TRI_ASSERT(ticket.value <= atomic_load(&comm->started));
    queue_patience patience = {0};
    tri_ledger_mark waits = {0};
    if (!queue_is_over(comm, ticket.value, true)) waits = queue_begin_wait(comm, ticket.value);
    atomic_fetch_add(&comm->waiters, 1);
    while (!queue_is_over(comm, ticket.value, true)) {
        shm_progress progress = SHM_BLOCKED;
        if (shm_try_execute(comm)) {
            progress = shm_advance(comm);
            shm_end_execute(comm);
        }
        if (progress == SHM_BLOCKED) {
            if (queue_may_spin(comm, &patience)) continue;
            progress = queue_sleep(comm, ticket.value);
        }
        if (progress == SHM_MOVED) patience = (queue_patience){0};
    }
    // A thread that found us at work went to sleep, and what is left is now its own to carry out.
    if (atomic_fetch_sub(&comm->waiters, 1) > 1) shm_ring(comm->family, comm->family->rank);
    tri_ledger_end(head->ledger, waits);
    if (atomic_load_explicit(&shm_me(comm->family)->awaits, memory_order_relaxed))
        atomic_store(&shm_me(comm->family)->awaits, 0);
    if (atomic_load(&comm->behind) > atomic_load(&comm->completed)) shm_worker_wake(comm->family);
    pthread_mutex_lock(&comm->lock);
    bool done = queue_group_done(comm, ticket.value);
    pthread_mutex_unlock(&comm->lock);
    if (done) return TRI_OK;
    // Nobody of this process touches the buffers of a failed operation once this returned.
    while (!shm_try_execute(comm)) queue_pause();
    shm_end_execute(comm);
    return shm_failure_status(comm);
}
