// Checks comm/pair, which makes one communicator of two: `inside` connects the ranks of a host, and
// `across` those of several hosts. Every kind of operation has the result of one communicator over
// all ranks, sums are added host by host, and failures reach every rank. All ranks run on one host;
// the test pretends that they are on several.
#include "support/comm_ranks.h"

#include "comm/op.h"
#include "comm/pair/pair.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MOST_COUNT = 70001 }; // elements of one rank: more than a pair's scratch memory holds

typedef struct shape {
    int hosts, local_size; // number of hosts, and of ranks on each host
    // True: each communicator inside a host, and each across the hosts, is opened by itself; false:
    // they are split from one communicator.
    bool separate;
    int timeout_ms;
    int victim;          // the rank that does something wrong; -1: all ranks but the first host's
    tri_comm_kind other; // the operation that some ranks call instead of the right one
} shape;

static const shape shapes[] = {
    {.hosts = 2, .local_size = 2}, {.hosts = 2, .local_size = 3},
    {.hosts = 4, .local_size = 2}, {.hosts = 2, .local_size = 2, .separate = true},
    {.hosts = 1, .local_size = 3}, {.hosts = 3, .local_size = 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

// Opens a communicator that is not split from another one, for the ranks of this rank's host or,
// with `across`, for the ranks with the same number on all hosts.
static tri_comm *open_separate(tri_comm *job, ranks_table *table, const shape *s, bool across) {
    int numbers[RANKS_MAX], host = job->rank / s->local_size;
    int local_rank = job->rank % s->local_size, size = across ? s->hosts : s->local_size;
    char name[32];
    for (int r = 0; r < size; r++)
        numbers[r] = across ? r * s->local_size + local_rank : host * s->local_size + r;
    snprintf(name, sizeof name, "%s %d", across ? "across" : "inside", across ? local_rank : host);
    tri_comm_meeting meeting = {.context = table, .set = ranks_set, .get = ranks_get};
    tri_shm_config config = {
        .job_ranks = numbers, .group = name, .control = job, .timeout_ms = s->timeout_ms};
    tri_comm *out;
    CHECK_OK(tri_comm_shm_open_at(across ? host : local_rank, size, &meeting, &config, &out));
    return out;
}

static tri_comm *open_pair(tri_comm *job, ranks_table *table, const shape *s) {
    tri_comm_pair levels = {0};
    tri_comm *pair;
    CHECK(job->size == s->hosts * s->local_size);
    if (s->separate) {
        levels.inside = open_separate(job, table, s, false);
        levels.across = open_separate(job, table, s, true);
    } else {
        CHECK_OK(job->backend->split(job, job->rank / s->local_size, job->rank, &levels.inside));
        CHECK_OK(job->backend->split(job, job->rank % s->local_size, job->rank, &levels.across));
        CHECK_OK(job->backend->split(job, 0, job->rank, &levels.direct));
    }
    CHECK_OK(tri_comm_pair_open(&levels, &pair));
    CHECK(pair->rank == job->rank && pair->size == job->size);
    return pair;
}

// ---- a pair gives the same results as one communicator

// Computes element i of what rank `rank` sends: small whole numbers, whose sums are exact in every
// type and order.
static int value_of(int seed, int rank, int64_t i) {
    return (int)((i * 7 + rank * 5 + seed * 3) % 15) - 7;
}

static void put(tri_dtype dtype, char *memory, int64_t i, int value) {
    void *at = memory;
    if (dtype == TRI_F32) ((float *)at)[i] = (float)value;
    if (dtype == TRI_F64) ((double *)at)[i] = value;
    if (dtype == TRI_I64) ((int64_t *)at)[i] = value;
    if (dtype == TRI_I32) ((int32_t *)at)[i] = value;
    if (dtype == TRI_U8) ((signed char *)at)[i] = (signed char)value;
    if (dtype == TRI_BF16) { // the upper half of the bits of an F32
        float wide = (float)value;
        memcpy((uint16_t *)at + i, (char *)&wide + 2, 2);
    }
}

typedef struct rig {
    tri_comm *job, *pair;
    char *memory[4]; // send and recv for `job`, then for `pair`
} rig;

static size_t rig_bytes(const rig *r) { return (size_t)r->job->size * MOST_COUNT * 8 + 64; }

static void open_rig(rig *r, tri_comm *job, ranks_table *table, const shape *s) {
    *r = (rig){.job = job, .pair = open_pair(job, table, s)};
    for (int i = 0; i < 4; i++) {
        tri_comm *from = i < 2 ? job : r->pair;
        CHECK_OK(from->backend->alloc(from, rig_bytes(r), (void **)&r->memory[i]));
    }
}

static void close_rig(rig *r) {
    for (int i = 0; i < 4; i++) {
        tri_comm *from = i < 2 ? r->job : r->pair;
        from->backend->free(from, r->memory[i]);
    }
    tri_comm_close(r->pair);
}

// Sets send and recv of an operation of `job` (`which` is 0) or `pair` (1). `in_place`: they
// overlap, if comm.h allows this for the kind of operation.
static void set_buffers(const rig *r, tri_comm_op *op, int which, bool in_place) {
    char *send = r->memory[2 * which], *recv = r->memory[2 * which + 1];
    size_t own = (size_t)r->job->rank * (size_t)op->count * tri_dtype_bytes(op->dtype);
    op->send = send;
    op->recv = recv;
    if (!in_place) return;
    if (op->kind == TRI_COMM_ALL_REDUCE || op->kind == TRI_COMM_BROADCAST) op->recv = send;
    if (op->kind == TRI_COMM_REDUCE_SCATTER) op->recv = send + own;
    if (op->kind == TRI_COMM_ALL_GATHER) op->send = recv + own;
}

static void compare(rig *r, tri_comm_op op, int seed, bool in_place) {
    tri_comm_op ops[2] = {op, op};
    size_t width = tri_dtype_bytes(op.dtype);
    int64_t sent = tri_comm_send_count(&op, r->job->size);
    int64_t received = tri_comm_recv_count(&op, r->job->size);
    for (int which = 0; which < 2; which++) {
        tri_comm *comm = which ? r->pair : r->job;
        set_buffers(r, &ops[which], which, in_place);
        ops[which].label = "TEST";
        for (int64_t i = 0; i < received; i++) put(op.dtype, ops[which].recv, i, (int)(i % 3));
        for (int64_t i = 0; i < sent; i++)
            put(op.dtype, (char *)(uintptr_t)ops[which].send, i, value_of(seed, comm->rank, i));
        CHECK_OK(tri_comm_run(comm, &ops[which]));
    }
    if (memcmp(ops[0].recv, ops[1].recv, (size_t)received * width) == 0) return;
    fprintf(stderr, "rank %d of %d: %s of %lld %s%s%s differs\n", r->job->rank, r->job->size,
            tri_comm_kind_name(op.kind), (long long)op.count, tri_dtype_name(op.dtype),
            in_place ? " in place" : "", op.accumulate ? ", accumulated," : "");
    _exit(1);
}

static const tri_comm_kind collectives[] = {TRI_COMM_ALL_REDUCE, TRI_COMM_REDUCE_SCATTER,
                                            TRI_COMM_ALL_GATHER, TRI_COMM_ALL_TO_ALL,
                                            TRI_COMM_BROADCAST};
enum { COLLECTIVES = sizeof collectives / sizeof *collectives };

static void body_all_kinds(tri_comm *job, ranks_table *table, void *argument) {
    static const int64_t counts[] = {0, 1, 2, 3, 127, 1025, MOST_COUNT};
    static const tri_dtype types[] = {TRI_F32, TRI_F64, TRI_I64, TRI_I32, TRI_BF16, TRI_U8};
    rig r;
    int seed = 0;
    open_rig(&r, job, table, argument);
    for (int k = 0; k < COLLECTIVES; k++)
        for (int t = 0; t < 6; t++)
            for (int c = 0; c < 7; c++) {
                tri_comm_op op = {.kind = collectives[k],
                                  .dtype = types[t],
                                  .count = counts[c],
                                  .root = seed % job->size,
                                  .reduction = (tri_comm_reduction)(seed % 3)};
                seed++;
                bool reduces = tri_comm_kind_reduces(op.kind);
                if ((reduces && types[t] == TRI_U8) || (c == 6 && t > 0)) continue;
                compare(&r, op, seed, false);
                if (op.kind != TRI_COMM_ALL_TO_ALL) compare(&r, op, seed, true);
                if (!reduces) continue;
                op.reduction = TRI_REDUCE_SUM;
                if (types[t] == TRI_F32) op.wire = TRI_BF16;
                compare(&r, op, seed, false);
                op.accumulate = op.kind == TRI_COMM_REDUCE_SCATTER && t < 2;
                compare(&r, op, seed, false);
            }
    CHECK_OK(tri_comm_barrier(r.pair, "end"));
    close_rig(&r);
}

static void test_all_kinds(void **state) {
    for (int i = 0; i < SHAPES; i++) {
        shape s = shapes[i];
        assert_int_equal(ranks_run(s.hosts * s.local_size, NULL, body_all_kinds, &s), 0);
    }
}

// ---- the order of sums, and the abilities that the communicator reports

static float uneven(int rank, int64_t i) {
    uint32_t mixed = (uint32_t)(rank * 7919) + (uint32_t)i * 2654435761u;
    mixed = (mixed ^ mixed >> 15) * 2246822519u;
    return ((float)(mixed >> 8) - 8388608.0f) * 0x1.3p-20f / (float)(mixed % 13 + 1);
}

static float sum_of_host(const shape *s, int host, int64_t i) {
    float sum = uneven(host * s->local_size, i);
    for (int l = 1; l < s->local_size; l++) sum += uneven(host * s->local_size + l, i);
    return sum;
}

static void body_order(tri_comm *job, ranks_table *table, void *argument) {
    enum { N = 3001 };
    const shape *s = argument;
    static float send[8 * N], recv[N];
    tri_comm *pair = open_pair(job, table, s);
    bool is_flat = s->hosts == 1 || s->local_size == 1, differs = false;
    unsigned can = pair->backend->abilities(pair);
    CHECK(!(can & TRI_COMM_RANK_ORDER) == !is_flat);
    CHECK(can & TRI_COMM_ACCUMULATES && can & TRI_COMM_WIRE_TYPES && can & TRI_COMM_HOST_MEMORY);
    CHECK(!(can & TRI_COMM_DEVICE_MEMORY));
    for (int64_t i = 0; i < job->size * N; i++) send[i] = uneven(job->rank, i);
    for (int scatters = 0; scatters < 2; scatters++) {
        CHECK_OK(tri_comm_run(
            pair, &(tri_comm_op){.kind = scatters ? TRI_COMM_REDUCE_SCATTER : TRI_COMM_ALL_REDUCE,
                                 .count = N,
                                 .send = send,
                                 .recv = recv}));
        for (int64_t i = 0; i < N; i++) {
            int64_t at = scatters ? job->rank * N + i : i;
            float want = sum_of_host(s, 0, at), plain = uneven(0, at);
            for (int h = 1; h < s->hosts; h++) want += sum_of_host(s, h, at);
            for (int r = 1; r < job->size; r++) plain += uneven(r, at);
            CHECK(memcmp(&want, &recv[i], sizeof want) == 0);
            differs = differs || want != plain;
        }
    }
    CHECK(differs == !is_flat);
    tri_comm_close(pair);
}

static void test_order(void **state) {
    for (int i = 0; i < SHAPES; i++) {
        shape s = shapes[i];
        assert_int_equal(ranks_run(s.hosts * s.local_size, NULL, body_order, &s), 0);
    }
}

// ---- many operations at once

// Starts, by turns, a group of messages to and from every rank and an all-reduce. Then no thread
// waits: one only tests the last all-reduce every 50 ms. So the communicator's own thread has to
// advance the operations.
static void body_mixed(tri_comm *job, ranks_table *table, void *argument) {
    enum { ROUNDS = 6, N = 4001 };
    int size = job->size, me = job->rank;
    static int64_t out[8][N], in[8][N], sums[ROUNDS][N];
    tri_comm *pair = open_pair(job, table, argument);
    tri_comm_ticket tickets[ROUNDS][2];
    for (int round = 0; round < ROUNDS; round++) {
        int64_t count = round % 2 ? N : 3;
        tri_comm_op group[16];
        for (int r = 0; r < size; r++) {
            for (int i = 0; i < N && round == 0; i++) out[r][i] = me * 1000 + r * 10 + i;
            group[2 * r] = (tri_comm_op){
                .kind = TRI_COMM_SEND, .dtype = TRI_I64, .count = count, .send = out[r], .peer = r};
            group[2 * r + 1] = (tri_comm_op){
                .kind = TRI_COMM_RECV, .dtype = TRI_I64, .count = count, .recv = in[r], .peer = r};
        }
        CHECK_OK(pair->backend->start(pair, group, 2 * size, &tickets[round][0]));
        for (int i = 0; i < N; i++) sums[round][i] = me + i + round;
        tri_comm_op sum = {.kind = TRI_COMM_ALL_REDUCE,
                           .dtype = TRI_I64,
                           .count = count,
                           .send = sums[round],
                           .recv = sums[round]};
        CHECK_OK(pair->backend->start(pair, &sum, 1, &tickets[round][1]));
    }
    double end = ranks_seconds() + 20;
    while (!pair->backend->test(pair, tickets[ROUNDS - 1][1]) && ranks_seconds() < end)
        ranks_sleep_ms(50);
    for (int round = ROUNDS - 1; round >= 0; round--)
        for (int k = 1; k >= 0; k--) CHECK_OK(pair->backend->wait(pair, tickets[round][k]));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < N; i++) CHECK(in[r][i] == r * 1000 + me * 10 + i);
    for (int round = 0; round < ROUNDS; round++)
        for (int64_t i = 0; i < (round % 2 ? N : 3); i++)
            CHECK(sums[round][i] == size * (size - 1) / 2 + size * (i + round));
    tri_comm_close(pair);
}

static void test_mixed(void **state) {
    for (int i = 0; i < SHAPES; i++) {
        shape s = shapes[i];
        if (s.separate) continue; // such a pair has no direct communicator for messages
        assert_int_equal(ranks_run(s.hosts * s.local_size, NULL, body_mixed, &s), 0);
    }
}

static void body_no_direct(tri_comm *job, ranks_table *table, void *argument) {
    tri_comm *pair = open_pair(job, table, argument);
    int64_t x = job->rank, y = -1;
    int beside = job->rank ^ 1, opposite = job->rank ^ 3;
    tri_comm_op group[2] = {
        {.kind = TRI_COMM_SEND, .dtype = TRI_I64, .count = 1, .send = &x, .peer = beside},
        {.kind = TRI_COMM_RECV, .dtype = TRI_I64, .count = 1, .recv = &y, .peer = beside}};
    tri_comm_ticket ticket;
    CHECK_OK(pair->backend->start(pair, group, 2, &ticket));
    CHECK_OK(pair->backend->wait(pair, ticket));
    CHECK(y == beside);
    tri_comm *child; // the communicator of ranks 0, 1 and 2, or that of rank 3 alone
    CHECK(pair->backend->split(pair, job->rank == 3, job->rank, &child) ==
          (job->rank == 3 ? TRI_OK : TRI_UNSUPPORTED));
    tri_comm_close(child);
    CHECK_OK(tri_comm_barrier(pair, "all have received"));
    ranks_meet(table, 0, 4);
    group[0].peer = opposite;
    CHECK(tri_comm_run(pair, &group[0]) == TRI_UNSUPPORTED);
    ranks_says("neither level");
    tri_comm_close(pair);
}

static void test_no_direct(void **state) {
    shape s = {.hosts = 2, .local_size = 2, .separate = true};
    assert_int_equal(ranks_run(4, NULL, body_no_direct, &s), 0);
}

// ---- splitting

static void body_split(tri_comm *job, ranks_table *table, void *argument) {
    tri_comm *pair = open_pair(job, table, argument), *child;
    // The groups of three splits of 4 hosts with 2 ranks each: the first two hosts and the last
    // two; the ranks with the same number on their hosts; groups of different sizes, ranks 4 and 5
    // in none.
    const int colours[3][8] = {
        {0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 0, 1, 0, 1, 0, 1}, {0, 0, 0, 0, -1, -1, 2, 2}};
    for (int k = 0; k < 3; k++) {
        CHECK_OK(pair->backend->split(pair, colours[k][job->rank], job->rank, &child));
        CHECK((child == NULL) == (colours[k][job->rank] < 0));
        if (!child) continue;
        int64_t sum = job->rank, want = 0;
        int members = 0;
        for (int r = 0; r < 8; r++)
            if (colours[k][r] == colours[k][job->rank]) {
                CHECK(tri_comm_job_rank(child, members) == r);
                want += r;
                members++;
            }
        CHECK(child->size == members);
        CHECK_OK(tri_comm_run(child, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                    .dtype = TRI_I64,
                                                    .count = 1,
                                                    .send = &sum,
                                                    .recv = &sum}));
        CHECK(sum == want);
        tri_comm_close(child);
    }
    CHECK(pair->backend->split(pair, 0, -job->rank, &child) == TRI_OK); // in reverse order
    tri_comm_close(child);
    // The group of all ranks except rank 3 does not contain the same local ranks of each host. So
    // it cannot have two levels, and runs all operations on the direct communicator.
    CHECK_OK(pair->backend->split(pair, job->rank == 3, job->rank, &child));
    CHECK(child->size == (job->rank == 3 ? 1 : 7));
    int64_t one = 1;
    CHECK_OK(tri_comm_run(child, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                .dtype = TRI_I64,
                                                .count = 1,
                                                .send = &one,
                                                .recv = &one}));
    CHECK(one == child->size);
    int64_t mine = child->rank, left = -1, size = child->size;
    tri_comm_op ring[2] = {{.kind = TRI_COMM_SEND,
                            .dtype = TRI_I64,
                            .count = 1,
                            .send = &mine,
                            .peer = (int)((mine + 1) % size)},
                           {.kind = TRI_COMM_RECV,
                            .dtype = TRI_I64,
                            .count = 1,
                            .recv = &left,
                            .peer = (int)((mine + size - 1) % size)}};
    tri_comm_ticket ticket;
    CHECK_OK(child->backend->start(child, ring, 2, &ticket));
    CHECK_OK(child->backend->wait(child, ticket));
    CHECK(left == (mine + size - 1) % size);
    tri_comm *grandchild;
    CHECK_OK(child->backend->split(child, child->rank % 2, child->rank, &grandchild));
    CHECK_OK(tri_comm_barrier(grandchild, "grandchild"));
    tri_comm_close(grandchild);
    tri_comm_close(child);
    CHECK_OK(tri_comm_barrier(pair, "still alive"));
    tri_comm_close(pair);
}

static void test_split(void **state) {
    shape s = {.hosts = 4, .local_size = 2};
    assert_int_equal(ranks_run(8, NULL, body_split, &s), 0);
}

// ---- failures

static void body_mismatch(tri_comm *job, ranks_table *table, void *argument) {
    const shape *s = argument;
    tri_comm *pair = open_pair(job, table, s);
    CHECK(pair->backend->abilities(pair) & TRI_COMM_FINDS_MISMATCHES);
    // The mismatch below ends every communicator split from `job`, so no rank may still open one.
    ranks_meet(table, 1, job->size);
    static int64_t x[64];
    // Inside a host, an operation of 4 elements and one of 5 are divided into slices of the same
    // size. So the mismatch is found only because the ranks also compare the whole calls.
    tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE,
                      .dtype = TRI_I64,
                      .count = 4,
                      .send = x,
                      .recv = x,
                      .label = "REDUCE a"};
    bool differs = s->victim < 0 ? job->rank >= s->local_size : job->rank == s->victim;
    if (differs && s->other == TRI_COMM_ALL_REDUCE) op.count = 5;
    if (differs) op.kind = s->other;
    tri_status status = tri_comm_run(pair, &op);
    // A broadcast need not wait for all ranks, so a rank may end it before the mismatch is noticed.
    // The rank's next operation then fails.
    if (status == TRI_OK && op.kind == TRI_COMM_BROADCAST) status = tri_comm_barrier(pair, "next");
    CHECK(status == TRI_MISMATCH);
    char what[64];
    snprintf(what, sizeof what, ") calls %s 'REDUCE a'", tri_comm_kind_name(s->other));
    ranks_says(what);
    ranks_says(s->other == TRI_COMM_ALL_REDUCE ? "' of 5 I64" : "' of 4 I64");
    ranks_says(") calls all_reduce 'REDUCE a' of 4 I64 (sum)");
    if (s->victim >= 0) {
        snprintf(what, sizeof what, "rank %d (host ", s->victim);
        ranks_says(what);
    }
    CHECK(tri_comm_barrier(pair, "after") == TRI_MISMATCH);
    ranks_meet(table, 0, job->size);
    tri_comm_close(pair);
}

// One rank, or all ranks except those of the first host, call another operation than the others.
// This is tested with several kinds of other operations. All ranks must report the mismatch.
static void test_mismatch(void **state) {
    static const tri_comm_kind others[] = {TRI_COMM_ALL_REDUCE, TRI_COMM_REDUCE_SCATTER,
                                           TRI_COMM_ALL_GATHER, TRI_COMM_ALL_TO_ALL,
                                           TRI_COMM_BROADCAST};
    for (size_t i = 0; i < 2 * sizeof others / sizeof *others; i++) {
        shape s = shapes[i % 4];
        s.other = others[i / 2];
        s.victim = i % 2 ? -1 : s.hosts * s.local_size - 1;
        if (s.hosts == 1) s.victim = s.local_size - 1;
        assert_int_equal(ranks_run(s.hosts * s.local_size, NULL, body_mismatch, &s), 0);
    }
}

static tri_status work_until_failure(tri_comm *pair) {
    static float x[8 * 5000], y[8 * 5000];
    tri_status status = TRI_OK;
    for (int step = 0; status == TRI_OK; step++) {
        tri_comm_op op = {.kind = collectives[step % COLLECTIVES],
                          .count = step % 4 ? 5000 : 2,
                          .send = x,
                          .recv = y,
                          .label = "TRAFFIC"};
        tri_comm_ticket ticket;
        status = pair->backend->start(pair, &op, 1, &ticket);
        if (status == TRI_OK && step % 3 == 0)
            while (!pair->backend->test(pair, ticket)) ranks_sleep_ms(1);
        if (status == TRI_OK) status = pair->backend->wait(pair, ticket);
    }
    return status;
}

static void body_killed(tri_comm *job, ranks_table *table, void *argument) {
    const shape *s = argument;
    tri_comm *pair = open_pair(job, table, s);
    CHECK_OK(tri_comm_barrier(pair, "begin"));
    atomic_store(&table->notes[job->rank], 1);
    tri_status status = work_until_failure(pair);
    CHECK(status == TRI_PEER_LOST && job->rank != s->victim);
    char who[64];
    snprintf(who, sizeof who, "rank %d (host ", s->victim);
    ranks_says(who);
    ranks_says(" died ");
    CHECK(tri_comm_barrier(pair, "after") == TRI_PEER_LOST);
    ranks_says(who);
    ranks_meet(table, RANKS_MAX - 1, job->size - 1);
    tri_comm_close(pair);
}

static void test_killed(void **state) {
    for (int i = 0; i < 8; i++) {
        shape s = shapes[i % 4];
        int size = s.hosts * s.local_size;
        s.victim = i * 5 % size;
        ranks all = ranks_start(size, NULL, body_killed, &s);
        for (int r = 0; r < size; r++)
            while (!atomic_load(&all.table->notes[r])) ranks_sleep_ms(1);
        ranks_sleep_ms(i * 3);
        kill(all.pids[s.victim], SIGKILL);
        for (int r = 0; r < size; r++)
            if (r != s.victim) assert_int_equal(ranks_join(&all, r, RANKS_LIMIT_S), 0);
        ranks_join(&all, s.victim, RANKS_LIMIT_S);
        munmap(all.table, sizeof *all.table);
    }
}

static void body_abort(tri_comm *job, ranks_table *table, void *argument) {
    tri_comm *pair = open_pair(job, table, argument);
    CHECK_OK(tri_comm_barrier(pair, "begin"));
    ranks_meet(table, 1, job->size);
    if (job->rank == 1) pair->backend->abort(pair, "rank 1: the data ended early");
    CHECK(tri_comm_barrier(pair, "STEP") == TRI_PEER_LOST);
    CHECK(strcmp(tri_error_message(), "rank 1: the data ended early") == 0);
    CHECK(pair->backend->failed(pair) == TRI_PEER_LOST);
    ranks_meet(table, 0, job->size);
    tri_comm_close(pair);
}

static void test_abort(void **state) {
    for (int i = 0; i < 4; i++) {
        shape s = shapes[i];
        assert_int_equal(ranks_run(s.hosts * s.local_size, NULL, body_abort, &s), 0);
    }
}

// One rank computes and never joins an operation. All other ranks name it as the cause, also those
// that share neither of the two communicators (inside the host, across hosts) with it.
static void body_late(tri_comm *job, ranks_table *table, void *argument) {
    static const char forward[] = "FORWARD";
    const shape *s = argument;
    tri_comm *pair = open_pair(job, table, s);
    CHECK_OK(tri_comm_barrier(pair, "begin"));
    if (job->rank == s->victim) {
        tri_ledger_begin(job->ledger, &(tri_ledger_action){.kind = forward, .label = "block3"});
        while (atomic_load(&table->notes[0]) < job->size - 1) ranks_sleep_ms(5);
    } else {
        CHECK(tri_comm_barrier(pair, "STEP") == TRI_TIMEOUT);
        char who[64];
        snprintf(who, sizeof who, "rank %d (host ", s->victim);
        ranks_says(who);
        ranks_says(" did not join in 3 s (comm.timeout_s); it is in FORWARD 'block3'");
        atomic_fetch_add(&table->notes[0], 1);
        while (atomic_load(&table->notes[0]) < job->size - 1) ranks_sleep_ms(1);
    }
    tri_comm_close(pair);
}

static void test_late(void **state) {
    for (int i = 0; i < 4; i++) {
        shape s = shapes[i];
        s.timeout_ms = 3000; // the ranks also have so long to start, on a busy machine
        s.victim = i == 3 ? 0 : s.hosts * s.local_size - 1;
        tri_shm_config config = {.timeout_ms = s.timeout_ms};
        assert_int_equal(ranks_run(s.hosts * s.local_size, &config, body_late, &s), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_kinds), cmocka_unit_test(test_order),
        cmocka_unit_test(test_mixed),     cmocka_unit_test(test_no_direct),
        cmocka_unit_test(test_split),     cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_killed),    cmocka_unit_test(test_abort),
        cmocka_unit_test(test_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
