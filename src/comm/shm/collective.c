// A collective as a state machine: each call makes one bounded step, so that a waiting caller and
// the thread that advances operations in the background can take turns and neither blocks the
// other. A meeting is a point that all ranks of a communicator pass together. In a collective,
// ranks first announce their calls, each by an entry (shm_entry) in shared memory, and compare
// them. The copies and sums themselves are in work.c.
#include "comm/shm/collective.h"

#include "comm/op.h"
#include "comm/progress/describe.h"
#include "comm/progress/failure.h"
#include "comm/shm/bell.h"
#include "comm/shm/region.h"
#include "comm/shm/work.h"

#include <stdio.h>
#include <string.h>

bool shm_reached(const shm_comm *comm, int rank, uint64_t meeting) {
    return atomic_load(&comm->board->seats[rank].meetings) >= meeting;
}

static bool all_reached(const shm_comm *comm) {
    for (int r = 0; r < comm->base.head.size; r++)
        if (!shm_reached(comm, r, comm->meetings)) return false;
    return true;
}

// Enters the next meeting (layout.h). Another rank that sees the new number also sees everything
// that this rank wrote before, because atomic_store is sequentially consistent.
static void enter_meeting(shm_comm *comm) {
    comm->meetings++;
    atomic_store(&comm->board->seats[comm->base.head.rank].meetings, comm->meetings);
    shm_ring_all(comm);
}

static bool is_eager(const shm_comm *comm, const tri_comm_op *op) {
    int64_t bytes =
        tri_comm_send_count(op, comm->base.head.size) * (int64_t)tri_dtype_bytes(op->dtype);
    return bytes <= TRI_SHM_EAGER_BYTES;
}

static void announce(shm_comm *comm, const progress_item *item) {
    const tri_comm_op *op = &item->op;
    shm_entry *entry = shm_entry_of(comm, comm->base.head.rank, comm->meetings + 1);
    tri_comm_call_of(op, &entry->call);
    entry->sequence = item->sequence;
    comm->current.eager = op->kind == TRI_COMM_BARRIER || is_eager(comm, op);
    if (comm->current.eager) {
        shm_eager_send(comm, op, entry);
    } else {
        size_t width = tri_dtype_bytes(op->dtype);
        entry->send = shm_address_of(comm, op->send,
                                     (size_t)tri_comm_send_count(op, comm->base.head.size) * width);
        entry->recv = shm_address_of(comm, op->recv,
                                     (size_t)tri_comm_recv_count(op, comm->base.head.size) * width);
    }
    enter_meeting(comm);
}

static bool compare_entries(shm_comm *comm) {
    const shm_entry *mine = shm_entry_of(comm, comm->base.head.rank, comm->meetings);
    for (int r = 0; r < comm->base.head.size; r++) {
        const shm_entry *theirs = shm_entry_of(comm, r, comm->meetings);
        if (tri_comm_calls_agree(&mine->call, &theirs->call)) continue;
        progress_disagree(&comm->base, mine->sequence,
                          (progress_caller){.rank = comm->base.head.rank, .call = &mine->call},
                          (progress_caller){.rank = r, .call = &theirs->call});
        return false;
    }
    return true;
}

// Begins a window: the elements of the operation from `begin` on, as many as fit into staging
// memory.
static void begin_window(shm_comm *comm, const tri_comm_op *op, int64_t begin) {
    shm_current *current = &comm->current;
    int64_t capacity = shm_staging_capacity(comm, op);
    current->begin = begin;
    current->count = op->count - begin < capacity ? op->count - begin : capacity;
    current->cursor = 0;
    shm_staging_use(comm);
}

static progress_result meet(shm_comm *comm, const tri_comm_op *op) {
    shm_current *current = &comm->current;
    if (!all_reached(comm)) return PROGRESS_BLOCKED;
    if (!compare_entries(comm)) return PROGRESS_IDLE;
    if (current->eager) {
        shm_eager_apply(comm, op);
        current->state = SHM_DONE;
        return PROGRESS_ADVANCED;
    }
    current->begin = 0;
    current->count = op->count;
    current->cursor = 0;
    current->staged = !shm_addresses_known(comm);
    current->state = current->staged ? SHM_FILL : SHM_WORK;
    if (current->staged) begin_window(comm, op, 0);
    return PROGRESS_ADVANCED;
}

static progress_result work(shm_comm *comm, const tri_comm_op *op) {
    bool reduce = op->kind == TRI_COMM_ALL_REDUCE;
    progress_result progress = reduce ? shm_reduce_advance(comm, op) : shm_pull_advance(comm, op);
    if (progress == PROGRESS_ADVANCED) return progress;
    if (!reduce) enter_meeting(comm);
    comm->current.state = SHM_FINISH;
    return PROGRESS_ADVANCED;
}

static progress_result finish(shm_comm *comm, const tri_comm_op *op) {
    shm_current *current = &comm->current;
    bool reduce = op->kind == TRI_COMM_ALL_REDUCE;
    if (reduce ? !shm_reduce_finished(comm, op) : !all_reached(comm)) return PROGRESS_BLOCKED;
    if (current->staged && reduce) shm_staging_drain(comm, op);
    int64_t end = current->begin + current->count;
    current->state = end < op->count ? SHM_FILL : SHM_DONE;
    if (end < op->count) begin_window(comm, op, end);
    return PROGRESS_ADVANCED;
}

progress_result shm_collective_advance(shm_comm *comm, progress_item *item) {
    const tri_comm_op *op = &item->op;
    shm_current *current = &comm->current;
    switch (current->state) {
    case SHM_ANNOUNCE:
        announce(comm, item);
        current->state = SHM_MEET;
        return PROGRESS_ADVANCED;
    case SHM_MEET:
        return meet(comm, op);
    case SHM_FILL:
        shm_staging_fill(comm, op);
        enter_meeting(comm);
        current->state = SHM_READY;
        return PROGRESS_ADVANCED;
    case SHM_READY:
        if (!all_reached(comm)) return PROGRESS_BLOCKED;
        current->state = SHM_WORK;
        return PROGRESS_ADVANCED;
    case SHM_WORK:
        return work(comm, op);
    case SHM_FINISH:
        return finish(comm, op);
    case SHM_DONE:
        break;
    }
    return PROGRESS_ADVANCED;
}

bool shm_collective_rests(const shm_comm *comm) {
    return comm->current.eager && comm->current.state == SHM_MEET;
}

bool shm_collective_text(const shm_comm *comm, int rank, char *out, size_t size) {
    // `rank` announces its next collective by an entry at its next meeting. But while this rank is
    // still in a collective, that next meeting may be a later one of the same collective, for which
    // ranks write no entries.
    bool is_between = comm->current.state == SHM_ANNOUNCE;
    if (!is_between || !shm_reached(comm, rank, comm->meetings + 1)) return false;
    const shm_entry *entry = shm_entry_of(comm, rank, comm->meetings + 1);
    snprintf(out, size, "%s '%s'", tri_comm_kind_name((tri_comm_kind)entry->call.whole.kind),
             entry->call.label);
    return true;
}

bool shm_collective_awaits(const shm_comm *comm, const progress_item *item, int rank) {
    const shm_current *current = &comm->current;
    if (current->state == SHM_MEET || current->state == SHM_READY)
        return !shm_reached(comm, rank, comm->meetings);
    if (current->state != SHM_FINISH) return false;
    if (item->op.kind == TRI_COMM_ALL_REDUCE) return !shm_reduce_finished(comm, &item->op);
    return !shm_reached(comm, rank, comm->meetings);
}
