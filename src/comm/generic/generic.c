// Lists the steps of operations that the inner communicator cannot do alone (generic.h tells which
// these are). A step is an operation of the inner communicator (INNER) or of the control
// communicator (CONTROL), or work of this rank; comm/layered carries the steps out one by one. A
// term is one rank's contribution to a sum. A window is the elements of an operation that are
// computed at one time, because scratch memory may not hold all.
#include "comm/generic/generic.h"

#include "base/limits.h"
#include "comm/layered/layered.h"
#include "comm/op.h"
#include "comm/progress/communicator.h"
#include "comm/progress/describe.h"
#include "comm/progress/failure.h"
#include "comm/progress/operation.h"
#include "comm/reduce.h"

#include <stdlib.h>
#include <string.h>

enum { INNER, CONTROL };

// In this layer's communicators the field `added_abilities` of layered_comm holds the abilities
// (bits of tri_comm_ability) that the inner communicator lacks and that this layer supplies.

static int ranks(const layered_comm *comm) { return comm->base.head.size; }

// Whether this layer adds the terms itself, because the inner communicator lacks an ability that
// the operation needs.
static bool adds(const layered_comm *comm, const tri_comm_op *op) {
    if (!tri_comm_kind_reduces(op->kind) || op->reduction != TRI_REDUCE_SUM) return false;
    unsigned demands = TRI_COMM_RANK_ORDER;
    if (op->accumulate) demands |= TRI_COMM_ACCUMULATES;
    if (op->wire != TRI_F32) demands |= TRI_COMM_WIRE_TYPES;
    return demands & comm->added_abilities;
}

// The next functions divide the scratch memory. It begins with the calls of the ranks, which are
// compared. Four arrays of equal size follow, all for one window:
// - TERMS_SENT: the terms that this rank sends, in the type in which they travel between ranks;
// - TERMS_RECEIVED: the terms that it receives, in the same type;
// - TERMS_ADDED: the received terms, converted to the type in which they are added;
// - SUM: the sum of the received terms, in that type.
//
// In the second half of an ALL_REDUCE, in which the sums travel, TERMS_SENT holds the sums of this
// rank and TERMS_RECEIVED those of all ranks.

static bool travels_as_half(const layered_comm *comm) {
    return comm->op.wire != TRI_F32 && ranks(comm) > 1;
}

static tri_dtype travel_dtype(const layered_comm *comm) {
    return travels_as_half(comm) ? comm->op.wire : comm->op.dtype;
}

static tri_comm_call *calls(const layered_comm *comm) {
    // The scratch memory begins with this rank's call; then come the calls of all ranks.
    return (tri_comm_call *)(void *)comm->scratch;
}

static size_t calls_bytes(int size) {
    return ((size_t)size + 1) * sizeof(tri_comm_call) / 64 * 64 + 64;
}

enum { TERMS_SENT, TERMS_RECEIVED, TERMS_ADDED, SUM };

static size_t array_bytes(const layered_comm *comm) {
    return (comm->scratch_bytes - calls_bytes(ranks(comm))) / 4 / 64 * 64;
}

static char *array(const layered_comm *comm, int which) {
    return comm->scratch + calls_bytes(ranks(comm)) + (size_t)which * array_bytes(comm);
}

// How many elements of the operation a window has. A sum of N ranks needs N terms, so with A
// elements in an array a rank can compute A / N sums at a time. In a REDUCE_SCATTER that is the
// window. In an ALL_REDUCE each rank sums only its share, 1 / N of the window, so the window is N
// times as long.
static int64_t window(const layered_comm *comm, const tri_comm_op *op) {
    if (!adds(comm, op)) return op->count;
    int64_t most = (int64_t)(array_bytes(comm) / tri_dtype_bytes(op->dtype) / (size_t)ranks(comm));
    if (most < 1) most = 1;
    return op->kind == TRI_COMM_ALL_REDUCE ? most * ranks(comm) : most;
}

// How many sums each rank computes in the window: in an ALL_REDUCE its share, 1 / N of the window
// for N ranks, rounded up. So the last ranks may have fewer sums to compute, or none.
static int64_t share(const layered_comm *comm) {
    if (comm->op.kind != TRI_COMM_ALL_REDUCE) return comm->window.count;
    return (comm->window.count + ranks(comm) - 1) / ranks(comm);
}

// Finds the elements of the caller's memory that rank r sums up: sets *begin to the first and
// returns how many they are.
static int64_t range(const layered_comm *comm, int r, int64_t *begin) {
    *begin = comm->window.begin;
    if (comm->op.kind != TRI_COMM_ALL_REDUCE) {
        *begin += r * comm->op.count;
        return comm->window.count;
    }
    int64_t at = r * share(comm), left = comm->window.count - at;
    *begin += at;
    return left < 0 ? 0 : left < share(comm) ? left : share(comm);
}

static void narrow(const layered_comm *comm, void *to, const void *from, int64_t count) {
    if (travels_as_half(comm))
        comm_narrow(comm->op.wire, to, from, count);
    else
        memcpy(to, from, (size_t)count * layered_width(comm));
}

static void widen(const layered_comm *comm, void *to, const void *from, int64_t count) {
    if (travels_as_half(comm))
        comm_widen(comm->op.wire, to, from, count);
    else
        memcpy(to, from, (size_t)count * layered_width(comm));
}

static tri_status put_terms(layered_comm *comm) {
    size_t travels = tri_dtype_bytes(travel_dtype(comm)), bytes = (size_t)share(comm) * travels;
    memset(array(comm, TERMS_SENT), 0, bytes * (size_t)ranks(comm));
    for (int r = 0; r < ranks(comm); r++) {
        int64_t begin, count = range(comm, r, &begin);
        narrow(comm, array(comm, TERMS_SENT) + (size_t)r * bytes,
               (const char *)comm->op.send + (size_t)begin * layered_width(comm), count);
    }
    return TRI_OK;
}

static tri_status add_terms(layered_comm *comm) {
    const tri_comm_op *op = &comm->op;
    size_t bytes = (size_t)share(comm) * layered_width(comm);
    bool scatters = op->kind == TRI_COMM_REDUCE_SCATTER;
    void *out = scatters ? (char *)op->recv + (size_t)comm->window.begin * layered_width(comm)
                         : array(comm, SUM);
    const void *with_own[TRI_MAX_GENERIC_RANKS + 1] = {out}, **in = with_own + 1;
    widen(comm, array(comm, TERMS_ADDED), array(comm, TERMS_RECEIVED), share(comm) * ranks(comm));
    for (int r = 0; r < ranks(comm); r++) in[r] = array(comm, TERMS_ADDED) + (size_t)r * bytes;
    comm_reduce(op, ranks(comm) + op->accumulate, in - op->accumulate, 1, &out, (size_t)share(comm),
                false);
    if (!scatters) narrow(comm, array(comm, TERMS_SENT), out, share(comm));
    return TRI_OK;
}

static tri_status take_sums(layered_comm *comm) {
    size_t bytes = (size_t)share(comm) * tri_dtype_bytes(travel_dtype(comm));
    for (int r = 0; r < ranks(comm); r++) {
        int64_t begin, count = range(comm, r, &begin);
        widen(comm, (char *)comm->op.recv + (size_t)begin * layered_width(comm),
              array(comm, TERMS_RECEIVED) + (size_t)r * bytes, count);
    }
    return TRI_OK;
}

static void list_sum(layered_comm *comm) {
    tri_comm_op exchange = {.kind = TRI_COMM_ALL_TO_ALL,
                            .dtype = travel_dtype(comm),
                            .count = share(comm),
                            .send = array(comm, TERMS_SENT),
                            .recv = array(comm, TERMS_RECEIVED)};
    layered_do(comm, put_terms);
    layered_run(comm, INNER, exchange);
    layered_do(comm, add_terms);
    if (comm->op.kind != TRI_COMM_ALL_REDUCE) return;
    exchange.kind = TRI_COMM_ALL_GATHER;
    layered_run(comm, INNER, exchange);
    layered_do(comm, take_sums);
}

static tri_status compare_calls(layered_comm *comm) {
    const tri_comm_call *all = calls(comm) + 1, *mine = calls(comm);
    for (int r = 0; r < ranks(comm); r++) {
        if (tri_comm_calls_agree(mine, &all[r])) continue;
        char text[TRI_MESSAGE_MAX_BYTES];
        progress_disagreement(&comm->base, 0,
                              (progress_caller){.rank = comm->base.head.rank, .call = mine},
                              (progress_caller){.rank = r, .call = &all[r]}, text, sizeof text);
        return TRI_FAIL(TRI_MISMATCH, "%s", text);
    }
    return TRI_OK;
}

static void list(layered_comm *comm) {
    if (comm->inner[CONTROL] && comm->window.begin == 0) {
        tri_comm_call_of(&comm->op, calls(comm));
        layered_run(comm, CONTROL,
                    (tri_comm_op){.kind = TRI_COMM_ALL_GATHER,
                                  .dtype = TRI_U8,
                                  .count = sizeof *calls(comm),
                                  .send = calls(comm),
                                  .recv = calls(comm) + 1});
        layered_do(comm, compare_calls);
    }
    if (adds(comm, &comm->op))
        list_sum(comm);
    else
        layered_run(comm, INNER, comm->op);
}

static tri_status route(const layered_comm *comm, int peer, int *inner, int *inner_peer) {
    *inner = INNER;
    *inner_peer = peer;
    return TRI_OK;
}

static int header(const layered_comm *comm) { return comm->inner[CONTROL] ? CONTROL : -1; }

static tri_status divide(const layered_comm *comm, const progress_group *group,
                         int colour[LAYERED_INNER], int key[LAYERED_INNER]) {
    for (int i = 0; i < LAYERED_INNER; i++) {
        colour[i] = group->ranks[0];
        key[i] = group->rank;
    }
    return TRI_OK;
}

static unsigned abilities(const tri_comm *head) {
    const layered_comm *comm = layered_of(head);
    return comm->inner[INNER]->backend->abilities(comm->inner[INNER]) | comm->added_abilities;
}

static size_t scratch_of(int size) { return calls_bytes(size) + TRI_GENERIC_SCRATCH_BYTES; }

static int64_t scratch_bytes(int size, bool is_private) { return (int64_t)scratch_of(size); }

static const tri_ledger_ring *ledger_of(tri_comm *head, int rank) {
    return tri_comm_ledger_of(layered_of(head)->inner[INNER], rank);
}

static const layered_kind generic_kind = {
    .backend = {.name = "generic",
                .abilities = abilities,
                .scratch_bytes = scratch_bytes,
                LAYERED_SLOTS,
                .ledger_of = ledger_of},
    .window = window,
    .list = list,
    .route = route,
    .divide = divide,
    .header = header,
};

static tri_status check(const tri_comm *inner, const tri_comm *control, unsigned missing) {
    unsigned added = TRI_COMM_ARITHMETIC | TRI_COMM_FINDS_MISMATCHES;
    if (missing & ~added)
        return TRI_FAIL(TRI_UNSUPPORTED, "communicator '%s' does not take this memory",
                        inner->backend->name);
    if (inner->size > TRI_MAX_GENERIC_RANKS)
        return TRI_FAIL(TRI_UNSUPPORTED, "%d ranks: sums are added by at most %d", inner->size,
                        TRI_MAX_GENERIC_RANKS);
    TRI_ASSERT(inner->rank == control->rank && inner->size == control->size);
    return TRI_OK;
}

tri_status tri_comm_generic_open(tri_comm *inner, tri_comm *control, unsigned wanted,
                                 tri_comm **out) {
    unsigned missing = wanted & ~inner->backend->abilities(inner);
    *out = NULL;
    if (!missing || inner->size == 1) {
        tri_comm_close(control);
        *out = inner;
        return TRI_OK;
    }
    tri_status status = check(inner, control, missing);
    int *numbers = calloc((size_t)inner->size, sizeof *numbers);
    if (status == TRI_OK && !numbers)
        status = TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    if (status != TRI_OK) {
        free(numbers);
        tri_comm_close(control);
        tri_comm_close(inner);
        return status;
    }
    for (int r = 0; r < inner->size; r++) numbers[r] = tri_comm_job_rank(inner, r);
    bool compares = missing & TRI_COMM_FINDS_MISMATCHES;
    if (!compares) tri_comm_close(control);
    layered_open open = {.kind = &generic_kind,
                         .inner = {inner, compares ? control : NULL},
                         .rank = inner->rank,
                         .size = inner->size,
                         .job_rank = numbers,
                         .scratch_bytes = scratch_of(inner->size),
                         .added_abilities = missing};
    status = layered_open_comm(&open, out);
    free(numbers);
    return status;
}
