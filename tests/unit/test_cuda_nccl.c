// Checks NCCL with one rank, which has one GPU: the library is found, connects, runs collectives on
// the GPU's memory in the order of the queue, and closes. With one rank, each collective copies
// what is sent to what is received. It runs on an emulated GPU with an emulated NCCL or, if
// TRIREME_TEST_GPU is set, on the GPU and the NCCL of this host.
#include "comm/nccl/nccl.h"
#include "device/cuda/cuda.h"
#include "device/queue.h"
#include "support/test_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 1 << 20 }; // the most elements of an operation

static tri_device *device;
static tri_queue *queue;
static tri_comm *comm;

static void ok(tri_status status, const char *call) {
    if (status != TRI_OK) fail_msg("%s: %s", call, tri_error_message());
}
#define OK(call) ok((call), #call)

// Opens a communicator of this rank alone. `rank_order`: sums are added in the order of ranks.
static void open_comm(bool rank_order) {
    tri_comm *compares;
    bool splits;
    OK(tri_comm_nccl_find(device, &splits));
    OK(tri_comm_self_open(&compares));
    tri_comm_nccl_config config = {.device = device, .rank_order = rank_order, .splits = splits};
    OK(tri_comm_nccl_open(compares, &config, &comm));
}

static int set_up(void **state) {
    test_gpu_choose();
    OK(tri_device_cuda.open(&(tri_device_config){.threads = 1}, &device));
    OK(tri_queue_open(device, &queue));
    return 0;
}

static int tear_down(void **state) {
    tri_queue_close(queue);
    device->backend->close(device);
    return 0;
}

// Runs one operation and compares the bits of what was received with those of what was sent.
static void run(tri_comm_op op, char *sent, char *got) {
    size_t bytes = (size_t)op.count * tri_dtype_bytes(op.dtype), room = bytes ? bytes : 1;
    void *send, *recv;
    for (size_t i = 0; i < bytes; i++) sent[i] = (char)(i * 7 % 61); // finite in each type
    OK(comm->backend->alloc(comm, room, &send));
    OK(comm->backend->alloc(comm, room, &recv));
    OK(tri_queue_write(queue, send, sent, bytes));
    op.send = send;
    op.recv = recv;
    op.label = "of one rank";
    OK(tri_comm_run(comm, &op));
    OK(tri_queue_read(queue, got, recv, bytes));
    assert_memory_equal(sent, got, room);
    comm->backend->free(comm, send);
    comm->backend->free(comm, recv);
}

static void test_collectives(void **state) {
    static const tri_comm_kind kinds[] = {TRI_COMM_ALL_REDUCE, TRI_COMM_REDUCE_SCATTER,
                                          TRI_COMM_ALL_GATHER, TRI_COMM_BROADCAST,
                                          TRI_COMM_ALL_TO_ALL};
    static const tri_dtype dtypes[] = {TRI_F32, TRI_F64, TRI_BF16, TRI_F16, TRI_I32, TRI_I64};
    static const int64_t counts[] = {0, 1, 17, MOST};
    char *sent = calloc(MOST, 8), *got = calloc(MOST, 8);
    assert_non_null(sent);
    assert_non_null(got);
    for (int rank_order = 0; rank_order < 2; rank_order++) {
        open_comm(rank_order);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                    run((tri_comm_op){.kind = kinds[k], .dtype = dtypes[d], .count = counts[c]},
                        sent, got);
        tri_comm_close(comm);
    }
    free(sent);
    free(got);
}

// All-reduces and kernels take turns: each reads what the one before has written, although the host
// does not wait between them.
static void test_order(void **state) {
    enum { N = 100000, TURNS = 20 };
    tri_ticket ticket;
    tri_comm_ticket group;
    float *x, *one, got, start = 1;
    open_comm(false);
    OK(comm->backend->alloc(comm, N * sizeof *x, (void **)&x));
    OK(comm->backend->alloc(comm, N * sizeof *x, (void **)&one));
    OK(device->backend->zero(queue, x, N * sizeof *x));
    OK(device->backend->zero(queue, one, N * sizeof *x));
    OK(tri_queue_write(queue, one + N - 1, &start, sizeof start));
    tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE, .count = N, .send = x, .recv = x};
    for (int turn = 0; turn < TURNS; turn++) {
        OK(device->backend->add(queue, x, one, N));
        OK(device->backend->record(queue, &ticket));
        OK(tri_comm_after(comm, &ticket));
        OK(comm->backend->start(comm, &op, 1, &group));
        ticket = tri_comm_ticket_of(comm, group);
        OK(device->backend->wait(queue, &ticket));
    }
    OK(tri_queue_read(queue, &got, x + N - 1, sizeof got));
    assert_true(got == TURNS);
    comm->backend->free(comm, x);
    comm->backend->free(comm, one);
    tri_comm_close(comm);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_collectives),
                                       cmocka_unit_test(test_order)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
