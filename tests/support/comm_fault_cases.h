// Tests that every communicator between processes has to pass: ranks that die, are late, leave,
// give up or call another operation.
#ifndef TESTS_COMM_FAULT_CASES_H
#define TESTS_COMM_FAULT_CASES_H

#include "support/comm_mismatch.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { N = 1 << 20 };

// Checks that after a failure every later call on the communicator fails with the same status.
static void check_stays(tri_comm *comm, tri_status status) {
    CHECK(tri_comm_barrier(comm, "after the failure") == status);
    int64_t x = 0;
    tri_comm_op op = {
        .kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_I64, .count = 1, .send = &x, .recv = &x};
    CHECK(tri_comm_run(comm, &op) == status);
    tri_comm *child;
    CHECK(comm->backend->split(comm, 0, 0, &child) == status && !child);
    void *memory;
    CHECK(comm->backend->alloc(comm, 100, &memory) == status && !memory);
}

// ---- a rank is killed or stopped while all ranks work

typedef struct attack_plan {
    int victim, signal, delay_ms;
    bool behind; // true: no thread waits for the operations that are in flight
} attack_plan;

static void work_until_failure(tri_comm *comm, const attack_plan *attack, float *shared,
                               float *own) {
    tri_status status = TRI_OK;
    for (int step = 0; status == TRI_OK; step++) {
        float *x = step % 3 == 1 ? own : shared;
        tri_comm_op op = {.kind = step % 4 == 3 ? TRI_COMM_ALL_GATHER : TRI_COMM_ALL_REDUCE,
                          .dtype = TRI_F32,
                          .count = step % 5 == 4 ? 2 : N / comm->size,
                          .send = x,
                          .recv = x,
                          .label = "REDUCE conv2"};
        if (op.kind == TRI_COMM_ALL_GATHER) op.send = x + (size_t)comm->rank * (size_t)op.count;
        tri_comm_ticket ticket;
        status = comm->backend->start(comm, &op, 1, &ticket);
        if (status == TRI_OK && attack->behind)
            while (!comm->backend->test(comm, ticket)) ranks_sleep_ms(1);
        if (status == TRI_OK) status = comm->backend->wait(comm, ticket);
    }
}

static void body_attacked(tri_comm *comm, ranks_table *table, void *argument) {
    const attack_plan *attack = argument;
    float *shared, *own = calloc(N, sizeof *own);
    CHECK_OK(comm->backend->alloc(comm, N * sizeof *shared, (void **)&shared));
    atomic_store(&table->notes[comm->rank], 1);
    work_until_failure(comm, attack, shared, own);
    CHECK(comm->rank != attack->victim);
    char who[64];
    snprintf(who, sizeof who, "rank %d (host ", attack->victim);
    ranks_says(who);
    ranks_says(attack->signal == SIGKILL ? " died" : " does not move");
    ranks_says("REDUCE conv2");
    ranks_says("sequence ");
    check_stays(comm, TRI_PEER_LOST);
    free(own);
}

// What the other ranks say shows that they have noticed the end, or the missing signs of life, and
// not the end of their time: that is minutes, and more than RANKS_LIMIT_S.
static void attack_once(int size, attack_plan attack) {
    ranks all = ranks_start(size, NULL, body_attacked, &attack);
    for (int r = 0; r < size; r++)
        while (!atomic_load(&all.table->notes[r])) ranks_sleep_ms(1);
    ranks_sleep_ms(attack.delay_ms);
    kill(all.pids[attack.victim], attack.signal);
    double begin = ranks_seconds();
    for (int r = 0; r < size; r++)
        if (r != attack.victim) assert_int_equal(ranks_join(&all, r, RANKS_LIMIT_S), 0);
    printf("rank %d of %d, signal %d after %d ms: noticed in %.2f s\n", attack.victim, size,
           attack.signal, attack.delay_ms, ranks_seconds() - begin);
    kill(all.pids[attack.victim], SIGKILL);
    assert_int_equal(ranks_join(&all, attack.victim, RANKS_LIMIT_S), 128 + SIGKILL);
    munmap(all.table, sizeof *all.table);
}

static void test_killed(void **state) {
    unsigned seed = 7;
    for (int i = 0; i < 12; i++) {
        int size = 2 + i % 3;
        attack_once(size, (attack_plan){.victim = rand_r(&seed) % size,
                                        .signal = SIGKILL,
                                        .delay_ms = rand_r(&seed) % 40,
                                        .behind = i % 2});
    }
    assert_int_equal(ranks_shared_memory(), 0);
}

// ---- ranks that disagree

static void body_mismatch(tri_comm *comm, ranks_table *table, void *argument) {
    const mismatch *row = argument;
    mismatch_call(comm, row);
    if (row->ops[0].kind == TRI_COMM_SEND && row->ops[1].kind == TRI_COMM_ALL_REDUCE)
        ranks_says("all_reduce 'REDUCE a'");
    check_stays(comm, TRI_MISMATCH);
}

static void test_mismatch(void **state) { assert_int_equal(mismatch_run(body_mismatch), 0); }

// ---- ranks that do not arrive

enum { LATE_MS = 3000 }; // the ranks also have so long to start, on a busy machine

static void body_late(tri_comm *comm, ranks_table *table, void *argument) {
    CHECK_OK(tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_BARRIER, .label = "epoch 1"}));
    if (comm->rank == 1) {
        while (!atomic_load(&table->notes[0])) ranks_sleep_ms(5);
        CHECK(tri_comm_barrier(comm, "too late") == TRI_TIMEOUT);
        return;
    }
    double begin = ranks_seconds();
    tri_status status =
        tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_BARRIER, .label = "epoch 2"});
    CHECK(status == TRI_TIMEOUT);
    CHECK(ranks_seconds() - begin >= 1e-3 * LATE_MS);
    ranks_says("rank 1 (host ");
    if (!ranks_transport) { // shared memory shows what the other ranks do
        ranks_says("after barrier 'epoch 1' (sequence 2)");
        ranks_says(" waits in barrier 'epoch 2' (sequence 3), rank ");
        ranks_says(" is in barrier 'epoch 2' (sequence 3)");
    }
    ranks_says("barrier 'epoch 2' (sequence 3)");
    check_stays(comm, TRI_TIMEOUT);
    if (comm->rank == 0) atomic_store(&table->notes[0], 1);
}

static void test_timeout(void **state) {
    tri_shm_config config = {.timeout_ms = LATE_MS};
    assert_int_equal(ranks_run(3, &config, body_late, NULL), 0);
}

static void body_leaver(tri_comm *comm, ranks_table *table, void *argument) {
    atomic_store(&table->notes[comm->rank], 1);
    if (comm->rank == 1) {
        // This rank ends once all ranks have opened the communicator.
        for (int r = 0; r < comm->size; r++)
            while (!atomic_load(&table->notes[r])) ranks_sleep_ms(5);
        return;
    }
    CHECK(tri_comm_barrier(comm, "all here?") == TRI_PEER_LOST);
    ranks_says("rank 1 (host ");
}

static void test_leaver(void **state) {
    assert_int_equal(ranks_run(3, NULL, body_leaver, NULL), 0);
}

static void *abort_later(void *context) {
    tri_comm *comm = context;
    ranks_sleep_ms(100); // until the others wait, which nothing shows
    comm->backend->abort(comm, "rank 0: the data ended early");
    return NULL;
}

static void body_abort(tri_comm *comm, ranks_table *table, void *argument) {
    pthread_t thread;
    if (comm->rank == 0) {
        CHECK(pthread_create(&thread, NULL, abort_later, comm) == 0);
        pthread_join(thread, NULL);
    } else { // but for the abort, this would wait for minutes, and more than RANKS_LIMIT_S
        CHECK(tri_comm_barrier(comm, "waiting") == TRI_PEER_LOST);
    }
    CHECK(tri_comm_barrier(comm, "after") == TRI_PEER_LOST);
    CHECK(strcmp(tri_error_message(), "rank 0: the data ended early") == 0);
    check_stays(comm, TRI_PEER_LOST);
}

static void test_abort(void **state) { assert_int_equal(ranks_run(3, NULL, body_abort, NULL), 0); }

#endif
