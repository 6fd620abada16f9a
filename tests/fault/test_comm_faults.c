// Runs every kind of communication that strategies use, while a rank is killed, stopped, or never
// returns from its computation. All other ranks have to end in time and name that rank, even if
// they wait for it only through other ranks.
#include "support/comm_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { N = 120000, PAIRS = 2, TIMEOUT_MS = 3000 };

// A rank's communicators, with all ranks and with its two pairs (see two_axes), and its buffers.
// In some rounds of the test, operations use `shared`, which lies in shared memory, else `own`.
typedef struct traffic {
    tri_comm *world, *pairs[PAIRS];
    float *shared[2], *own[2];
    int round; // counts from 0
} traffic;

typedef tri_status traffic_body(traffic *t);

static float *memory(const traffic *t, int which) {
    return t->round % 3 == 1 ? t->own[which] : t->shared[which];
}

// How many elements an operation has in this round of the test. In some rounds they are so few that
// they fit into the entry of shared memory in which a rank announces the operation. In the other
// rounds, elements that lie in shared memory are read there by other ranks; all else passes through
// the staging memory, which all ranks can read.
static int64_t elements(const traffic *t) { return t->round % 4 == 3 ? 20 : N / t->world->size; }

static tri_comm_op op_of(const traffic *t, tri_comm_kind kind) {
    return (tri_comm_op){.kind = kind,
                         .dtype = TRI_F32,
                         .count = elements(t),
                         .send = memory(t, 0),
                         .recv = memory(t, 1),
                         .label = "TRAFFIC"};
}

static tri_status start_and_wait(tri_comm *comm, const tri_comm_op *ops, int count) {
    tri_comm_ticket ticket;
    TRI_TRY(comm->backend->start(comm, ops, count, &ticket));
    return comm->backend->wait(comm, ticket);
}

static tri_status all_gather(traffic *t) {
    tri_comm_op op = op_of(t, TRI_COMM_ALL_GATHER);
    return start_and_wait(t->world, &op, 1);
}

static tri_status gather_two_types(traffic *t) {
    tri_comm_op group[2] = {op_of(t, TRI_COMM_ALL_GATHER), op_of(t, TRI_COMM_ALL_GATHER)};
    group[1].dtype = TRI_BF16;
    group[1].recv = t->own[1];
    return start_and_wait(t->world, group, 2);
}

static tri_status reduce_scatter(traffic *t) {
    tri_comm_op op = op_of(t, TRI_COMM_REDUCE_SCATTER);
    return start_and_wait(t->world, &op, 1);
}

static tri_status fold(traffic *t) {
    tri_comm_op op = op_of(t, TRI_COMM_REDUCE_SCATTER);
    op.accumulate = true;
    return start_and_wait(t->world, &op, 1);
}

static tri_status ring(traffic *t) {
    int rank = t->world->rank, size = t->world->size;
    tri_comm_op group[2] = {op_of(t, TRI_COMM_SEND), op_of(t, TRI_COMM_RECV)};
    group[0].peer = (rank + 1) % size;
    group[1].peer = (rank + size - 1) % size;
    return start_and_wait(t->world, group, 2);
}

// Sends and receives as a pipeline does, forward and then backward, with several micro-batches in
// flight.
static tri_status pipeline(traffic *t) {
    enum { FLIGHT = 4 };
    int rank = t->world->rank, last = t->world->size - 1;
    tri_comm_ticket got[FLIGHT] = {{0}}, sent[2 * FLIGHT] = {{0}};
    for (int back = 0; back < 2; back++) {
        int from = back ? rank + 1 : rank - 1, to = back ? rank - 1 : rank + 1;
        for (int m = 0; m < FLIGHT; m++) {
            tri_comm_op op = op_of(t, TRI_COMM_RECV);
            op.count /= FLIGHT;
            op.recv = memory(t, 1) + m * op.count;
            op.peer = from;
            got[m] = (tri_comm_ticket){0};
            if (from >= 0 && from <= last)
                TRI_TRY(t->world->backend->start(t->world, &op, 1, &got[m]));
        }
        for (int m = 0; m < FLIGHT; m++) {
            if (got[m].value) TRI_TRY(t->world->backend->wait(t->world, got[m]));
            tri_comm_op op = op_of(t, TRI_COMM_SEND);
            op.count /= FLIGHT;
            op.peer = to;
            if (to >= 0 && to <= last)
                TRI_TRY(t->world->backend->start(t->world, &op, 1, &sent[back * FLIGHT + m]));
        }
    }
    for (int i = 0; i < 2 * FLIGHT; i++)
        if (sent[i].value) TRI_TRY(t->world->backend->wait(t->world, sent[i]));
    return TRI_OK;
}

// Communicates as in a run whose state is sharded over two ranks and replicated twice: first in the
// pair of ranks that hold the two shards, then in the pair of ranks that hold the same shard. A
// rank that is in no pair with the lost rank waits for a rank that is.
static tri_status two_axes(traffic *t) {
    tri_comm_op scatter = op_of(t, TRI_COMM_REDUCE_SCATTER);
    TRI_TRY(start_and_wait(t->pairs[0], &scatter, 1));
    tri_comm_op sum = op_of(t, TRI_COMM_ALL_REDUCE);
    return start_and_wait(t->pairs[1], &sum, 1);
}

static const struct {
    const char *name, *says; // says: the operation as error messages have to name it
    traffic_body *body;
    int size;
} kinds[] = {
    {"all_gather", "all_gather 'TRAFFIC'", all_gather, 3},
    {"all_gather of two types", "all_gather 'TRAFFIC'", gather_two_types, 2},
    {"reduce_scatter", "reduce_scatter 'TRAFFIC'", reduce_scatter, 3},
    {"fold", "reduce_scatter 'TRAFFIC'", fold, 2},
    {"ring", " 'TRAFFIC'", ring, 3},
    {"pipeline", " 'TRAFFIC'", pipeline, 4},
    {"two axes", " 'TRAFFIC'", two_axes, 4},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef enum fault { KILLED, STOPPED, STUCK } fault;

// A fault that is caused among the ranks of one test: after delay_ms, the rank `victim` is killed,
// suspended (STOPPED), or computes for ever (STUCK). `kind` is an index into `kinds`: what the
// ranks communicate.
typedef struct attack {
    int kind, victim, delay_ms;
    fault fault;
    ranks all;
} attack;

// Behaves like a computation that never ends.
static void get_stuck(tri_comm *comm) {
    static const char forward[] = "FORWARD";
    tri_ledger_step(comm->ledger, 12);
    tri_ledger_begin(comm->ledger, &(tri_ledger_action){.kind = forward, .label = "block3"});
    for (;;) ranks_sleep_ms(1000);
}

static void body_attacked(tri_comm *comm, ranks_table *table, void *argument) {
    const attack *a = argument;
    traffic t = {.world = comm};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(comm->backend->alloc(comm, N * sizeof(float), (void **)&t.shared[i]));
        t.own[i] = calloc(N, sizeof(float));
        int colour = i ? comm->rank % 2 : comm->rank / 2;
        CHECK_OK(comm->backend->split(comm, colour, comm->rank, &t.pairs[i]));
    }
    // All ranks begin together, so that the fault comes while operations run, and not while
    // communicators are still being split.
    CHECK_OK(tri_comm_barrier(comm, "begin"));
    atomic_store(&table->notes[comm->rank], 1);
    tri_status status = TRI_OK;
    while (status == TRI_OK) {
        if (a->fault == STUCK && comm->rank == a->victim &&
            atomic_load(&table->notes[RANKS_MAX - 1]))
            get_stuck(comm);
        status = kinds[a->kind].body(&t);
        t.round++;
    }
    CHECK(comm->rank != a->victim);
    CHECK(status == (a->fault == STUCK ? TRI_TIMEOUT : TRI_PEER_LOST));
    char who[64];
    snprintf(who, sizeof who, "rank %d (host ", a->victim);
    CHECK(strncmp(tri_error_message(), who, strlen(who)) == 0 || (ranks_says(who), false));
    static const char *const verbs[] = {" died ", " does not move",
                                        " did not join in 3 s (comm.timeout_s)"};
    ranks_says(verbs[a->fault]);
    ranks_says(kinds[a->kind].says);
    ranks_says("(sequence ");
    if (a->fault == STUCK) ranks_says("it is in FORWARD 'block3' of step 12, after ");
    // Every later call on all communicators fails with the same status.
    for (int i = 0; i < PAIRS; i++) CHECK(tri_comm_barrier(t.pairs[i], "after") == status);
    CHECK(tri_comm_barrier(comm, "after") == status);
    ranks_says(who);
    // The caller closes `comm`. Its shared memory is freed only if the communicators of the pairs,
    // which were split from it, are closed too.
    for (int i = 0; i < PAIRS; i++) tri_comm_close(t.pairs[i]);
}

static void attack_begin(attack *a) {
    // That a rank is stopped is noticed when its heartbeat stops, long before the timeout.
    tri_shm_config config = {.timeout_ms = a->fault == STUCK ? TIMEOUT_MS : 0};
    a->all = ranks_start(kinds[a->kind].size, &config, body_attacked, a);
}

static void attack_strike(attack *a) {
    for (int r = 0; r < a->all.size; r++)
        while (!atomic_load(&a->all.table->notes[r])) ranks_sleep_ms(1);
    ranks_sleep_ms(a->delay_ms);
    if (a->fault == STUCK) atomic_store(&a->all.table->notes[RANKS_MAX - 1], 1);
    if (a->fault != STUCK) kill(a->all.pids[a->victim], a->fault == KILLED ? SIGKILL : SIGSTOP);
}

static void attack_end(attack *a) {
    double begin = ranks_seconds();
    int bad = 0;
    for (int r = 0; r < a->all.size; r++)
        if (r != a->victim) bad += ranks_join(&a->all, r, RANKS_LIMIT_S) != 0;
    kill(a->all.pids[a->victim], SIGKILL);
    ranks_join(&a->all, a->victim, RANKS_LIMIT_S);
    munmap(a->all.table, sizeof *a->all.table);
    print_message("%s, rank %d of %d: %.2f s\n", kinds[a->kind].name, a->victim, a->all.size,
                  ranks_seconds() - begin);
    assert_int_equal(bad, 0);
}

static void test_killed(void **state) {
    unsigned seed = 11;
    for (int i = 0; i < 2 * KINDS; i++) {
        attack a = {.kind = i % KINDS, .fault = KILLED, .delay_ms = rand_r(&seed) % 30};
        a.victim = rand_r(&seed) % kinds[a.kind].size;
        attack_begin(&a);
        attack_strike(&a);
        attack_end(&a);
    }
}

// Attacks one run for each kind of traffic. All runs go on at the same time, because ranks need
// seconds to notice that a rank is lost.
static void strike_all(fault how) {
    attack attacks[KINDS];
    unsigned seed = 5;
    for (int i = 0; i < KINDS; i++) {
        attacks[i] = (attack){.kind = i, .fault = how, .delay_ms = rand_r(&seed) % 20};
        attacks[i].victim = kinds[i].size - 1 - (int)how % 2;
        attack_begin(&attacks[i]);
    }
    for (int i = 0; i < KINDS; i++) attack_strike(&attacks[i]);
    for (int i = 0; i < KINDS; i++) attack_end(&attacks[i]);
}

static void test_stopped(void **state) { strike_all(STOPPED); }
static void test_stuck(void **state) { strike_all(STUCK); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_stuck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
