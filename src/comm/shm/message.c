// Sends and receives over shared memory. Messages from one rank to another go through a channel
// (shm_channel), one at a time. If the data lie in shared memory, the receiver copies them from
// there; otherwise they go through the channel's pipe, a ring buffer. A message uses these members
// of its progress_item: `step` becomes 1 when this rank has posted the message (or, as receiver,
// found it posted), `number` is the message's number in the channel, and `bytes` counts the bytes
// that were copied.
#include "comm/shm/message.h"

#include "comm/progress/describe.h"
#include "comm/progress/failure.h"
#include "comm/reduce.h"
#include "comm/shm/bell.h"
#include "comm/shm/region.h"

#include <stdio.h>
#include <string.h>

static shm_channel *channel_of(shm_comm *comm, int from, int to) {
    return &comm->channels[(size_t)from * (size_t)comm->base.head.size + (size_t)to];
}

static char *pipe_of(shm_comm *comm, int from, int to) {
    return comm->pipes +
           ((size_t)from * (size_t)comm->base.head.size + (size_t)to) * TRI_SHM_PIPE_BYTES;
}

static size_t bytes_of(const tri_comm_op *op) {
    return (size_t)op->count * tri_dtype_bytes(op->dtype);
}

static void ring_peer(shm_comm *comm, int peer) {
    shm_ring(shm_family_of(comm), comm->member[peer]);
}

static bool send_post(shm_comm *comm, progress_item *item, shm_channel *channel) {
    uint64_t posted = atomic_load(&channel->posted);
    if (atomic_load(&channel->received) != posted) return false;
    channel->dtype = item->op.dtype;
    channel->count = item->op.count;
    channel->address = shm_address_of(comm, item->op.send, bytes_of(&item->op));
    tri_comm_copy_label(&item->op, channel->label);
    item->number = posted + 1;
    item->step = 1;
    // The receiver copies data that lie in shared memory, so the sender has nothing left to copy.
    if (channel->address.region) item->bytes = bytes_of(&item->op);
    atomic_store(&channel->posted, item->number);
    ring_peer(comm, item->op.peer);
    return true;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

// Returns how many bytes of the pipe, a ring buffer, there are from this position to where the pipe
// wraps around, because a copy must not cross that point.
static size_t pipe_to_end(uint64_t position) {
    return TRI_SHM_PIPE_BYTES - position % TRI_SHM_PIPE_BYTES;
}

static bool send_advance(shm_comm *comm, progress_item *item) {
    int me = comm->base.head.rank;
    shm_channel *channel = channel_of(comm, me, item->op.peer);
    bool advanced = !item->step && send_post(comm, item, channel);
    if (!item->step) return false;
    size_t left = bytes_of(&item->op) - item->bytes;
    if (left > 0) {
        uint64_t head = atomic_load(&channel->head);
        uint64_t tail = atomic_load(&channel->tail);
        size_t n = smaller(smaller(left, TRI_SHM_PIPE_BYTES - (head - tail)), pipe_to_end(head));
        if (n == 0) return advanced;
        memcpy(pipe_of(comm, me, item->op.peer) + head % TRI_SHM_PIPE_BYTES,
               (const char *)item->op.send + item->bytes, n);
        item->bytes += n;
        atomic_store(&channel->head, head + n);
        ring_peer(comm, item->op.peer);
        return true;
    }
    if (atomic_load(&channel->received) < item->number) return advanced;
    item->done = true;
    return true;
}

static bool recv_meet(shm_comm *comm, progress_item *item, shm_channel *channel) {
    uint64_t received = atomic_load(&channel->received);
    if (atomic_load(&channel->posted) == received) return false;
    if (channel->dtype != item->op.dtype || channel->count != item->op.count) {
        tri_comm_op sent = {.kind = TRI_COMM_SEND,
                            .dtype = (tri_dtype)channel->dtype,
                            .count = channel->count,
                            .label = channel->label};
        tri_comm_call theirs, mine;
        tri_comm_call_of(&sent, &theirs);
        tri_comm_call_of(&item->op, &mine);
        progress_disagree(&comm->base, 0, (progress_caller){.rank = item->op.peer, .call = &theirs},
                          (progress_caller){.rank = comm->base.head.rank, .call = &mine});
        return false;
    }
    item->number = received + 1;
    item->step = 1;
    return true;
}

static bool recv_advance(shm_comm *comm, progress_item *item) {
    int me = comm->base.head.rank;
    shm_channel *channel = channel_of(comm, item->op.peer, me);
    bool advanced = !item->step && recv_meet(comm, item, channel);
    if (!item->step) return false;
    size_t left = bytes_of(&item->op) - item->bytes;
    char *to = (char *)item->op.recv + item->bytes;
    if (left > 0 && channel->address.region) {
        const char *from = shm_address_resolve(shm_family_of(comm), channel->address);
        size_t n = smaller(left, TRI_SHM_CHUNK_BYTES);
        comm_copy(to, from + item->bytes, n, bytes_of(&item->op) > SHM_STREAM_BYTES);
        item->bytes += n;
        advanced = true;
    } else if (left > 0) {
        uint64_t tail = atomic_load(&channel->tail);
        uint64_t head = atomic_load(&channel->head);
        size_t n = smaller(smaller(left, head - tail), pipe_to_end(tail));
        if (n == 0) return advanced;
        memcpy(to, pipe_of(comm, item->op.peer, me) + tail % TRI_SHM_PIPE_BYTES, n);
        item->bytes += n;
        atomic_store(&channel->tail, tail + n);
        if (item->bytes < bytes_of(&item->op)) ring_peer(comm, item->op.peer);
        advanced = true;
    }
    if (item->bytes < bytes_of(&item->op)) return advanced;
    item->done = true;
    atomic_store(&channel->received, item->number);
    ring_peer(comm, item->op.peer);
    return true;
}

progress_result shm_message_advance(shm_comm *comm, progress_item *item) {
    bool advanced =
        item->op.kind == TRI_COMM_SEND ? send_advance(comm, item) : recv_advance(comm, item);
    return advanced ? PROGRESS_ADVANCED : PROGRESS_BLOCKED;
}
