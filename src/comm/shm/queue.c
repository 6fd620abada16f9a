// The operations of a communicator in order. A collective is at the head alone; sends and receives
// that follow each other advance side by side, and end in any order.
#include "comm/shm/queue.h"

#include "comm/op.h"
#include "comm/shm/bell.h"
#include "comm/shm/collective.h"
#include "comm/shm/failure.h"
#include "comm/shm/pair.h"

#include <stdlib.h>
#include <string.h>

bool shm_try_execute(shm_comm *comm) {
    if (atomic_load(&comm->executing)) return false;
    return !atomic_exchange_explicit(&comm->executing, 1, memory_order_acquire);
}

void shm_end_execute(shm_comm *comm) {
    atomic_store_explicit(&comm->executing, 0, memory_order_release);
}

void shm_end_execute_and_wake(shm_comm *comm) {
    atomic_store(&comm->executing, 0);
    shm_ring(comm->family, comm->family->rank);
}

// Wakes threads of this process that wait for what was just carried out.
static void queue_wake_waiters(shm_comm *comm) {
    if (atomic_load(&comm->waiters) > 1) shm_ring(comm->family, comm->family->rank);
}

static void queue_complete(shm_comm *comm, uint64_t count) {
    memset(&comm->current, 0, offsetof(shm_current, from));
    atomic_fetch_add(&comm->completed, count);
    queue_wake_waiters(comm);
}

// Adds the sends and receives that were started since to those at the head.
static void queue_take_pairs(shm_comm *comm, uint64_t head, uint64_t started) {
    for (uint64_t i = head + (uint64_t)comm->current.pair_count; i < started; i++) {
        shm_pending *item = shm_queue_at(comm, i);
        if (!tri_comm_kind_is_pair(item->op.kind)) break;
        item->mark = tri_comm_op_begin(&comm->head, &item->op, i + 1);
        comm->current.pair_count++;
    }
}

// Removes the ones at the front that are done.
static void queue_drop_pairs(shm_comm *comm, uint64_t head) {
    int done = 0;
    while (done < comm->current.pair_count && shm_queue_at(comm, head + (uint64_t)done)->done)
        done++;
    if (done == 0) return;
    int left = comm->current.pair_count - done;
    queue_complete(comm, (uint64_t)done);
    comm->current.pair_count = left;
}

bool shm_queue_group_done(shm_comm *comm, uint64_t ticket) {
    uint64_t completed = atomic_load_explicit(&comm->completed, memory_order_acquire);
    for (uint64_t i = ticket; i > completed && shm_queue_at(comm, i - 1)->group_ticket == ticket;
         i--)
        if (!shm_queue_at(comm, i - 1)->done) return false;
    return true;
}

static shm_progress queue_step(shm_comm *comm) {
    uint64_t head = atomic_load_explicit(&comm->completed, memory_order_relaxed);
    uint64_t started = atomic_load_explicit(&comm->started, memory_order_acquire);
    if (head == started || shm_has_failed(comm)) return SHM_IDLE;
    shm_pending *first = shm_queue_at(comm, head);
    if (!tri_comm_kind_is_pair(first->op.kind)) {
        shm_progress progress = shm_collective_advance(comm, first);
        if (comm->current.state == SHM_DONE) {
            tri_ledger_end(comm->head.ledger, first->mark);
            queue_complete(comm, 1);
        }
        return progress;
    }
    queue_take_pairs(comm, head, started);
    shm_progress progress = shm_pairs_advance(comm);
    queue_drop_pairs(comm, head);
    if (progress == SHM_ADVANCED) queue_wake_waiters(comm);
    return progress;
}

shm_progress shm_advance(shm_comm *comm) {
    // The lock keeps `start` from reallocating the queue; no thread waits for another rank under
    // it.
    pthread_mutex_lock(&comm->lock);
    shm_progress progress = queue_step(comm);
    pthread_mutex_unlock(&comm->lock);
    if (progress == SHM_ADVANCED) comm->advances++;
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
        queue[i % capacity] = *shm_queue_at(comm, i);
    free(comm->queue);
    comm->queue = queue;
    comm->capacity = capacity;
    return TRI_OK;
}

tri_status shm_queue_push(shm_comm *comm, const tri_comm_op *ops, int count) {
    uint64_t started = atomic_load(&comm->started), completed = atomic_load(&comm->completed);
    TRI_TRY(queue_grow(comm, started - completed + (uint64_t)count));
    for (int i = 0; i < count; i++)
        *shm_queue_at(comm, started + (uint64_t)i) =
            (shm_pending){.op = ops[i], .group_ticket = started + (uint64_t)count};
    atomic_store_explicit(&comm->started, started + (uint64_t)count, memory_order_release);
    return TRI_OK;
}
