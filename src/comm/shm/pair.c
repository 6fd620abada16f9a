// Sends and receives. Those that follow each other in the queue advance side by side; messages from
// one rank to another keep their order. Data in shared memory are copied once, by the receiver;
// other data go through the pair's pipe.
#include "comm/shm/pair.h"

#include "comm/reduce.h"
#include "comm/shm/bell.h"
#include "comm/shm/failure.h"
#include "comm/shm/region.h"

#include <stdio.h>
#include <string.h>

static shm_pair *pair_of(shm_comm *comm, int from, int to) {
    return &comm->pairs[(size_t)from * (size_t)comm->head.size + (size_t)to];
}

static char *pipe_of(shm_comm *comm, int from, int to) {
    return comm->pipes + ((size_t)from * (size_t)comm->head.size + (size_t)to) * TRI_SHM_PAIR_BYTES;
}

static size_t bytes_of(const tri_comm_op *op) {
    return (size_t)op->count * tri_dtype_bytes(op->dtype);
}

static void pair_ring(shm_comm *comm, int peer) { shm_ring(comm->family, comm->world_rank[peer]); }

static shm_pending *pairs_item(shm_comm *comm, int index) {
    return shm_queue_at(comm, atomic_load_explicit(&comm->completed, memory_order_relaxed) +
                                  (uint64_t)index);
}

const shm_pending *shm_pairs_waiting(shm_comm *comm, int peer) {
    for (int i = 0; i < comm->current.pair_count; i++) {
        const shm_pending *item = pairs_item(comm, i);
        if (!item->done && item->op.peer == peer) return item;
    }
    return NULL;
}

static bool pair_is_next(shm_comm *comm, int index) {
    const shm_pending *item = pairs_item(comm, index);
    for (int i = 0; i < index; i++) {
        const shm_pending *before = pairs_item(comm, i);
        if (!before->done && before->op.kind == item->op.kind && before->op.peer == item->op.peer)
            return false;
    }
    return true;
}

static bool send_post(shm_comm *comm, shm_pending *item, shm_pair *pair) {
    uint64_t posted = atomic_load(&pair->posted);
    if (atomic_load(&pair->received) != posted) return false;
    pair->dtype = item->op.dtype;
    pair->count = item->op.count;
    pair->address = shm_address_of(comm, item->op.send, bytes_of(&item->op));
    snprintf(pair->label, sizeof pair->label, "%s", item->op.label ? item->op.label : "");
    item->message = posted + 1;
    item->posted = true;
    // The receiver copies data that lie in shared memory, so nothing is left for the sender to do.
    if (pair->address.region) item->bytes_done = bytes_of(&item->op);
    atomic_store(&pair->posted, item->message);
    pair_ring(comm, item->op.peer);
    return true;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

// Bytes from this position to the pipe's end, where it wraps.
static size_t pipe_to_end(uint64_t position) {
    return TRI_SHM_PAIR_BYTES - position % TRI_SHM_PAIR_BYTES;
}

static bool send_advance(shm_comm *comm, shm_pending *item) {
    int me = comm->head.rank;
    shm_pair *pair = pair_of(comm, me, item->op.peer);
    bool advanced = !item->posted && send_post(comm, item, pair);
    if (!item->posted) return false;
    size_t left = bytes_of(&item->op) - item->bytes_done;
    if (left > 0) {
        uint64_t head = atomic_load(&pair->head);
        uint64_t tail = atomic_load(&pair->tail);
        size_t n = smaller(smaller(left, TRI_SHM_PAIR_BYTES - (head - tail)), pipe_to_end(head));
        if (n == 0) return advanced;
        memcpy(pipe_of(comm, me, item->op.peer) + head % TRI_SHM_PAIR_BYTES,
               (const char *)item->op.send + item->bytes_done, n);
        item->bytes_done += n;
        atomic_store(&pair->head, head + n);
        pair_ring(comm, item->op.peer);
        return true;
    }
    if (atomic_load(&pair->received) < item->message) return advanced;
    item->done = true;
    return true;
}

static bool recv_meet(shm_comm *comm, shm_pending *item, shm_pair *pair) {
    uint64_t received = atomic_load(&pair->received);
    if (atomic_load(&pair->posted) == received) return false;
    if (pair->dtype != item->op.dtype || pair->count != item->op.count) {
        shm_fail(comm, TRI_MISMATCH,
                 "ranks disagree: rank %d calls send '%s' of %lld %s, rank %d calls recv '%s' of "
                 "%lld %s",
                 comm->world_rank[item->op.peer], pair->label, (long long)pair->count,
                 tri_dtype_name((tri_dtype)pair->dtype), comm->world_rank[comm->head.rank],
                 item->op.label ? item->op.label : "", (long long)item->op.count,
                 tri_dtype_name(item->op.dtype));
        return false;
    }
    item->message = received + 1;
    item->posted = true;
    return true;
}

static bool recv_advance(shm_comm *comm, shm_pending *item) {
    int me = comm->head.rank;
    shm_pair *pair = pair_of(comm, item->op.peer, me);
    bool advanced = !item->posted && recv_meet(comm, item, pair);
    if (!item->posted) return false;
    size_t left = bytes_of(&item->op) - item->bytes_done;
    char *to = (char *)item->op.recv + item->bytes_done;
    if (left > 0 && pair->address.region) {
        const char *from = shm_address_resolve(comm->family, pair->address);
        size_t n = smaller(left, TRI_SHM_CHUNK_BYTES);
        comm_copy(to, from + item->bytes_done, n, bytes_of(&item->op) > SHM_STREAM_BYTES);
        item->bytes_done += n;
        advanced = true;
    } else if (left > 0) {
        uint64_t tail = atomic_load(&pair->tail);
        uint64_t head = atomic_load(&pair->head);
        size_t n = smaller(smaller(left, head - tail), pipe_to_end(tail));
        if (n == 0) return advanced;
        memcpy(to, pipe_of(comm, item->op.peer, me) + tail % TRI_SHM_PAIR_BYTES, n);
        item->bytes_done += n;
        atomic_store(&pair->tail, tail + n);
        if (item->bytes_done < bytes_of(&item->op)) pair_ring(comm, item->op.peer);
        advanced = true;
    }
    if (item->bytes_done < bytes_of(&item->op)) return advanced;
    item->done = true;
    atomic_store(&pair->received, item->message);
    pair_ring(comm, item->op.peer);
    return true;
}

shm_progress shm_pairs_advance(shm_comm *comm) {
    bool advanced = false;
    for (int i = 0; i < comm->current.pair_count && !shm_has_failed(comm); i++) {
        shm_pending *item = pairs_item(comm, i);
        if (item->done || !pair_is_next(comm, i)) continue;
        advanced |=
            item->op.kind == TRI_COMM_SEND ? send_advance(comm, item) : recv_advance(comm, item);
        if (item->done) tri_ledger_end(comm->head.ledger, item->mark);
    }
    return advanced ? SHM_ADVANCED : SHM_BLOCKED;
}
