// A hierarchy is a communicator that is made of inner ones (pair.h): INSIDE connects the ranks of
// this host, and ACROSS the ranks with the same local rank on all hosts. DIRECT connects all ranks,
// and carries messages between ranks that share neither of the two. This file lists the steps of
// each collective, which comm/layered carries out: operations of INSIDE and ACROSS, and copies. A
// window is the elements of an operation on which the steps work at one time, because scratch
// memory may not hold all.
#include "comm/pair/pair.h"

#include "base/limits.h"
#include "comm/layered/layered.h"
#include "comm/op.h"
#include "comm/progress/communicator.h"
#include "comm/progress/failure.h"
#include "comm/progress/operation.h"

#include <stdlib.h>
#include <string.h>

enum { INSIDE, ACROSS, DIRECT };

// Returns the number of hosts. If a split made a group that cannot have two levels, the group has
// only one inner communicator, inner[INSIDE], and counts as one host.
static int hosts(const layered_comm *comm) {
    return comm->inner[ACROSS] ? comm->inner[ACROSS]->size : 1;
}
static int local_ranks(const layered_comm *comm) { return comm->inner[INSIDE]->size; }

// The scratch memory has two arrays, each with `window.count` elements for each rank. Returns how
// many bytes one of them may have.
static size_t array_bytes(const layered_comm *comm) { return comm->scratch_bytes / 2 / 64 * 64; }

static char *array(const layered_comm *comm, int which) {
    return comm->scratch + (size_t)which * array_bytes(comm);
}

static bool needs_scratch(tri_comm_kind kind) {
    return tri_comm_kind_scatters(kind) || kind == TRI_COMM_ALL_GATHER;
}

static int64_t window(const layered_comm *comm, const tri_comm_op *op) {
    bool is_flat = hosts(comm) == 1 || local_ranks(comm) == 1;
    if (is_flat || !needs_scratch(op->kind)) return op->count;
    size_t width = tri_dtype_bytes(op->dtype) * (size_t)comm->base.head.size;
    int64_t most = (int64_t)(array_bytes(comm) / width);
    return most < 1 ? 1 : most;
}

// Copies the elements of the current window (comm->window) between the caller's memory and an array
// of scratch memory: into the array, or, if `unpacks`, out of it. There is a block of window.count
// elements for each rank. In the caller's memory the blocks lie in rank order, `op.count` elements
// apart. In the array they are sorted by local rank, and then by host, so that the operations of
// both inner communicators find their blocks next to each other.
static void pack(layered_comm *comm, char *to, const char *from, bool unpacks) {
    size_t width = layered_width(comm), bytes = (size_t)comm->window.count * width;
    for (int h = 0; h < hosts(comm); h++)
        for (int l = 0; l < local_ranks(comm); l++) {
            size_t rank = (size_t)(h * local_ranks(comm) + l),
                   packed = (size_t)(l * hosts(comm) + h);
            size_t whole = (rank * (size_t)comm->op.count + (size_t)comm->window.begin) * width;
            if (unpacks)
                memcpy(to + whole, from + packed * bytes, bytes);
            else
                memcpy(to + packed * bytes, from + whole, bytes);
        }
}

static tri_status pack_send(layered_comm *comm) {
    pack(comm, array(comm, 0), comm->op.send, false);
    return TRI_OK;
}

static tri_status unpack_recv(layered_comm *comm) {
    pack(comm, comm->op.recv, array(comm, 1), true);
    return TRI_OK;
}

// Transposes the blocks that this rank received inside its host, from [local rank that sent][host
// that receives] to [host that receives][local rank that sent]. Then the data for each other host
// are one range.
static tri_status turn(layered_comm *comm) {
    size_t bytes = (size_t)comm->window.count * layered_width(comm);
    for (int l = 0; l < local_ranks(comm); l++)
        for (int h = 0; h < hosts(comm); h++)
            memcpy(array(comm, 0) + (size_t)(h * local_ranks(comm) + l) * bytes,
                   array(comm, 1) + (size_t)(l * hosts(comm) + h) * bytes, bytes);
    return TRI_OK;
}

// Copies the blocks that this rank received for the current window (comm->window), as [host that
// sent][local rank that sent], to the caller's memory. This is rank order already, but in the
// caller's memory the blocks lie `op.count` elements apart.
static tri_status spread_recv(layered_comm *comm) {
    size_t width = layered_width(comm), bytes = (size_t)comm->window.count * width;
    for (int r = 0; r < comm->base.head.size; r++)
        memcpy((char *)comm->op.recv +
                   ((size_t)r * (size_t)comm->op.count + (size_t)comm->window.begin) * width,
               array(comm, 1) + (size_t)r * bytes, bytes);
    return TRI_OK;
}

// Makes an operation of one inner communicator, inside this host or across hosts. Type, reduction
// and wire type are those of the caller's operation.
static tri_comm_op inner_op(const layered_comm *comm, tri_comm_kind kind, int64_t count,
                            const void *send, void *recv) {
    tri_comm_op op = {
        .kind = kind, .dtype = comm->op.dtype, .count = count, .send = send, .recv = recv};
    if (!tri_comm_kind_reduces(kind)) return op;
    op.reduction = comm->op.reduction;
    op.wire = comm->op.wire;
    return op;
}

static char *after(const layered_comm *comm, const void *memory, int64_t elements) {
    return (char *)(uintptr_t)memory + (size_t)elements * layered_width(comm);
}

// The steps of an all-reduce of n elements. With L local ranks, the first n / L * L elements
// (rounded down to a multiple of L) are reduce-scattered inside the hosts, all-reduced across them
// and gathered inside, so that only one rank of a host sends an element over the slower network.
// The other elements, fewer than L, are all-reduced first inside and then across.
static void list_all_reduce(layered_comm *comm) {
    const tri_comm_op *op = &comm->op;
    int64_t even = op->count / local_ranks(comm), done = even * local_ranks(comm),
            rest = op->count - done;
    char *mine = after(comm, op->recv, even * comm->inner[INSIDE]->rank);
    if (even || !rest) {
        layered_run(comm, INSIDE, inner_op(comm, TRI_COMM_REDUCE_SCATTER, even, op->send, mine));
        layered_run(comm, ACROSS, inner_op(comm, TRI_COMM_ALL_REDUCE, even, mine, mine));
        layered_run(comm, INSIDE, inner_op(comm, TRI_COMM_ALL_GATHER, even, mine, op->recv));
    }
    if (!rest) return;
    char *last = after(comm, op->recv, done);
    layered_run(comm, INSIDE,
                inner_op(comm, TRI_COMM_ALL_REDUCE, rest, after(comm, op->send, done), last));
    layered_run(comm, ACROSS, inner_op(comm, TRI_COMM_ALL_REDUCE, rest, last, last));
}

static void list_reduce_scatter(layered_comm *comm) {
    int64_t count = comm->window.count;
    char *recv = after(comm, comm->op.recv, comm->window.begin);
    layered_do(comm, pack_send);
    layered_run(comm, INSIDE,
                inner_op(comm, TRI_COMM_REDUCE_SCATTER, count * hosts(comm), array(comm, 0),
                         array(comm, 1)));
    tri_comm_op across = inner_op(comm, TRI_COMM_REDUCE_SCATTER, count, array(comm, 1), recv);
    across.accumulate = comm->op.accumulate;
    layered_run(comm, ACROSS, across);
}

static void list_all_gather(layered_comm *comm) {
    int64_t count = comm->window.count;
    const char *send = after(comm, comm->op.send, comm->window.begin);
    layered_run(comm, ACROSS, inner_op(comm, TRI_COMM_ALL_GATHER, count, send, array(comm, 0)));
    layered_run(
        comm, INSIDE,
        inner_op(comm, TRI_COMM_ALL_GATHER, count * hosts(comm), array(comm, 0), array(comm, 1)));
    layered_do(comm, unpack_recv);
}

static void list_all_to_all(layered_comm *comm) {
    int64_t count = comm->window.count;
    layered_do(comm, pack_send);
    layered_run(
        comm, INSIDE,
        inner_op(comm, TRI_COMM_ALL_TO_ALL, count * hosts(comm), array(comm, 0), array(comm, 1)));
    layered_do(comm, turn);
    layered_run(comm, ACROSS,
                inner_op(comm, TRI_COMM_ALL_TO_ALL, count * local_ranks(comm), array(comm, 0),
                         array(comm, 1)));
    layered_do(comm, spread_recv);
}

static void list_broadcast(layered_comm *comm) {
    const tri_comm_op *op = &comm->op;
    int host = op->root / local_ranks(comm), local = op->root % local_ranks(comm);
    bool is_root = op->root == comm->base.head.rank;
    tri_comm_op across = inner_op(comm, TRI_COMM_BROADCAST, op->count, op->send, op->recv);
    tri_comm_op inside = across;
    across.root = host;
    inside.root = local;
    if (!is_root) inside.send = op->recv;
    if (comm->inner[INSIDE]->rank == local) layered_run(comm, ACROSS, across);
    layered_run(comm, INSIDE, inside);
}

static void list_barrier(layered_comm *comm) {
    layered_run(comm, INSIDE, (tri_comm_op){.kind = TRI_COMM_BARRIER});
    layered_run(comm, ACROSS, (tri_comm_op){.kind = TRI_COMM_BARRIER});
}

static void list(layered_comm *comm) {
    static void (*const lists[TRI_COMM_KIND_COUNT])(layered_comm * comm) = {
        [TRI_COMM_ALL_REDUCE] = list_all_reduce, [TRI_COMM_REDUCE_SCATTER] = list_reduce_scatter,
        [TRI_COMM_ALL_GATHER] = list_all_gather, [TRI_COMM_ALL_TO_ALL] = list_all_to_all,
        [TRI_COMM_BROADCAST] = list_broadcast,   [TRI_COMM_BARRIER] = list_barrier,
    };
    if (hosts(comm) > 1 && local_ranks(comm) > 1)
        lists[comm->op.kind](comm);
    else
        layered_run(comm, hosts(comm) > 1 ? ACROSS : INSIDE, comm->op);
}

static tri_status route(const layered_comm *comm, int peer, int *inner, int *inner_peer) {
    int host = peer / local_ranks(comm), local = peer % local_ranks(comm);
    bool same_host = host == (comm->inner[ACROSS] ? comm->inner[ACROSS]->rank : 0);
    bool same_local = local == comm->inner[INSIDE]->rank;
    *inner = same_host ? INSIDE : same_local ? ACROSS : DIRECT;
    *inner_peer = same_host ? local : same_local ? host : peer;
    if (comm->inner[*inner]) return TRI_OK;
    return TRI_FAIL(TRI_UNSUPPORTED,
                    "rank %d cannot send to rank %d or receive from it: they share neither level "
                    "of the hierarchy, which was opened without a direct communicator",
                    comm->base.job_rank[comm->base.head.rank], comm->base.job_rank[peer]);
}

// Finds the colour and key with which each inner communicator is split to form this group. The
// group has two levels only if it contains the same local ranks of each of its hosts, in order. For
// any other group only DIRECT, the inner communicator that connects all ranks, is split.
static tri_status divide(const layered_comm *comm, const progress_group *group,
                         int colour[LAYERED_INNER], int key[LAYERED_INNER]) {
    int across = 0, locals = local_ranks(comm);
    while (across < group->size && group->ranks[across] / locals == group->ranks[0] / locals)
        across++;
    bool regular = group->size % across == 0, has_direct = comm->inner[DIRECT];
    for (int r = 0; r < group->size && regular; r++) {
        int host = group->ranks[r / across * across] / locals;
        int local = group->ranks[r % across] % locals;
        regular = group->ranks[r] == host * locals + local;
    }
    if (!regular && !has_direct)
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "a hierarchy is split into groups that have the same ranks of each host, "
                        "in order; open a communicator of another kind for this one");
    colour[INSIDE] = colour[ACROSS] = regular ? group->ranks[0] : -1;
    colour[DIRECT] = group->ranks[0];
    key[INSIDE] = group->rank % across;
    key[ACROSS] = group->rank / across;
    key[DIRECT] = group->rank;
    return TRI_OK;
}

static unsigned abilities(const tri_comm *head) {
    const layered_comm *comm = layered_of(head);
    unsigned inside = comm->inner[INSIDE]->backend->abilities(comm->inner[INSIDE]);
    if (hosts(comm) == 1) return inside;
    unsigned across = comm->inner[ACROSS]->backend->abilities(comm->inner[ACROSS]);
    if (local_ranks(comm) == 1) return across;
    unsigned never = TRI_COMM_RANK_ORDER | TRI_COMM_DEVICE_MEMORY;
    unsigned both = inside & across & ~never;
    return both | (across & TRI_COMM_ACCUMULATES);
}

static int64_t scratch_bytes(int ranks, bool is_private) { return TRI_PAIR_SCRATCH_BYTES; }

static const tri_ledger_ring *ledger_of(tri_comm *head, int rank) {
    const layered_comm *comm = layered_of(head);
    int inner, peer;
    if (route(comm, rank, &inner, &peer) != TRI_OK) return NULL;
    return tri_comm_ledger_of(comm->inner[inner], peer);
}

static const layered_kind pair_kind = {
    .backend = {.name = "pair",
                .abilities = abilities,
                .scratch_bytes = scratch_bytes,
                LAYERED_SLOTS,
                .ledger_of = ledger_of},
    .window = window,
    .list = list,
    .route = route,
    .divide = divide,
};

tri_status tri_comm_pair_open(const tri_comm_pair *pair, tri_comm **out) {
    int size = pair->inside->size * pair->across->size;
    int *numbers = calloc((size_t)size, sizeof *numbers);
    for (int r = 0; numbers && r < size; r++) numbers[r] = pair->job_rank ? pair->job_rank[r] : r;
    layered_open open = {.kind = &pair_kind,
                         .inner = {pair->inside, pair->across, pair->direct},
                         .rank = pair->across->rank * pair->inside->size + pair->inside->rank,
                         .size = size,
                         .job_rank = numbers,
                         .scratch_bytes = TRI_PAIR_SCRATCH_BYTES};
    tri_status status = TRI_OK;
    if (!numbers) status = TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    if (status == TRI_OK && pair->direct &&
        (pair->direct->size != size || pair->direct->rank != open.rank))
        status = TRI_FAIL(TRI_BAD_INPUT,
                          "rank %d of %d of a hierarchy is rank %d of %d of its "
                          "direct communicator",
                          open.rank, size, pair->direct->rank, pair->direct->size);
    if (status == TRI_OK)
        status = layered_open_comm(&open, out);
    else
        for (int i = LAYERED_INNER - 1; i >= 0; i--) tri_comm_close(open.inner[i]);
    free(numbers);
    return status;
}
