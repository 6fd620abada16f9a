// Tests communicators over messages, which a transport of sockets carries, by the cases that all
// backends have in common. It also tests a transport without a descriptor on which threads can
// sleep, and a strict one, whose sends end only once they were received.
#include "support/comm_cases.h"

#include "support/socket_transport.h"

// Runs operations on so many ranks that small data pass from rank to rank (Bruck's algorithm)
// instead of directly.
static void body_many(tri_comm *comm, ranks_table *table, void *argument) {
    arena own = arena_private(ARENA_BYTES);
    const int64_t counts[] = {0, 1, 3, 127, 600, 20011};
    int seed = 0;
    for (int k = 0; k < COLLECTIVES; k++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            tri_comm_op op = {.kind = collectives[k],
                              .dtype = TRI_F32,
                              .count = counts[c],
                              .root = seed % comm->size,
                              .reduction = (tri_comm_reduction)(seed % 3)};
            one(comm, op, ++seed, &own, op.kind == TRI_COMM_ALL_REDUCE && c % 2);
        }
    for (int i = 0; i < 100; i++) CHECK_OK(tri_comm_barrier(comm, "many"));
}

static void test_many(void **state) {
    assert_true(17 > TRI_MESSAGE_EXCHANGE_RANKS);
    assert_int_equal(ranks_run(17, NULL, body_many, NULL), 0);
    assert_int_equal(ranks_run(23, NULL, body_many, NULL), 0);
}

static void test_without_events(void **state) {
    ranks_transport = &socket_transport_without_events;
    unsigned seed = 3;
    assert_int_equal(ranks_run(3, NULL, body_random, &seed), 0);
    assert_int_equal(ranks_run(3, NULL, body_behind, NULL), 0);
    assert_int_equal(ranks_run(2, NULL, body_background, NULL), 0);
    assert_int_equal(ranks_run(5, NULL, body_split, NULL), 0);
    ranks_transport = &socket_transport;
}

// Computes sums so large that they are sent in many windows (ranges of elements), while one rank
// after the other is late.
static void body_drift(tri_comm *comm, ranks_table *table, void *argument) {
    enum { N = 6 << 20 };
    float *x = malloc(N * sizeof *x);
    for (int round = 0; round < 6; round++) {
        for (int64_t i = 0; i < N; i++) x[i] = (float)(comm->rank + i % 5);
        if (comm->rank == round % comm->size) ranks_sleep_ms(5);
        CHECK_OK(tri_comm_run(
            comm,
            &(tri_comm_op){
                .kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_F32, .count = N, .send = x, .recv = x}));
        float sum = (float)(comm->size * (comm->size - 1) / 2);
        for (int64_t i = 0; i < N; i++) CHECK(x[i] == sum + (float)(comm->size * (i % 5)));
    }
    free(x);
}

static void test_strict(void **state) {
    ranks_transport = &socket_transport_strict;
    assert_int_equal(ranks_run(2, NULL, body_drift, NULL), 0);
    assert_int_equal(ranks_run(3, NULL, body_drift, NULL), 0);
    assert_int_equal(ranks_run(3, NULL, body_all_ops, NULL), 0);
    assert_int_equal(ranks_run(3, NULL, body_wire, NULL), 0);
    assert_int_equal(ranks_run(4, NULL, body_chain, NULL), 0);
    ranks_transport = &socket_transport;
}

int main(void) {
    const struct CMUnitTest own[] = {
        cmocka_unit_test(test_strict),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_without_events),
    };
    ranks_transport = &socket_transport;
    return comm_cases_main("message", own, sizeof own / sizeof *own);
}
