// Communicators by NCCL, on emulated GPUs and a double of NCCL: what every communicator does, the
// bits of sums, ranks that disagree, and failures, all of which end.
#include "comm_cases.h"
#include "comm_draw.h"
#include "comm_mismatch.h"

#include "comm/data.h"
#include "device/cuda/cuda.h"
#include "device/device.h"
#include "device/queue.h"

// The emulated GPUs' memory is the host's, so that the cases can look at it.
typedef struct nccl_case {
    ranks_body *body;
    int sizes[CASE_SIZES];
    unsigned seed;
} nccl_case;

static tri_device *open_device(int rank) {
    tri_device *device;
    CHECK_OK(tri_device_cuda.open(&(tri_device_config){.threads = 1, .index = rank}, &device));
    return device;
}

static tri_comm *open_data(tri_comm *control, tri_device *device, unsigned also) {
    tri_comm *data;
    CHECK_OK(tri_comm_data_open(control, device, TRI_COMM_DATA_ABILITIES | also, &data));
    CHECK(strcmp(data->backend->name, control->size > 1 ? "nccl" : "staged") == 0);
    CHECK(data->backend->abilities(data) & TRI_COMM_DEVICE_MEMORY);
    return data;
}

static void close_data(tri_comm *data, tri_comm *control, tri_device *device) {
    tri_comm_data_stop(data);
    tri_comm_data_close(data, control);
    device->backend->close(device);
}

static void body_case(tri_comm *comm, ranks_table *table, void *argument) {
    nccl_case *row = argument;
    tri_device *device = open_device(comm->rank);
    tri_comm *data = open_data(comm, device, TRI_COMM_RANK_ORDER);
    row->body(data, table, &row->seed);
    ranks_meet(table, 9, comm->size);
    close_data(data, comm, device);
}

static void test_cases(void **state) {
    static nccl_case rows[] = {
        {.body = body_all_ops, .sizes = {2, 3}},
        {.body = body_large, .sizes = {2, 3}},
        {.body = body_wire, .sizes = {2, 3}},
        {.body = body_behind, .sizes = {2}},
        {.body = body_cycle, .sizes = {1, 2, 3}},
        {.body = body_chain, .sizes = {4}},
        {.body = body_random, .sizes = {1, 2, 3}, .seed = 1},
        {.body = body_random, .sizes = {4}, .seed = 2},
        {.body = body_bits, .sizes = {3, 4}},
        {.body = body_shards, .sizes = {3}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; k < CASE_SIZES && rows[i].sizes[k]; k++) {
            double begin = ranks_seconds();
            assert_int_equal(ranks_run(rows[i].sizes[k], NULL, body_case, &rows[i]), 0);
            printf("case %zu by %d ranks: %.2f s\n", i, rows[i].sizes[k], ranks_seconds() - begin);
        }
}

// Without TRI_COMM_RANK_ORDER, sums are NCCL's: near, and of whole numbers the same.
static void body_plain(tri_comm *comm, ranks_table *table, void *argument) {
    tri_device *device = open_device(comm->rank);
    tri_comm *data = open_data(comm, device, 0);
    CHECK(!(data->backend->abilities(data) & TRI_COMM_RANK_ORDER));
    unsigned seed = 3;
    body_random(data, table, &seed);
    body_shards(data, table, NULL);
    body_wire(data, table, NULL); // fails at its end, as it should
    ranks_meet(table, 9, comm->size);
    close_data(data, comm, device);
}

static void test_plain(void **state) { assert_int_equal(ranks_run(3, NULL, body_plain, NULL), 0); }

// What is sent is read after the work of the queue for which the communicator waits, and a queue
// waits for the result in turn.
static void body_after(tri_comm *comm, ranks_table *table, void *argument) {
    enum { N = 100000, ROUNDS = 20 };
    tri_device *device = open_device(comm->rank);
    tri_comm *data = open_data(comm, device, 0);
    tri_queue *queue;
    tri_ticket ticket;
    tri_comm_ticket group;
    float *x, *one, got[2];
    CHECK_OK(tri_queue_open(device, &queue));
    CHECK_OK(data->backend->alloc(data, N * sizeof *x, (void **)&x));
    CHECK_OK(data->backend->alloc(data, N * sizeof *x, (void **)&one));
    for (int i = 0; i < N; i++) one[i] = 1;
    tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE, .count = N, .send = x, .recv = x};
    float want = 0;
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_OK(device->backend->add(queue, x, one, N));
        CHECK_OK(device->backend->record(queue, &ticket));
        CHECK_OK(tri_comm_after(data, &ticket));
        CHECK_OK(data->backend->start(data, &op, 1, &group));
        ticket = tri_comm_ticket_of(data, group);
        CHECK_OK(device->backend->wait(queue, &ticket));
        want = (want + 1) * (float)comm->size;
        if (round % 5 != 4) continue;
        CHECK_OK(tri_queue_write(queue, one, one, sizeof *one));
        CHECK_OK(tri_queue_read(queue, got, x + N - 2, sizeof got));
        CHECK(got[0] == want && got[1] == want);
        CHECK_OK(device->backend->zero(queue, x, N * sizeof *x));
        want = 0;
    }
    tri_queue_close(queue);
    close_data(data, comm, device);
}

static void test_after(void **state) { assert_int_equal(ranks_run(2, NULL, body_after, NULL), 0); }

static void body_mismatch(tri_comm *comm, ranks_table *table, void *argument) {
    tri_device *device = open_device(comm->rank);
    tri_comm *data = open_data(comm, device, 0);
    ranks_meet(table, 0, comm->size);
    mismatch_call(data, argument);
    ranks_meet(table, 1, comm->size);
    close_data(data, comm, device);
}

// A message against a collective is not found: messages go another way, so that neither rank learns
// of the other's call. How such a run ends is not tested.
static void test_mismatches(void **state) {
    int left_out = 0;
    for (int i = 0; i < MISMATCHES; i++) {
        mismatch row = mismatches[i];
        if (tri_comm_kind_is_message(row.ops[0].kind) != tri_comm_kind_is_message(row.ops[1].kind))
            left_out++;
        else
            assert_int_equal(ranks_run(2, NULL, body_mismatch, &row), 0);
    }
    print_message("left out: %d of %d mismatches, a message against a collective, which nccl does "
                  "not find\n",
                  left_out, MISMATCHES);
    assert_true(left_out < MISMATCHES);
}

typedef struct fault {
    const char *how; // of EMULATED_NCCL
    bool kills;      // rank 1 ends
    bool aborts;     // rank 1 aborts
    tri_status status;
    const char *says;
} fault;

static void body_fault(tri_comm *comm, ranks_table *table, void *argument) {
    const fault *f = argument;
    static const tri_comm_kind kind = TRI_COMM_ALL_REDUCE;
    if (f->how) setenv("EMULATED_NCCL", f->how, 1);
    tri_device *device = open_device(comm->rank);
    tri_comm *data = open_data(comm, device, 0);
    float *x;
    CHECK_OK(data->backend->alloc(data, 4000, (void **)&x));
    tri_comm_op op = {
        .kind = kind, .dtype = TRI_F32, .count = 1000, .send = x, .recv = x, .label = "REDUCE a"};
    CHECK_OK(tri_comm_run(data, &op));
    ranks_meet(table, 0, comm->size);
    double begin = ranks_seconds();
    if (f->kills && comm->rank == 1) _exit(0);
    tri_status status = TRI_OK;
    if (f->aborts && comm->rank == 1) data->backend->abort(data, "rank 1: no more");
    if (!f->aborts || comm->rank != 1) status = tri_comm_run(data, &op);
    if (f->aborts && comm->rank == 1) status = data->backend->failed(data);
    CHECK(ranks_seconds() - begin < 8);
    CHECK(status == f->status);
    ranks_says(f->says);
    CHECK(data->backend->failed(data) == f->status);
    CHECK(comm->backend->failed(comm) == f->status); // the control communicator, too
    if (!f->kills) ranks_meet(table, 1, comm->size);
    close_data(data, comm, device);
}

static void test_faults(void **state) {
    static fault faults[] = {
        {.how = "error:1:2", .status = TRI_PEER_LOST, .says = "remote process exited"},
        {.how = "hang:1:2", .status = TRI_TIMEOUT, .says = "all_reduce 'REDUCE a': not done after"},
        {.aborts = true, .status = TRI_PEER_LOST, .says = "rank 1: no more"},
        {.kills = true, .status = TRI_PEER_LOST, .says = "rank 1"},
    };
    tri_shm_config config = {.timeout_ms = 2000};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        printf("fault %zu\n", i);
        assert_int_equal(ranks_run(3, &config, body_fault, &faults[i]), 0);
    }
}

int main(void) {
    setenv("TRIREME_MODULES", TRIREME_BUILD_DIR "/lib/emulated", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),  cmocka_unit_test(test_plain),
        cmocka_unit_test(test_after),  cmocka_unit_test(test_mismatches),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
