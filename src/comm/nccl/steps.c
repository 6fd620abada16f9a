// Lists the steps of which an operation consists: either one call of NCCL, or an exchange of terms
// (what each rank contributes to a sum), a kernel that adds them in rank order and, for an
// all-reduce, an exchange of the sums. An exchange goes through scratch memory of fixed size, so it
// takes one range of elements (a window) at a time. The wire type is the type in which terms and
// sums travel between ranks.
#include "comm/nccl/steps.h"

#include "comm/op.h"

#include <stdlib.h>

static void *grown(void *array, int count, int *capacity, size_t width) {
    if (count < *capacity) return array;
    void *larger = realloc(array, width * (size_t)(*capacity ? 2 * *capacity : 16));
    if (larger) *capacity = *capacity ? 2 * *capacity : 16;
    return larger;
}

static tri_status add_step(nccl_steps *s, nccl_step step) {
    void *larger = grown(s->steps, s->count, &s->capacity, sizeof *s->steps);
    if (!larger) return TRI_FAIL(TRI_NO_MEMORY, "no memory for an operation");
    s->steps = larger;
    s->steps[s->count++] = step;
    return TRI_OK;
}

static tri_status begin_transfers(nccl_steps *s) {
    return add_step(s, (nccl_step){.kind = NCCL_TRANSFERS, .first = s->transfer_count});
}

// Adds a transfer (a call of NCCL) to the group that begin_transfers has begun. NCCL does all
// transfers of a group together.
static tri_status add_transfer(nccl_steps *s, cuda_transfer transfer) {
    void *larger =
        grown(s->transfers, s->transfer_count, &s->transfer_capacity, sizeof *s->transfers);
    if (!larger) return TRI_FAIL(TRI_NO_MEMORY, "no memory for an operation");
    s->transfers = larger;
    s->transfers[s->transfer_count++] = transfer;
    s->steps[s->count - 1].count++;
    return TRI_OK;
}

static tri_status add_message(nccl_steps *s, cuda_transfer_kind kind, int peer, const void *at,
                              int64_t bytes) {
    if (bytes == 0) return TRI_OK;
    return add_transfer(s, (cuda_transfer){.kind = kind,
                                           .dtype = TRI_U8,
                                           .count = bytes,
                                           .send = at,
                                           .recv = (void *)(uintptr_t)at,
                                           .peer = peer});
}

static tri_status add_cast(nccl_steps *s, tri_dtype from_type, const void *from, tri_dtype to_type,
                           void *to, int64_t count) {
    if (count == 0) return TRI_OK;
    return add_step(s, (nccl_step){.kind = NCCL_CAST,
                                   .cast = {.function = CUDA_CAST,
                                            .a_type = from_type,
                                            .b_type = from_type,
                                            .out_type = to_type,
                                            .a = from,
                                            .out = to,
                                            .count = count}});
}

// One window of an all-reduce or reduce-scatter whose ranks exchange terms. The window of an
// all-reduce holds elements begin to begin + count − 1 of the result, and that of a reduce-scatter
// holds these elements of every rank's result.
typedef struct exchange {
    nccl_steps *steps;
    const tri_comm *comm;
    const tri_comm_op *op;
    tri_dtype wire_type;  // the type in which terms (of the sum) are sent
    size_t width;         // size of that type in bytes
    int64_t begin, count; // the window: its first element, and how many it has
    // Every rank's elements begin at a multiple of so many elements, so that transfers begin at
    // multiples of 16 bytes. NCCL copies other memory one byte at a time.
    int64_t grain;
    // The two halves of the scratch memory: `terms` receives the other ranks' terms. If the wire
    // type is another type than the operation's, `packed` holds this rank's terms in it and, in an
    // all-reduce, then the sums.
    char *terms, *packed;
} exchange;

static bool scatters(const exchange *x) { return x->op->kind == TRI_COMM_REDUCE_SCATTER; }
static bool narrows(const exchange *x) { return x->wire_type != x->op->dtype; }

// The largest number of elements of the window that a rank adds up, rounded up to a multiple of
// `grain`. In `terms` and `packed`, the elements of different ranks lie this far apart.
static int64_t share(const exchange *x) {
    int64_t mine = scatters(x) ? x->count : (x->count + x->comm->size - 1) / x->comm->size;
    return (mine + x->grain - 1) / x->grain * x->grain;
}

// Finds which elements of the window (the elements that are exchanged at one time) rank r adds up:
// returns how many, and *begin is the index of the first in the window. In the window of a
// reduce-scatter, the elements of rank 0's result come first, then those of rank 1's, ….
static int64_t range(const exchange *x, int r, int64_t *begin) {
    *begin = r * share(x);
    if (scatters(x)) return x->count;
    int64_t left = x->count - *begin;
    return left < 0 ? 0 : left < share(x) ? left : share(x);
}

// Finds this rank's terms of the elements that rank r adds up: in `send`, in the operation's type.
static const char *source(const exchange *x, int r) {
    int64_t begin;
    (void)range(x, r, &begin);
    int64_t at = scatters(x) ? r * x->op->count + x->begin : x->begin + begin;
    return (const char *)x->op->send + (size_t)at * tri_dtype_bytes(x->op->dtype);
}

// Finds this rank's terms of the elements that rank r adds up, in the wire type: in `packed` if
// this is another type than the operation's, else in `send`.
static const char *wire_terms(const exchange *x, int r) {
    int64_t begin;
    (void)range(x, r, &begin);
    return narrows(x) ? x->packed + (size_t)begin * x->width : source(x, r);
}

static char *result(const exchange *x, int64_t begin) {
    return (char *)x->op->recv + (size_t)(x->begin + begin) * tri_dtype_bytes(x->op->dtype);
}

// Appends the steps that write this rank's terms to `packed` in the wire type, if that is another
// type than the operation's.
static tri_status pack(exchange *x) {
    for (int r = 0; narrows(x) && r < x->comm->size; r++) {
        int64_t begin, count = range(x, r, &begin);
        TRI_TRY(add_cast(x->steps, x->op->dtype, source(x, r), x->wire_type,
                         x->packed + (size_t)begin * x->width, count));
    }
    return TRI_OK;
}

// Appends the step in which each rank gets the terms of the elements that it adds up.
static tri_status exchange_terms(exchange *x) {
    int own = x->comm->rank;
    int64_t begin, mine = range(x, own, &begin);
    TRI_TRY(begin_transfers(x->steps));
    for (int r = 0; r < x->comm->size; r++) {
        if (r == own) continue;
        int64_t count = range(x, r, &begin);
        TRI_TRY(add_message(x->steps, CUDA_SEND, r, wire_terms(x, r), count * (int64_t)x->width));
        TRI_TRY(add_message(x->steps, CUDA_RECV, r, x->terms + (size_t)(r * share(x)) * x->width,
                            mine * (int64_t)x->width));
    }
    return TRI_OK;
}

// Appends the step in which this rank adds up the terms of its elements.
static tri_status add_terms(exchange *x) {
    int own = x->comm->rank;
    int64_t begin, mine = range(x, own, &begin);
    bool sum_in_wire_type = narrows(x) && !scatters(x); // an all-reduce also sends the sums
    cuda_ordered_sum sum = {.count = mine,
                            .stride = share(x),
                            .ranks = x->comm->size,
                            .own = own,
                            .accumulate = x->op->accumulate,
                            .term_type = x->wire_type,
                            .out_type = sum_in_wire_type ? x->wire_type : x->op->dtype,
                            .terms = x->terms,
                            .own_term = wire_terms(x, own)};
    sum.out = sum_in_wire_type ? x->packed + (size_t)begin * x->width
              : scatters(x)    ? result(x, 0)
                               : result(x, begin);
    return mine ? add_step(x->steps, (nccl_step){.kind = NCCL_SUM, .sum = sum}) : TRI_OK;
}

// Appends, for an all-reduce, the steps in which each rank gets the sums of the others.
static tri_status exchange_sums(exchange *x) {
    char *whole = narrows(x) ? x->packed : result(x, 0);
    int own = x->comm->rank;
    int64_t at, mine = range(x, own, &at);
    TRI_TRY(begin_transfers(x->steps));
    for (int r = 0; r < x->comm->size; r++) {
        int64_t begin, count = range(x, r, &begin);
        if (r == own) continue;
        TRI_TRY(add_message(x->steps, CUDA_SEND, r, whole + (size_t)at * x->width,
                            mine * (int64_t)x->width));
        TRI_TRY(add_message(x->steps, CUDA_RECV, r, whole + (size_t)begin * x->width,
                            count * (int64_t)x->width));
    }
    if (!narrows(x)) return TRI_OK;
    return add_cast(x->steps, x->wire_type, whole, x->op->dtype, result(x, 0), x->count);
}

// Returns how many elements the largest window has, and chooses the grain. With very many ranks,
// the scratch memory is too small for a grain of 64 elements.
static int64_t largest_window(exchange *x, int64_t scratch_bytes) {
    enum { MOST_GRAIN = 64 };
    int64_t room = scratch_bytes / 2 / (int64_t)x->width, size = x->comm->size;
    x->grain = MOST_GRAIN;
    while (x->grain > 1 && x->grain * size > room) x->grain /= 2;
    int64_t each = room / size / x->grain * x->grain;
    return scatters(x) ? each : each * size;
}

static tri_status add_sums(nccl_steps *steps, const tri_comm *comm, const tri_comm_op *op,
                           const nccl_sums *sums) {
    exchange x = {.steps = steps, .comm = comm, .op = op, .terms = sums->scratch};
    x.packed = sums->scratch + sums->scratch_bytes / 2;
    x.wire_type = op->wire != TRI_F32 ? op->wire : op->dtype;
    x.width = tri_dtype_bytes(x.wire_type);
    int64_t most = largest_window(&x, sums->scratch_bytes);
    TRI_ASSERT(most > 0);
    for (x.begin = 0; x.begin < op->count; x.begin += x.count) {
        x.count = op->count - x.begin < most ? op->count - x.begin : most;
        TRI_TRY(pack(&x));
        TRI_TRY(exchange_terms(&x));
        TRI_TRY(add_terms(&x));
        if (!scatters(&x)) TRI_TRY(exchange_sums(&x));
    }
    return TRI_OK;
}

// ---- the steps of each operation

static int64_t bytes_of(const tri_comm_op *op) {
    return op->count * (int64_t)tri_dtype_bytes(op->dtype);
}

static tri_status add_all_to_all(nccl_steps *steps, const tri_comm *comm, const tri_comm_op *op) {
    int64_t bytes = bytes_of(op);
    TRI_TRY(begin_transfers(steps));
    for (int r = 0; r < comm->size; r++) {
        TRI_TRY(add_message(steps, CUDA_SEND, r, (const char *)op->send + r * bytes, bytes));
        TRI_TRY(add_message(steps, CUDA_RECV, r, (char *)op->recv + r * bytes, bytes));
    }
    return TRI_OK;
}

static tri_status add_call(nccl_steps *steps, const tri_comm_op *op) {
    static const cuda_transfer_kind kinds[TRI_COMM_KIND_COUNT] = {
        [TRI_COMM_ALL_REDUCE] = CUDA_ALL_REDUCE,
        [TRI_COMM_REDUCE_SCATTER] = CUDA_REDUCE_SCATTER,
        [TRI_COMM_ALL_GATHER] = CUDA_ALL_GATHER,
        [TRI_COMM_BROADCAST] = CUDA_BROADCAST,
    };
    static const cuda_reduction reductions[] = {
        [TRI_REDUCE_SUM] = CUDA_SUM, [TRI_REDUCE_MAX] = CUDA_MAX, [TRI_REDUCE_MIN] = CUDA_MIN};
    cuda_transfer transfer = {.kind = kinds[op->kind],
                              .reduction = reductions[op->reduction],
                              .dtype = op->dtype,
                              .count = op->count,
                              .send = op->send,
                              .recv = op->recv,
                              .peer = op->root};
    if (!tri_comm_kind_reduces(op->kind)) {
        transfer.reduction = CUDA_SUM;
        transfer.dtype = TRI_U8;
        transfer.count *= (int64_t)tri_dtype_bytes(op->dtype);
    }
    TRI_TRY(begin_transfers(steps));
    return add_transfer(steps, transfer);
}

// Whether the ranks exchange terms and add them themselves, because NCCL does not compute this sum
// as comm.h promises.
static bool adds_terms(const tri_comm_op *op, bool rank_order) {
    if (!tri_comm_kind_reduces(op->kind) || op->reduction != TRI_REDUCE_SUM) return false;
    bool half = op->dtype == TRI_F16 || op->dtype == TRI_BF16;
    bool real = half || op->dtype == TRI_F32 || op->dtype == TRI_F64;
    return half || op->accumulate || op->wire != TRI_F32 || (rank_order && real);
}

tri_status nccl_steps_add(nccl_steps *steps, const tri_comm *comm, const tri_comm_op *op,
                          const nccl_sums *sums) {
    if (op->kind == TRI_COMM_BARRIER || op->count == 0) return TRI_OK;
    if (adds_terms(op, sums->rank_order)) return add_sums(steps, comm, op, sums);
    if (op->kind == TRI_COMM_ALL_TO_ALL) return add_all_to_all(steps, comm, op);
    return add_call(steps, op);
}

tri_status nccl_steps_add_messages(nccl_steps *steps, const tri_comm_op *ops, int count, int peer) {
    TRI_TRY(begin_transfers(steps));
    for (int i = 0; i < count; i++) {
        bool sends = ops[i].kind == TRI_COMM_SEND;
        TRI_TRY(add_message(steps, sends ? CUDA_SEND : CUDA_RECV, peer,
                            sends ? ops[i].send : ops[i].recv, bytes_of(&ops[i])));
    }
    return TRI_OK;
}

// Finds the next operation of that kind, from *at on; NULL: there is none.
static const tri_comm_op *next_of(const tri_comm_op *ops, int count, tri_comm_kind kind, int *at) {
    while (*at < count && ops[*at].kind != kind) ++*at;
    return *at < count ? &ops[(*at)++] : NULL;
}

tri_status nccl_steps_add_copies(nccl_steps *steps, const tri_comm_op *ops, int count) {
    int sends = 0, receives = 0;
    for (;;) {
        const tri_comm_op *send = next_of(ops, count, TRI_COMM_SEND, &sends);
        const tri_comm_op *receive = next_of(ops, count, TRI_COMM_RECV, &receives);
        if (!send && !receive) return TRI_OK;
        if (!send || !receive)
            return TRI_FAIL(TRI_BAD_INPUT, "a message of a rank to itself needs its send and its "
                                           "receive in one group");
        if (send->count)
            TRI_TRY(add_step(steps, (nccl_step){.kind = NCCL_COPY,
                                                .copy = {.to = receive->recv,
                                                         .from = send->send,
                                                         .bytes = bytes_of(send)}}));
    }
}

void nccl_steps_free(nccl_steps *steps) {
    free(steps->steps);
    free(steps->transfers);
    *steps = (nccl_steps){0};
}
