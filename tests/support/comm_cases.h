// Tests of what every communicator between processes has to do: operations of all kinds, types and
// sizes, operation groups, splits, and memory. They are one table of cases, which the test of each
// backend runs (comm_cases_main).
#ifndef TESTS_COMM_CASES_H
#define TESTS_COMM_CASES_H

#include "support/comm_ranks.h"

#include "base/limits.h"
#include "comm/op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// Computes element i of what rank `rank` sends. `seed` differs from operation to operation. The
// results are small whole numbers, so that sums are exact in F32.
static int value_of(int seed, int rank, int64_t i) {
    return (int)((i * 7 + rank * 13 + seed * 5) % 97) - 48;
}

static void put(tri_dtype dtype, void *at, int64_t i, int value) {
    switch (dtype) {
    case TRI_F32:
        ((float *)at)[i] = (float)value;
        break;
    case TRI_F64:
        ((double *)at)[i] = value;
        break;
    case TRI_I64:
        ((int64_t *)at)[i] = value;
        break;
    case TRI_I32:
        ((int32_t *)at)[i] = value;
        break;
    case TRI_BF16:
        ((int16_t *)at)[i] = (int16_t)value;
        break;
    default:
        ((signed char *)at)[i] = (signed char)value;
        break;
    }
}

static int get(tri_dtype dtype, const void *at, int64_t i) {
    switch (dtype) {
    case TRI_F32:
        return (int)((const float *)at)[i];
    case TRI_F64:
        return (int)((const double *)at)[i];
    case TRI_I64:
        return (int)((const int64_t *)at)[i];
    case TRI_I32:
        return ((const int32_t *)at)[i];
    case TRI_BF16:
        return ((const int16_t *)at)[i];
    default:
        return ((const signed char *)at)[i];
    }
}

static int reduced(tri_comm_reduction reduction, int seed, int size, int64_t i) {
    int result = value_of(seed, 0, i);
    for (int r = 1; r < size; r++) {
        int value = value_of(seed, r, i);
        if (reduction == TRI_REDUCE_SUM) result += value;
        if (reduction == TRI_REDUCE_MAX && value > result) result = value;
        if (reduction == TRI_REDUCE_MIN && value < result) result = value;
    }
    return result;
}

// Computes the value that `recv[i]` must have on this rank after the collective.
static int expected(const tri_comm *comm, const tri_comm_op *op, int seed, int64_t i) {
    int64_t source = op->count ? i / op->count : 0, within = op->count ? i % op->count : 0;
    switch (op->kind) {
    case TRI_COMM_ALL_REDUCE:
        return reduced(op->reduction, seed, comm->size, i);
    case TRI_COMM_REDUCE_SCATTER:
        return reduced(op->reduction, seed, comm->size, comm->rank * op->count + i);
    case TRI_COMM_ALL_GATHER:
        return value_of(seed, (int)source, within);
    case TRI_COMM_ALL_TO_ALL:
        return value_of(seed, (int)source, comm->rank * op->count + within);
    case TRI_COMM_BROADCAST:
        return value_of(seed, op->root, i);
    default:
        return 0;
    }
}

static void fill(const tri_comm *comm, const tri_comm_op *op, int seed, void *send) {
    int64_t n = tri_comm_send_count(op, comm->size);
    for (int64_t i = 0; i < n; i++) put(op->dtype, send, i, value_of(seed, comm->rank, i));
}

static void verify(const tri_comm *comm, const tri_comm_op *op, int seed) {
    int64_t n = tri_comm_recv_count(op, comm->size);
    for (int64_t i = 0; i < n; i++) {
        int want = expected(comm, op, seed, i), got = get(op->dtype, op->recv, i);
        if (want == got) continue;
        fprintf(stderr, "rank %d of %d: %s of %lld %s: element %lld is %d, not %d\n", comm->rank,
                comm->size, tri_comm_kind_name(op->kind), (long long)op->count,
                tri_dtype_name(op->dtype), (long long)i, got, want);
        _exit(1);
    }
}

typedef struct arena { // buffers for a test's operations, all in shared or all in private memory
    char *send, *recv;
    size_t bytes;
} arena;

static arena arena_shared(tri_comm *comm, size_t bytes) {
    arena a = {.bytes = bytes};
    CHECK_OK(comm->backend->alloc(comm, bytes, (void **)&a.send));
    CHECK_OK(comm->backend->alloc(comm, bytes, (void **)&a.recv));
    for (size_t i = 0; i < bytes; i++) CHECK(a.send[i] == 0 && a.recv[i] == 0);
    return a;
}

static arena arena_private(size_t bytes) {
    return (arena){.send = malloc(bytes), .recv = malloc(bytes), .bytes = bytes};
}

static void one(tri_comm *comm, tri_comm_op op, int seed, const arena *memory, bool in_place) {
    op.send = memory->send;
    op.recv = in_place ? memory->send : memory->recv;
    op.label = "test";
    memset(memory->send, 99, 64);
    memset(memory->recv, 99, 64);
    fill(comm, &op, seed, memory->send);
    CHECK_OK(tri_comm_run(comm, &op));
    verify(comm, &op, seed);
}

static const tri_comm_kind collectives[] = {TRI_COMM_ALL_REDUCE, TRI_COMM_REDUCE_SCATTER,
                                            TRI_COMM_ALL_GATHER, TRI_COMM_ALL_TO_ALL,
                                            TRI_COMM_BROADCAST};
enum { COLLECTIVES = 5, ARENA_BYTES = 4 << 20 };

static void body_all_ops(tri_comm *comm, ranks_table *table, void *argument) {
    arena shared = arena_shared(comm, ARENA_BYTES), own = arena_private(ARENA_BYTES);
    const int64_t counts[] = {0, 1, 3, 127, 1023, 1025, 20011, 60000};
    const tri_dtype types[] = {TRI_F32, TRI_F64, TRI_I64, TRI_I32, TRI_BF16, TRI_U8};
    int seed = 0;
    for (int k = 0; k < COLLECTIVES; k++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                tri_comm_op op = {.kind = collectives[k],
                                  .dtype = types[t],
                                  .count = counts[c],
                                  .root = seed % comm->size,
                                  .reduction = (tri_comm_reduction)(seed % 3)};
                seed++;
                if (tri_comm_kind_reduces(op.kind) && t >= 4) continue;
                one(comm, op, seed, &shared, false);
                one(comm, op, seed, &own, false);
                if (op.kind == TRI_COMM_ALL_REDUCE) {
                    one(comm, op, seed, &shared, true);
                    one(comm, op, seed, &own, true);
                }
                // The last rank uses private memory, and the other ranks use shared memory.
                one(comm, op, seed, comm->rank == comm->size - 1 ? &own : &shared, false);
            }
    CHECK_OK(tri_comm_barrier(comm, "end"));
    comm->backend->free(comm, shared.send);
    comm->backend->free(comm, shared.recv);
}

// Does operations on large data. They are larger than the staging memory of comm/shm, through which
// data pass that other ranks cannot read where they lie. They are also so large that in an
// all-reduce over comm/shm a rank that is done with its own share helps other ranks with theirs.
static void body_large(tri_comm *comm, ranks_table *table, void *argument) {
    arena shared = arena_shared(comm, 8 << 20), own = arena_private(8 << 20);
    for (int k = 0; k < COLLECTIVES; k++) {
        tri_comm_op op = {.kind = collectives[k], .dtype = TRI_F32, .count = 600001, .root = 1};
        one(comm, op, k, &shared, false);
        one(comm, op, k, &own, false);
    }
    one(comm, (tri_comm_op){.kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_F32, .count = 2000003}, 3,
        &shared, true);
    one(comm, (tri_comm_op){.kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_F32, .count = 2000003}, 3,
        &own, true);
}

// Rounds to the nearest BF16 or F16, ties to even. The value must not be NaN.
static float rounded(tri_dtype dtype, float value) {
    if (dtype == TRI_F16) return (float)(_Float16)value;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float travelling(int rank, int64_t i) {
    return (float)((double)((i * 7919 + rank * 104729) % 20011) / 997.0 - 9.7);
}

static void check_wire(tri_comm *comm, const arena *memory, tri_dtype wire, int64_t count, bool all,
                       bool accumulate) {
    int64_t parts = all ? 1 : comm->size, first = all ? 0 : comm->rank * count;
    tri_comm_op op = {.kind = all ? TRI_COMM_ALL_REDUCE : TRI_COMM_REDUCE_SCATTER,
                      .wire = wire,
                      .accumulate = accumulate,
                      .count = count,
                      .send = memory->send,
                      .recv = memory->recv,
                      .label = "wire"};
    float *send = (float *)(void *)memory->send, *recv = (float *)(void *)memory->recv;
    for (int64_t i = 0; i < parts * count; i++) send[i] = travelling(comm->rank, i);
    for (int64_t i = 0; i < count; i++) recv[i] = 0.3f * (float)i;
    CHECK_OK(tri_comm_run(comm, &op));
    for (int64_t i = 0; i < count; i++) {
        float sum = accumulate ? 0.3f * (float)i : 0;
        for (int r = 0; r < comm->size; r++) {
            float value = travelling(r, first + i);
            if (comm->size > 1) value = rounded(wire, value);
            sum = r == 0 && !accumulate ? value : sum + value;
        }
        if (all && comm->size > 1) sum = rounded(wire, sum);
        CHECK(recv[i] == sum);
    }
}

// Checks sums of F32 numbers that travel between ranks as a half type: each number is rounded when
// it leaves a rank, and added in F32.
static void body_wire(tri_comm *comm, ranks_table *table, void *argument) {
    arena shared = arena_shared(comm, 4 << 20), own = arena_private(4 << 20);
    const int64_t counts[] = {0, 1, 7, 300, 1025, 60000};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int kind = 0; kind < 3; kind++)
            for (int t = 0; t < 2; t++) {
                tri_dtype wire = t ? TRI_F16 : TRI_BF16;
                check_wire(comm, &shared, wire, counts[c], kind == 0, kind == 2);
                check_wire(comm, &own, wire, counts[c], kind == 0, kind == 2);
            }
    tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE,
                      .wire = comm->rank == 0 ? TRI_F32 : TRI_BF16,
                      .count = 3,
                      .send = own.send,
                      .recv = own.recv};
    ranks_meet(table, 0, comm->size);
    tri_status status = tri_comm_run(comm, &op);
    CHECK(comm->size == 1 ? status == TRI_OK
                          : status == TRI_MISMATCH && strstr(tri_error_message(), "by BF16"));
}

// Starts many operations, which a background thread finishes in order while the caller does other
// things.
static void body_behind(tri_comm *comm, ranks_table *table, void *argument) {
    enum { OPS = 24, N = 30000 };
    arena memory = arena_shared(comm, (size_t)OPS * N * 4);
    tri_comm_op ops[OPS];
    tri_comm_ticket tickets[OPS];
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < OPS; i++) {
            char *at = memory.send + (size_t)i * N * 4;
            ops[i] = (tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                   .dtype = TRI_F32,
                                   .count = i % 3 == 1 ? 5 : N,
                                   .send = at,
                                   .recv = at,
                                   .label = "behind"};
            fill(comm, &ops[i], i + round, at);
            CHECK_OK(comm->backend->start(comm, &ops[i], 1, &tickets[i]));
        }
        // No caller waits, so the background thread alone has to finish the operations.
        double end = ranks_seconds() + 20;
        while (!comm->backend->test(comm, tickets[OPS - 2 - OPS % 2]) && ranks_seconds() < end)
            ranks_sleep_ms(1);
        for (int i = OPS - 1; i >= 0; i--) CHECK_OK(comm->backend->wait(comm, tickets[i]));
        for (int i = 0; i < OPS; i++) {
            CHECK(comm->backend->test(comm, tickets[i]));
            verify(comm, &ops[i], i + round);
        }
        CHECK_OK(tri_comm_barrier(comm, "round"));
    }
}

// Checks that an operation ends although no thread waits for it. The calls of `test` alone could
// not end it: one call works on one chunk at most (with messages, on one window: the elements that
// are sent at a time), and the operation has more chunks or windows than there are calls.
static void body_background(tri_comm *comm, ranks_table *table, void *argument) {
    enum { N = 16 << 20, CALLS = 20 };
    int64_t step = ranks_transport ? TRI_MESSAGE_WINDOW_BYTES : TRI_SHM_CHUNK_BYTES;
    int64_t bytes = N * (int64_t)sizeof(float) / (ranks_transport ? comm->size : 1);
    float *x;
    CHECK_OK(comm->backend->alloc(comm, N * sizeof *x, (void **)&x));
    for (int i = 0; i < N; i++) x[i] = (float)(comm->rank + 1);
    tri_comm_ticket ticket;
    tri_comm_op op = {
        .kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_F32, .count = N, .send = x, .recv = x};
    CHECK_OK(comm->backend->start(comm, &op, 1, &ticket));
    CHECK(bytes / step > 2 * CALLS);
    int calls = 0;
    while (!comm->backend->test(comm, ticket)) {
        CHECK(++calls < CALLS);
        ranks_sleep_ms(10 << (calls < 10 ? calls : 10)); // grows, as sanitizers make code slow
    }
    CHECK_OK(comm->backend->wait(comm, ticket));
    for (int i = 0; i < N; i++) CHECK(x[i] == (float)(comm->size * (comm->size + 1) / 2));
}

// Every rank sends to the next rank and receives from the one before, twice, as one operation
// group: the operations that one call of `start` begins together.
static void body_cycle(tri_comm *comm, ranks_table *table, void *argument) {
    const int64_t counts[] = {0, 1, 1000, 50001, 300000};
    int size = comm->size, right = (comm->rank + 1) % size, left = (comm->rank + size - 1) % size;
    arena shared = arena_shared(comm, ARENA_BYTES), own = arena_private(ARENA_BYTES);
    for (int c = 0; c < 5; c++)
        for (int memory = 0; memory < 4; memory++) {
            int64_t n = counts[c];
            float *send = (float *)(void *)(memory & 1 ? own.send : shared.send);
            float *recv = (float *)(void *)(memory & 2 ? own.recv : shared.recv);
            for (int64_t i = 0; i < 2 * n; i++) send[i] = (float)value_of(c, comm->rank, i);
            memset(recv, 0, (size_t)(2 * n) * 4);
            tri_comm_op group[4] = {
                {.kind = TRI_COMM_SEND, .dtype = TRI_F32, .count = n, .send = send, .peer = right},
                {.kind = TRI_COMM_SEND,
                 .dtype = TRI_F32,
                 .count = n,
                 .send = send + n,
                 .peer = right},
                {.kind = TRI_COMM_RECV, .dtype = TRI_F32, .count = n, .recv = recv, .peer = left},
                {.kind = TRI_COMM_RECV,
                 .dtype = TRI_F32,
                 .count = n,
                 .recv = recv + n,
                 .peer = left}};
            tri_comm_ticket ticket;
            CHECK_OK(comm->backend->start(comm, group, 4, &ticket));
            CHECK_OK(comm->backend->wait(comm, ticket));
            for (int64_t i = 0; i < 2 * n; i++) CHECK(recv[i] == (float)value_of(c, left, i));
        }
}

// Passes a message from each rank to the next, and then runs a collective, again and again.
static void body_chain(tri_comm *comm, ranks_table *table, void *argument) {
    for (int n = 1; n < 40; n++) {
        int values[64];
        for (int i = 0; i < n; i++) values[i] = n * 100 + i;
        tri_comm_op op = {
            .dtype = TRI_I32, .count = n, .send = values, .recv = values, .label = "chain"};
        if (comm->rank > 0) {
            memset(values, 0, sizeof values);
            op.kind = TRI_COMM_RECV, op.peer = comm->rank - 1;
            CHECK_OK(tri_comm_run(comm, &op));
        }
        if (comm->rank + 1 < comm->size) {
            op.kind = TRI_COMM_SEND, op.peer = comm->rank + 1;
            CHECK_OK(tri_comm_run(comm, &op));
        }
        for (int i = 0; i < n; i++) CHECK(values[i] == n * 100 + i);
        int64_t sum = comm->rank;
        CHECK_OK(tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                   .dtype = TRI_I64,
                                                   .count = 1,
                                                   .send = &sum,
                                                   .recv = &sum}));
        CHECK(sum == comm->size * (comm->size - 1) / 2);
    }
}

static void body_random(tri_comm *comm, ranks_table *table, void *argument) {
    unsigned state = *(unsigned *)argument; // the same on all ranks
    arena shared = arena_shared(comm, 2 << 20), own = arena_private(2 << 20);
    for (int step = 0; step < 250; step++) {
        int64_t count = rand_r(&state) % 4 ? rand_r(&state) % 300 : rand_r(&state) % 60000;
        tri_comm_op op = {.kind = collectives[rand_r(&state) % COLLECTIVES],
                          .dtype = TRI_F32,
                          .count = count,
                          .root = rand_r(&state) % comm->size,
                          .reduction = (tri_comm_reduction)(rand_r(&state) % 3)};
        // Rank r uses memory that other ranks cannot see if bits r and 8 of `mask` are set. So in
        // half of the operations no rank does.
        unsigned mask = (unsigned)rand_r(&state);
        bool in_place = op.kind == TRI_COMM_ALL_REDUCE && rand_r(&state) % 2;
        one(comm, op, step, mask >> comm->rank & mask >> 8 & 1 ? &own : &shared, in_place);
    }
}

static void body_split(tri_comm *comm, ranks_table *table, void *argument) {
    float *x;
    CHECK_OK(comm->backend->alloc(comm, 400000, (void **)&x));
    tri_comm *half, *none, *pipeline;
    CHECK_OK(comm->backend->split(comm, comm->rank % 2, -comm->rank, &half));
    CHECK_OK(comm->backend->split(comm, comm->rank == 0 ? -1 : 7, 0, &none));
    CHECK((none == NULL) == (comm->rank == 0));
    int members = (comm->size + 1 - comm->rank % 2) / 2;
    CHECK(half->size == members && half->rank == members - 1 - comm->rank / 2);
    // `comm` has allocated x, and `half` was split from it, so `half` may use x. Both halves run
    // their all-reduces at the same time.
    for (int i = 0; i < 100000; i++) x[i] = (float)comm->rank;
    CHECK_OK(tri_comm_run(
        half,
        &(tri_comm_op){
            .kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_F32, .count = 100000, .send = x, .recv = x}));
    float want = 0;
    for (int r = comm->rank % 2; r < comm->size; r += 2) want += (float)r;
    for (int i = 0; i < 100000; i++) CHECK(x[i] == want);
    CHECK_OK(half->backend->split(half, half->rank / 2, 0, &pipeline));
    int64_t sum = 1;
    CHECK_OK(tri_comm_run(pipeline, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                   .dtype = TRI_I64,
                                                   .count = 1,
                                                   .send = &sum,
                                                   .recv = &sum}));
    CHECK(sum == pipeline->size);
    // An operation of the parent communicator on memory that its child `half` allocated, which some
    // of the parent's ranks have not mapped.
    float *y;
    CHECK_OK(half->backend->alloc(half, 400000, (void **)&y));
    for (int i = 0; i < 100000; i++) y[i] = 2;
    CHECK_OK(tri_comm_run(
        comm,
        &(tri_comm_op){
            .kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_F32, .count = 100000, .send = y, .recv = y}));
    for (int i = 0; i < 100000; i++) CHECK(y[i] == (float)(2 * comm->size));
    half->backend->free(half, y);
    tri_comm_close(pipeline);
    tri_comm_close(half);
    tri_comm_close(none);
    CHECK_OK(tri_comm_barrier(comm, "after split"));
}

// Checks that the bits of a sum do not depend on how the ranks divided the work: they are those of
// adding the ranks' terms (what each rank sends) in rank order.
static void body_bits(tri_comm *comm, ranks_table *table, void *argument) {
    enum { N = 100003 };
    float *x, *plain = malloc(N * sizeof *plain);
    CHECK_OK(comm->backend->alloc(comm, N * sizeof *x, (void **)&x));
    for (int64_t i = 0; i < N; i++) {
        plain[i] = 0.1f + (float)value_of(1, 0, i) / 7;
        for (int r = 1; r < comm->size; r++) plain[i] += 0.1f + (float)value_of(1, r, i) / 7;
    }
    for (int round = 0; round < 10; round++) {
        for (int64_t i = 0; i < N; i++) x[i] = 0.1f + (float)value_of(1, comm->rank, i) / 7;
        CHECK_OK(tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                   .dtype = TRI_F32,
                                                   .count = N - round,
                                                   .send = x,
                                                   .recv = x}));
        CHECK(memcmp(x, plain, (size_t)(N - round) * sizeof *x) == 0);
    }
    free(plain);
}

// Does a REDUCE_SCATTER and an ALL_GATHER in place, as training runs them on flat buffers: a rank's
// shard is a range of the whole buffer.
static void body_shards(tri_comm *comm, ranks_table *table, void *argument) {
    enum { N = 20000 };
    float *x;
    CHECK_OK(comm->backend->alloc(comm, (size_t)comm->size * N * sizeof *x, (void **)&x));
    float *mine = x + (size_t)comm->rank * N;
    for (int64_t i = 0; i < (int64_t)comm->size * N; i++) x[i] = (float)value_of(0, comm->rank, i);
    tri_comm_op ops[2] = {
        {.kind = TRI_COMM_REDUCE_SCATTER, .dtype = TRI_F32, .count = N, .send = x, .recv = mine},
        {.kind = TRI_COMM_ALL_GATHER, .dtype = TRI_F32, .count = N, .send = mine, .recv = x}};
    tri_comm_ticket ticket;
    CHECK_OK(comm->backend->start(comm, ops, 2, &ticket));
    CHECK_OK(comm->backend->wait(comm, ticket));
    for (int64_t i = 0; i < (int64_t)comm->size * N; i++)
        CHECK(x[i] == (float)reduced(TRI_REDUCE_SUM, 0, comm->size, i));
}

static void body_memory(tri_comm *comm, ranks_table *table, void *argument) {
    void *memory[8];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 8; i++) {
            CHECK_OK(comm->backend->alloc(comm, (size_t)1 << (3 * i), &memory[i]));
            CHECK((uintptr_t)memory[i] % (i >= 4 ? 4096 : 64) == 0);
            CHECK(*(char *)memory[i] == 0);
            memset(memory[i], 1, (size_t)1 << (3 * i));
        }
        for (int i = 0; i < 8; i++) comm->backend->free(comm, memory[(i * 3 + comm->rank) % 8]);
    }
    void *nothing;
    CHECK_OK(comm->backend->alloc(comm, 0, &nothing));
    CHECK(nothing);
    comm->backend->free(comm, nothing);
    CHECK(comm->backend->alloc(comm, SIZE_MAX / 2, &nothing) == TRI_NO_MEMORY);
    CHECK_OK(tri_comm_barrier(comm, "still alive"));
}

enum { CASE_SIZES = 6 };

typedef struct comm_case {
    const char *name;
    ranks_body *body;
    int sizes[CASE_SIZES]; // `body` runs on each of these numbers of ranks; 0: the list ends
    unsigned seed;         // `body` gets a pointer to it as its argument
} comm_case;

static const comm_case comm_cases[] = {
    {.name = "all kinds, types and sizes", .body = body_all_ops, .sizes = {1, 2, 3, 5, 8}},
    {.name = "larger than what is kept in between", .body = body_large, .sizes = {2, 3}},
    {.name = "sums that travel as half types", .body = body_wire, .sizes = {1, 2, 3, 5}},
    {.name = "many operations behind the caller", .body = body_behind, .sizes = {2, 5}},
    {.name = "an operation that nobody waits for", .body = body_background, .sizes = {3}},
    {.name = "messages in a circle", .body = body_cycle, .sizes = {1, 2, 3, 5, 8}},
    {.name = "messages and collectives in turn", .body = body_chain, .sizes = {4}},
    {.name = "random operations", .body = body_random, .sizes = {2, 3}, .seed = 1},
    {.name = "other random operations", .body = body_random, .sizes = {2, 3}, .seed = 2},
    {.name = "groups of ranks", .body = body_split, .sizes = {4, 5}},
    {.name = "bits of sums", .body = body_bits, .sizes = {5, 8}},
    {.name = "slices of a whole", .body = body_shards, .sizes = {3}},
    {.name = "memory", .body = body_memory, .sizes = {3}},
};
enum { COMM_CASES = sizeof comm_cases / sizeof *comm_cases };

static void comm_case_run(void **state) {
    const comm_case *row = *state;
    unsigned seed = row->seed;
    for (int i = 0; i < CASE_SIZES && row->sizes[i]; i++)
        assert_int_equal(ranks_run(row->sizes[i], NULL, row->body, &seed), 0);
}

// Runs the tests in the table comm_cases, and then the backend's own tests.
static inline int comm_cases_main(const char *group, const struct CMUnitTest *own, size_t count) {
    struct CMUnitTest tests[COMM_CASES + 16] = {0};
    assert_true(count <= 16);
    for (size_t i = 0; i < COMM_CASES; i++)
        tests[i] = (struct CMUnitTest){.name = comm_cases[i].name,
                                       .test_func = comm_case_run,
                                       .initial_state = (void *)(uintptr_t)&comm_cases[i]};
    for (size_t i = 0; i < count; i++) tests[COMM_CASES + i] = own[i];
    return _cmocka_run_group_tests(group, tests, COMM_CASES + count, NULL, NULL);
}

#endif
