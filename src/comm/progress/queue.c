// Carries out a communicator's operations in order. A collective advances alone, when it is at the
// head of the queue. Consecutive sends and receives advance side by side, so that two ranks may
// send to each other before either receives; messages from one rank to another stay in order.
#include "comm/progress/queue.h"

#include "comm/op.h"
#include "comm/progress/failure.h"

#include <stdlib.h>

bool progress_try_execute(progress_comm *comm) {
    if (atomic_load(&comm->executing)) return false;
    return !atomic_exchange_explicit(&comm->executing, 1, memory_order_acquire);
}

void progress_end_execute(progress_comm *comm) {
    atomic_store_explicit(&comm->executing, 0, memory_order_release);
}

void progress_end_execute_and_wake(progress_comm *comm) {
    atomic_store(&comm->executing, 0);
    comm->family->backend->wake(comm->family);
}

void progress_call_listener(progress_comm *comm) {
    if (!atomic_load(&comm->armed) || !atomic_exchange(&comm->armed, PROGRESS_NOT_ARMED)) return;
    atomic_load (&comm->listener)(atomic_load(&comm->listener_context));
}

// Called when this thread has advanced operations: wakes the threads of this process that wait for
// operations, and calls the function that progress_notify was given.
static void wake_waiters(progress_comm *comm) {
    if (atomic_load(&comm->waiters) > 1) comm->family->backend->wake(comm->family);
    progress_call_listener(comm);
}

static void complete(progress_comm *comm, uint64_t count) {
    atomic_fetch_add(&comm->completed, count);
    wake_waiters(comm);
}

static void begin(progress_comm *comm, progress_item *item) {
    item->mark = tri_comm_op_begin(&comm->head, &item->op, item->sequence);
    item->begun = true;
}

static void end(progress_comm *comm, progress_item *item) {
    tri_ledger_end(comm->head.ledger, item->mark);
    free(item->state);
    item->state = NULL;
}

progress_item *progress_message(const progress_comm *comm, int index) {
    return progress_at(comm, atomic_load_explicit(&comm->completed, memory_order_relaxed) +
                                 (uint64_t)index);
}

// Begins the sends and receives that directly follow those already under way at the head of the
// queue, so that all of them advance side by side.
static void take_messages(progress_comm *comm, uint64_t head, uint64_t started) {
    for (uint64_t i = head + (uint64_t)comm->messages; i < started; i++) {
        progress_item *item = progress_at(comm, i);
        if (!tri_comm_kind_is_message(item->op.kind)) break;
        begin(comm, item);
        comm->messages++;
    }
}

// Removes finished sends and receives from the front of the queue, up to the first one that is not
// finished: `completed` counts operations in queue order, so it cannot skip one.
static void drop_messages(progress_comm *comm) {
    int done = 0;
    while (done < comm->messages && progress_message(comm, done)->done) done++;
    if (done == 0) return;
    comm->messages -= done;
    complete(comm, (uint64_t)done);
}

static bool is_next(const progress_comm *comm, int index) {
    const progress_item *item = progress_message(comm, index);
    for (int i = 0; i < index; i++) {
        const progress_item *before = progress_message(comm, i);
        if (!before->done && before->op.kind == item->op.kind && before->op.peer == item->op.peer)
            return false;
    }
    return true;
}

static progress_result advance_messages(progress_comm *comm) {
    bool advanced = false;
    for (int i = 0; i < comm->messages && !progress_has_failed(comm); i++) {
        progress_item *item = progress_message(comm, i);
        if (item->done || !is_next(comm, i)) continue;
        advanced |= comm->family->backend->advance(comm, item) == PROGRESS_ADVANCED;
        if (item->done) end(comm, item);
    }
    return advanced ? PROGRESS_ADVANCED : PROGRESS_BLOCKED;
}

bool progress_group_done(const progress_comm *comm, uint64_t ticket) {
    uint64_t completed = atomic_load_explicit(&comm->completed, memory_order_acquire);
    for (uint64_t i = ticket; i > completed && progress_at(comm, i - 1)->group_ticket == ticket;
         i--)
        if (!progress_at(comm, i - 1)->done) return false;
    return true;
}

static progress_result advance_collective(progress_comm *comm, progress_item *item) {
    if (!item->begun) begin(comm, item);
    progress_result result = comm->family->backend->advance(comm, item);
    if (item->done) {
        end(comm, item);
        complete(comm, 1);
    }
    return result;
}

static progress_result advance_head(progress_comm *comm) {
    uint64_t head = atomic_load_explicit(&comm->completed, memory_order_relaxed);
    uint64_t started = atomic_load_explicit(&comm->started, memory_order_acquire);
    if (head == started || progress_has_failed(comm)) return PROGRESS_IDLE;
    progress_item *first = progress_at(comm, head);
    if (!tri_comm_kind_is_message(first->op.kind)) return advance_collective(comm, first);
    take_messages(comm, head, started);
    progress_result result = advance_messages(comm);
    drop_messages(comm);
    if (result == PROGRESS_ADVANCED) wake_waiters(comm);
    return result;
}

progress_result progress_advance(progress_comm *comm) {
    // The lock keeps `start`, which may be called meanwhile, from reallocating the queue. Nobody
    // holds the lock for long, because no thread waits for another rank while it has the lock.
    pthread_mutex_lock(&comm->lock);
    progress_result result = advance_head(comm);
    pthread_mutex_unlock(&comm->lock);
    if (result == PROGRESS_ADVANCED) comm->advances++;
    return result;
}

static tri_status grow(progress_comm *comm, uint64_t needed) {
    if (needed <= comm->capacity) return TRI_OK;
    uint64_t capacity = comm->capacity;
    while (capacity < needed) capacity *= 2;
    progress_item *queue = calloc(capacity, sizeof *queue);
    if (!queue)
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for %llu operations", (unsigned long long)needed);
    uint64_t started = atomic_load(&comm->started);
    for (uint64_t i = atomic_load(&comm->completed); i < started; i++)
        queue[i & (capacity - 1)] = *progress_at(comm, i);
    free(comm->queue);
    comm->queue = queue;
    comm->capacity = capacity;
    return TRI_OK;
}

tri_status progress_push(progress_comm *comm, const tri_comm_op *ops, int count) {
    uint64_t started = atomic_load(&comm->started), completed = atomic_load(&comm->completed);
    TRI_TRY(grow(comm, started - completed + (uint64_t)count));
    for (int i = 0; i < count; i++)
        *progress_at(comm, started + (uint64_t)i) =
            (progress_item){.op = ops[i],
                            .sequence = started + (uint64_t)i + 1,
                            .group_ticket = started + (uint64_t)count};
    atomic_store_explicit(&comm->started, started + (uint64_t)count, memory_order_release);
    return TRI_OK;
}
