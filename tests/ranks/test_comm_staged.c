// Checks communicators for memory that the host cannot touch (comm/staged), which send through an
// inner communicator over host memory: their results have the same bits as those of the inner one,
// operations begin only after the work that they have to wait for, and every operation ends, also
// after a failure.
#include "support/comm_draw.h"
#include "support/comm_ranks.h"

#include "comm/data.h"
#include "comm/op.h"
#include "comm/staged/staged.h"
#include "device/far/far.h"
#include "device/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { OPS = 40, MOST_COUNT = 3000, MOST_RANKS = 4 };

// What one rank uses: the communicator `native` for the host's memory, the communicator `staged`
// for the device's, and buffers in both memories.
typedef struct rig {
    tri_comm *native, *staged;
    tri_device *device;
    tri_queue *queue;
    size_t bytes; // size of each of the buffers below
    char *send, *recv, *back;
    void *far_send, *far_recv;
} rig;

static void open_rig(rig *r, tri_comm *comm) {
    tri_comm *inner;
    *r = (rig){.native = comm, .bytes = (size_t)MOST_COUNT * MOST_RANKS * 8};
    CHECK_OK(tri_device_far.open(&(tri_device_config){.threads = 1}, &r->device));
    CHECK_OK(tri_queue_open(r->device, &r->queue));
    CHECK_OK(comm->backend->split(comm, 0, comm->rank, &inner));
    CHECK_OK(tri_comm_staged_open(inner, r->device, &r->staged));
    CHECK(r->staged->rank == comm->rank && r->staged->size == comm->size);
    r->send = malloc(r->bytes);
    r->recv = malloc(r->bytes);
    r->back = malloc(r->bytes);
    CHECK_OK(r->staged->backend->alloc(r->staged, r->bytes, &r->far_send));
    CHECK_OK(r->staged->backend->alloc(r->staged, r->bytes, &r->far_recv));
}

static void close_rig(rig *r) {
    r->staged->backend->free(r->staged, r->far_send);
    r->staged->backend->free(r->staged, r->far_recv);
    tri_comm_close(r->staged);
    tri_queue_close(r->queue);
    r->device->backend->close(r->device);
    free(r->send);
    free(r->recv);
    free(r->back);
}

// Draws a random operation, which is the same on all ranks.
static tri_comm_op draw_op(const tri_comm *comm, unsigned seed, int number) {
    static const tri_comm_kind kinds[] = {TRI_COMM_ALL_REDUCE, TRI_COMM_REDUCE_SCATTER,
                                          TRI_COMM_ALL_GATHER, TRI_COMM_ALL_TO_ALL,
                                          TRI_COMM_BROADCAST,  TRI_COMM_BARRIER};
    static const tri_dtype dtypes[] = {TRI_F32, TRI_F64, TRI_BF16};
    tri_comm_op op = {.kind = kinds[draw(seed, number, 0, 6)],
                      .reduction = (tri_comm_reduction)draw(seed, number, 1, 3),
                      .dtype = dtypes[draw(seed, number, 2, 3)],
                      .count = draw(seed, number, 3, 4) ? draw(seed, number, 4, MOST_COUNT) : 0,
                      .root = (int)draw(seed, number, 5, (uint32_t)comm->size),
                      .label = "test"};
    bool sums = tri_comm_kind_reduces(op.kind) && op.reduction == TRI_REDUCE_SUM;
    if (sums && op.dtype == TRI_F32 && draw(seed, number, 6, 3) == 0) op.wire = TRI_BF16;
    if (sums && op.kind == TRI_COMM_REDUCE_SCATTER && op.dtype != TRI_BF16)
        op.accumulate = draw(seed, number, 7, 2);
    return op;
}

static void body_same_bits(tri_comm *comm, ranks_table *table, void *argument) {
    unsigned seed = *(const unsigned *)argument;
    rig r;
    open_rig(&r, comm);
    for (int i = 0; i < OPS; i++) {
        tri_comm_op op = draw_op(comm, seed, i), far = op;
        size_t width = tri_dtype_bytes(op.dtype);
        int64_t sent = tri_comm_send_count(&op, comm->size),
                received = tri_comm_recv_count(&op, comm->size);
        uint64_t key = seed * 1000 + (uint64_t)i * 10 + (uint64_t)comm->rank;
        draw_numbers(r.send, op.dtype, sent, key);
        draw_numbers(r.recv, op.dtype, received, key + 7777);
        CHECK_OK(tri_queue_write(r.queue, r.far_send, r.send, (size_t)sent * width));
        CHECK_OK(tri_queue_write(r.queue, r.far_recv, r.recv, (size_t)received * width));
        op.send = r.send;
        op.recv = r.recv;
        far.send = r.far_send;
        far.recv = r.far_recv;
        CHECK_OK(tri_comm_run(r.native, &op));
        CHECK_OK(tri_comm_run(r.staged, &far));
        CHECK_OK(tri_queue_read(r.queue, r.back, r.far_recv, (size_t)received * width));
        CHECK(memcmp(r.back, r.recv, (size_t)received * width) == 0);
    }
    close_rig(&r);
}

static void test_same_bits(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= 3; seed++)
        for (int size = 1; size <= MOST_RANKS; size++)
            assert_int_equal(ranks_run(size, NULL, body_same_bits, &seed), 0);
}

// Each rank starts a send to the next rank and then a receive, each as an operation group of its
// own. No send may keep the receive behind it from being started.
static void body_ring(tri_comm *comm, ranks_table *table, void *argument) {
    enum { TURNS = 20 };
    rig r;
    open_rig(&r, comm);
    int next = (comm->rank + 1) % comm->size, before = (comm->rank + comm->size - 1) % comm->size;
    double mine[TURNS], got[TURNS];
    tri_comm_ticket sends[TURNS], receives[TURNS];
    for (int i = 0; i < TURNS; i++) mine[i] = 100 * comm->rank + i;
    CHECK_OK(tri_queue_write(r.queue, r.far_send, mine, sizeof mine));
    for (int i = 0; i < TURNS; i++) {
        double *from = (double *)r.far_send + i, *to = (double *)r.far_recv + i;
        tri_comm_op send = {.kind = TRI_COMM_SEND, .dtype = TRI_F64, .count = 1, .send = from},
                    receive = {.kind = TRI_COMM_RECV, .dtype = TRI_F64, .count = 1, .recv = to};
        send.peer = next;
        receive.peer = before;
        CHECK_OK(r.staged->backend->start(r.staged, &send, 1, &sends[i]));
        CHECK_OK(r.staged->backend->start(r.staged, &receive, 1, &receives[i]));
    }
    for (int i = 0; i < TURNS; i++) {
        CHECK_OK(r.staged->backend->wait(r.staged, receives[i]));
        CHECK_OK(r.staged->backend->wait(r.staged, sends[i]));
        CHECK(r.staged->backend->test(r.staged, sends[i]));
    }
    CHECK_OK(tri_queue_read(r.queue, got, r.far_recv, sizeof got));
    for (int i = 0; i < TURNS; i++) CHECK(got[i] == 100 * before + i);
    close_rig(&r);
}

static void test_ring(void **state) {
    (void)state;
    assert_int_equal(ranks_run(2, NULL, body_ring, NULL), 0);
    assert_int_equal(ranks_run(3, NULL, body_ring, NULL), 0);
}

// A ticket whose work is done once the variable `source` is not 0. Waiting for a ticket with
// the number 7 fails.
static bool opened(void *source, uint64_t number) {
    (void)number;
    return atomic_load((_Atomic int *)source);
}

static tri_status open_or_fail(void *source, uint64_t number) {
    if (number == 7) return TRI_FAIL(TRI_IO, "what it waits for failed");
    while (!opened(source, number)) ranks_sleep_ms(1);
    return TRI_OK;
}

static const tri_ticket_kind gate_kind = {.wait = open_or_fail, .is_done = opened};

// An operation waits for a ticket before it reads the data that it sends, and a device's queue then
// waits for the operation's result.
static void body_after(tri_comm *comm, ranks_table *table, void *argument) {
    rig r;
    _Atomic int gate = 0;
    float one = 1, two = 2, got;
    tri_ticket ticket = {&gate_kind, &gate, 1};
    tri_comm_ticket group;
    open_rig(&r, comm);
    tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_F32, .count = 1};
    op.send = op.recv = r.far_send;
    CHECK_OK(tri_queue_write(r.queue, r.far_send, &one, sizeof one));
    CHECK_OK(tri_comm_after(r.staged, &ticket));
    CHECK_OK(r.staged->backend->start(r.staged, &op, 1, &group));
    ranks_sleep_ms(20);
    CHECK(!r.staged->backend->test(r.staged, group));
    CHECK_OK(tri_queue_write(r.queue, r.far_send, &two, sizeof two));
    ticket = tri_comm_ticket_of(r.staged, group);
    CHECK_OK(tri_device_far.wait(r.queue, &ticket));
    atomic_store(&gate, 1);
    CHECK_OK(tri_queue_read(r.queue, &got, r.far_send, sizeof got));
    CHECK(got == 2 * (float)comm->size);
    close_rig(&r);
}

static void test_after(void **state) {
    (void)state;
    assert_int_equal(ranks_run(2, NULL, body_after, NULL), 0);
}

// If the work of a ticket has failed already, tri_comm_after returns its failure. Stopping the
// communicator ends all waits for it, also those of the device's queues.
static void body_failure(tri_comm *comm, ranks_table *table, void *argument) {
    rig r;
    _Atomic int gate = 1, never = 0;
    tri_ticket broken = {&gate_kind, &gate, 7}, closed = {&gate_kind, &never, 1};
    tri_comm_ticket group;
    tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_F32, .count = 1};
    open_rig(&r, comm);
    op.send = op.recv = r.far_send;
    CHECK(tri_comm_after(r.staged, &broken) == TRI_IO);
    CHECK_OK(tri_comm_after(r.staged, &closed));
    CHECK_OK(r.staged->backend->start(r.staged, &op, 1, &group));
    tri_ticket result = tri_comm_ticket_of(r.staged, group);
    CHECK_OK(tri_device_far.wait(r.queue, &result));
    tri_comm_data_stop(r.staged);
    CHECK(r.staged->backend->wait(r.staged, group) == TRI_PEER_LOST);
    CHECK(tri_queue_finish(r.queue) == TRI_PEER_LOST);
    CHECK(r.staged->backend->failed(r.staged) == TRI_PEER_LOST);
    CHECK(r.staged->backend->start(r.staged, &op, 1, &group) == TRI_PEER_LOST);
    tri_comm_data_stop(comm); // does nothing, because `comm` is not staged
    close_rig(&r);
    CHECK_OK(tri_comm_barrier(comm, "the inner family lives on"));
}

static void test_failure(void **state) {
    (void)state;
    assert_int_equal(ranks_run(2, NULL, body_failure, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_after),
        cmocka_unit_test(test_failure),
    };
    setenv("TRIREME_FAR_DELAY_US", "200", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
