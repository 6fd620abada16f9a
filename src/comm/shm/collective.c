// A collective operation as a machine of phases; each call makes one bounded step or says what it
// waits for by SHM_BLOCKED.
#include "comm/op.h"
#include "comm/shm/internal.h"

#include <stdio.h>
#include <string.h>

bool shm_reached(const shm_comm *comm, int rank, uint64_t step) {
    return atomic_load(&comm->board->seats[rank].step) >= step;
}

static bool all_reached(const shm_comm *comm) {
    for (int r = 0; r < comm->head.size; r++)
        if (!shm_reached(comm, r, comm->step)) return false;
    return true;
}

// Raises our step: what was written before is for everybody to see.
static void announce_step(shm_comm *comm) {
    comm->step++;
    atomic_store(&comm->board->seats[comm->head.rank].step, comm->step);
    shm_ring_all(comm);
}

static shm_entry *entry_of(const shm_comm *comm, int rank, uint64_t step) {
    return &comm->board->seats[rank].entries[step & 1];
}

static bool is_eager(const shm_comm *comm, const tri_comm_op *op) {
    int64_t bytes = tri_comm_send_count(op, comm->head.size) * (int64_t)tri_dtype_bytes(op->dtype);
    return bytes <= TRI_SHM_EAGER_BYTES;
}

static void announce(shm_comm *comm, shm_pending *pending) {
    const tri_comm_op *op = &pending->op;
    shm_entry *entry = entry_of(comm, comm->head.rank, comm->step + 1);
    entry->kind = op->kind;
    entry->dtype = op->dtype;
    entry->reduction = op->reduction;
    entry->accumulate = op->accumulate;
    entry->wire = op->wire;
    entry->root = op->root;
    entry->count = op->count;
    entry->sequence = atomic_load_explicit(&comm->completed, memory_order_relaxed) + 1;
    snprintf(entry->label, sizeof entry->label, "%s", op->label ? op->label : "");
    comm->current.eager = op->kind == TRI_COMM_BARRIER || is_eager(comm, op);
    if (comm->current.eager) {
        shm_eager_send(comm, op, entry);
    } else {
        size_t width = tri_dtype_bytes(op->dtype);
        entry->send =
            shm_place_of(comm, op->send, (size_t)tri_comm_send_count(op, comm->head.size) * width);
        entry->recv =
            shm_place_of(comm, op->recv, (size_t)tri_comm_recv_count(op, comm->head.size) * width);
    }
    pending->mark = tri_comm_op_begin(&comm->head, op, entry->sequence);
    announce_step(comm);
}

static bool entries_agree(const shm_entry *a, const shm_entry *b) {
    if (a->kind != b->kind) return false;
    if (a->kind == TRI_COMM_BARRIER) return true;
    if (a->dtype != b->dtype || a->count != b->count) return false;
    bool same =
        a->reduction == b->reduction && a->accumulate == b->accumulate && a->wire == b->wire;
    if (tri_comm_kind_reduces((tri_comm_kind)a->kind) && !same) return false;
    return a->kind != TRI_COMM_BROADCAST || a->root == b->root;
}

static void entry_text(const shm_entry *entry, char *out, size_t size) {
    static const char *const reductions[] = {"sum", "max", "min"};
    tri_comm_kind kind = (tri_comm_kind)entry->kind;
    if (kind == TRI_COMM_BARRIER) {
        snprintf(out, size, "barrier '%s'", entry->label);
        return;
    }
    char detail[48] = "";
    bool rounds = entry->wire != TRI_F32;
    if (tri_comm_kind_reduces(kind))
        snprintf(detail, sizeof detail, " (%s%s%s%s)", reductions[entry->reduction % 3],
                 entry->accumulate ? ", accumulated" : "", rounds ? ", by " : "",
                 rounds ? tri_dtype_name((tri_dtype)entry->wire) : "");
    if (kind == TRI_COMM_BROADCAST) snprintf(detail, sizeof detail, " from rank %d", entry->root);
    snprintf(out, size, "%s '%s' of %lld %s%s", tri_comm_kind_name(kind), entry->label,
             (long long)entry->count, tri_dtype_name((tri_dtype)entry->dtype), detail);
}

static bool compare_entries(shm_comm *comm) {
    const shm_entry *mine = entry_of(comm, comm->head.rank, comm->step);
    for (int r = 0; r < comm->head.size; r++) {
        const shm_entry *theirs = entry_of(comm, r, comm->step);
        if (entries_agree(mine, theirs)) continue;
        char ours[192], other[192];
        entry_text(mine, ours, sizeof ours);
        entry_text(theirs, other, sizeof other);
        shm_fail(comm, TRI_MISMATCH,
                 "ranks disagree at operation %llu: rank %d calls %s, rank %d calls %s",
                 (unsigned long long)mine->sequence, comm->world[comm->head.rank], ours,
                 comm->world[r], other);
        return false;
    }
    return true;
}

static void begin_piece(shm_comm *comm, const tri_comm_op *op, int64_t begin) {
    shm_current *now = &comm->current;
    int64_t capacity = shm_stage_capacity(comm, op);
    now->begin = begin;
    now->count = op->count - begin < capacity ? op->count - begin : capacity;
    now->unit = 0;
    shm_stage_use(comm, op);
}

static shm_progress meet(shm_comm *comm, const tri_comm_op *op) {
    shm_current *now = &comm->current;
    if (!all_reached(comm)) return SHM_BLOCKED;
    if (!compare_entries(comm)) return SHM_IDLE;
    if (now->eager) {
        shm_eager_apply(comm, op);
        now->phase = SHM_DONE;
        return SHM_MOVED;
    }
    now->begin = 0;
    now->count = op->count;
    now->unit = 0;
    now->staged = !shm_places_known(comm);
    now->phase = now->staged ? SHM_FILL : SHM_WORK;
    if (now->staged) begin_piece(comm, op, 0);
    return SHM_MOVED;
}

static shm_progress work(shm_comm *comm, const tri_comm_op *op) {
    bool reduce = op->kind == TRI_COMM_ALL_REDUCE;
    shm_progress progress = reduce ? shm_reduce_advance(comm, op) : shm_pull_advance(comm, op);
    if (progress == SHM_MOVED) return progress;
    if (!reduce) announce_step(comm);
    comm->current.phase = SHM_LEAVE;
    return SHM_MOVED;
}

static shm_progress leave(shm_comm *comm, const tri_comm_op *op) {
    shm_current *now = &comm->current;
    bool reduce = op->kind == TRI_COMM_ALL_REDUCE;
    if (reduce ? !shm_reduce_finished(comm, op) : !all_reached(comm)) return SHM_BLOCKED;
    if (now->staged && reduce) shm_stage_drain(comm, op);
    int64_t end = now->begin + now->count;
    now->phase = end < op->count ? SHM_FILL : SHM_DONE;
    if (end < op->count) begin_piece(comm, op, end);
    return SHM_MOVED;
}

shm_progress shm_collective_advance(shm_comm *comm, shm_pending *pending) {
    const tri_comm_op *op = &pending->op;
    shm_current *now = &comm->current;
    switch (now->phase) {
    case SHM_BEGIN:
        announce(comm, pending);
        now->phase = SHM_MEET;
        return SHM_MOVED;
    case SHM_MEET:
        return meet(comm, op);
    case SHM_FILL:
        shm_stage_fill(comm, op);
        announce_step(comm);
        now->phase = SHM_READY;
        return SHM_MOVED;
    case SHM_READY:
        if (!all_reached(comm)) return SHM_BLOCKED;
        now->phase = SHM_WORK;
        return SHM_MOVED;
    case SHM_WORK:
        return work(comm, op);
    case SHM_LEAVE:
        return leave(comm, op);
    case SHM_DONE:
        break;
    }
    return SHM_MOVED;
}

bool shm_collective_awaits(shm_comm *comm, int rank) {
    shm_current *now = &comm->current;
    if (now->phase == SHM_MEET || now->phase == SHM_READY)
        return !shm_reached(comm, rank, comm->step);
    if (now->phase != SHM_LEAVE) return false;
    const tri_comm_op *op = &shm_at(comm, atomic_load(&comm->completed))->op;
    if (op->kind == TRI_COMM_ALL_REDUCE) return !shm_reduce_finished(comm, op);
    return !shm_reached(comm, rank, comm->step);
}
