// Checks communicators over NCCL, with emulated GPUs and a test double of NCCL: what every
// communicator has to do, the bits of sums, ranks that disagree, and that no rank hangs after a
// failure.
#include "support/comm_cases.h"
#include "support/comm_draw.h"
#include "support/comm_mismatch.h"

#include "comm/data.h"
#include "device/cuda/cuda.h"
#include "device/device.h"
#include "device/queue.h"
#include "device/ref/ref.h"

#include <dlfcn.h>

// A case of comm_cases.h that runs over NCCL on each of the numbers of ranks in `sizes`. The
// emulated GPUs' memory is the host's, so that the case can read and write it.
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

static tri_comm *open_split(tri_comm *control, tri_device *device, unsigned also, tri_comm *parent,
                            int colour) {
    tri_comm *data;
    CHECK_OK(tri_comm_data_open(
        &(tri_comm_data_request){.control = control,
                                 .device = device,
                                 .wanted = TRI_COMM_DATA_ABILITIES | also,
                                 .choice = control->size > 1 ? TRI_COMM_NCCL : TRI_COMM_AUTO,
                                 .parent = parent,
                                 .colour = colour},
        &data));
    CHECK(strcmp(data->backend->name, control->size > 1 ? "nccl" : "staged") == 0);
    CHECK(data->backend->abilities(data) & TRI_COMM_DEVICE_MEMORY);
    return data;
}

static tri_comm *open_data(tri_comm *control, tri_device *device, unsigned also) {
    return open_split(control, device, also, NULL, 0);
}

// Closes the communicator and the device. Closing ends soon, also after a failure: else ranks_join
// ends the rank after RANKS_LIMIT_S, long before the communicator's own limit.
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

// Without TRI_COMM_RANK_ORDER, NCCL itself adds, in another order. Its sums of whole numbers are
// exact; other sums may differ by rounding.
static void body_plain(tri_comm *comm, ranks_table *table, void *argument) {
    tri_device *device = open_device(comm->rank);
    tri_comm *data = open_data(comm, device, 0);
    CHECK(!(data->backend->abilities(data) & TRI_COMM_RANK_ORDER));
    unsigned seed = 3;
    body_random(data, table, &seed);
    body_shards(data, table, NULL);
    body_wire(data, table, NULL); // its last calls disagree, so the communicator fails
    ranks_meet(table, 9, comm->size);
    close_data(data, comm, device);
}

static void test_plain(void **state) { assert_int_equal(ranks_run(3, NULL, body_plain, NULL), 0); }

// An operation waits for earlier work of a queue (tri_comm_after) before it reads what it sends,
// and the queue then waits for the operation's result.
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

static void test_mismatches(void **state) { assert_int_equal(mismatch_run(body_mismatch), 0); }

typedef struct fault {
    // Value HOW:RANK:N of the environment variable EMULATED_NCCL: the N-th group of NCCL calls of
    // rank RANK, counted from 1 in each NCCL communicator, fails (HOW is "error") or never ends
    // ("hang"). NULL: all groups work.
    const char *nccl_fault;
    bool kills;        // rank 1 ends its process
    bool aborts;       // rank 1 aborts the communicator
    bool messages;     // ranks send messages to their neighbours, instead of an all-reduce
    tri_status status; // the status with which every rank has to fail
    const char *says;  // a part of the message of that failure
} fault;

// Runs a sum over all ranks or, if `messages`, sends messages in a circle. For the messages from
// one rank to another there is an NCCL communicator of two ranks, in which the receiver is rank 1.
// So with messages a fault of rank 1 (fault.nccl_fault) is a fault of a receiver.
static tri_status run_once(tri_comm *data, bool messages, float *x) {
    enum { N = 1000 };
    int size = data->size, right = (data->rank + 1) % size, left = (data->rank + size - 1) % size;
    tri_comm_op sum = {
        .kind = TRI_COMM_ALL_REDUCE, .count = N, .send = x, .recv = x, .label = "REDUCE a"};
    tri_comm_op circle[2] = {
        {.kind = TRI_COMM_SEND, .count = N, .send = x, .peer = right, .label = "SEND a"},
        {.kind = TRI_COMM_RECV, .count = N, .recv = x + N, .peer = left, .label = "RECV a"}};
    tri_comm_ticket ticket;
    if (!messages) return tri_comm_run(data, &sum);
    TRI_TRY(data->backend->start(data, circle, 2, &ticket));
    return data->backend->wait(data, ticket);
}

static void body_fault(tri_comm *comm, ranks_table *table, void *argument) {
    const fault *f = argument;
    if (f->nccl_fault) setenv("EMULATED_NCCL", f->nccl_fault, 1);
    tri_device *device = open_device(comm->rank);
    tri_comm *data = open_data(comm, device, 0);
    float *x;
    CHECK_OK(data->backend->alloc(data, 8000, (void **)&x));
    CHECK_OK(run_once(data, f->messages, x));
    ranks_meet(table, 0, comm->size);
    if (f->kills && comm->rank == 1) _exit(0);
    tri_status status = TRI_OK;
    if (f->aborts && comm->rank == 1) data->backend->abort(data, "rank 1: no more");
    if (!f->aborts || comm->rank != 1) status = run_once(data, f->messages, x);
    // A rank whose own messages went well learns of the failure later.
    while (status == TRI_OK) status = data->backend->failed(data);
    CHECK(status == f->status);
    ranks_says(f->says);
    CHECK(data->backend->failed(data) == f->status);
    // `comm` is the control communicator of `data`, and fails together with it.
    CHECK(comm->backend->failed(comm) == f->status);
    if (!f->kills) ranks_meet(table, 1, comm->size);
    close_data(data, comm, device);
}

static void test_faults(void **state) {
    static fault faults[] = {
        {.nccl_fault = "error:1:2", .status = TRI_PEER_LOST, .says = "remote process exited"},
        {.nccl_fault = "hang:1:2",
         .status = TRI_TIMEOUT,
         .says = "all_reduce 'REDUCE a': not done after"},
        {.aborts = true, .status = TRI_PEER_LOST, .says = "rank 1: no more"},
        {.kills = true, .status = TRI_PEER_LOST, .says = "rank 1"},
        {.nccl_fault = "error:1:2",
         .messages = true,
         .status = TRI_PEER_LOST,
         .says = "remote process exited"},
        {.nccl_fault = "hang:1:2",
         .messages = true,
         .status = TRI_TIMEOUT,
         .says = " a': not done after"},
        {.aborts = true, .messages = true, .status = TRI_PEER_LOST, .says = "rank 1: no more"},
        {.kills = true, .messages = true, .status = TRI_PEER_LOST, .says = "rank 1"},
    };
    tri_shm_config config = {.timeout_ms = 2000};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        printf("fault %zu\n", i);
        assert_int_equal(ranks_run(3, &config, body_fault, &faults[i]), 0);
    }
}

// ---- how the GPU is used

// Calls `function`, which tells what the emulated GPU or the double of NCCL has counted.
static int64_t counted(const char *function) {
    int64_t (*count)(void);
    *(void **)&count = dlsym(RTLD_DEFAULT, function);
    CHECK(*(void **)&count != NULL);
    return count();
}

// Sums whose terms are exchanged, of tensors that begin at multiples of 16 bytes: the emulated NCCL
// ends the program if a large message does not.
static void body_aligned(tri_comm *comm, ranks_table *table, void *argument) {
    enum { N = 100001, EACH = 30000 };
    static const tri_comm_op rows[] = {
        {.kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_F32, .count = N},
        {.kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_F32, .wire = TRI_BF16, .count = N},
        {.kind = TRI_COMM_REDUCE_SCATTER, .dtype = TRI_F32, .count = EACH},
        {.kind = TRI_COMM_REDUCE_SCATTER, .dtype = TRI_F32, .wire = TRI_BF16, .count = EACH},
    };
    setenv("EMULATED_NCCL_ALIGNED", "1", 1);
    tri_device *device = open_device(comm->rank);
    tri_comm *data = open_data(comm, device, TRI_COMM_RANK_ORDER);
    float *x, *y;
    CHECK_OK(data->backend->alloc(data, N * sizeof *x, (void **)&x));
    CHECK_OK(data->backend->alloc(data, N * sizeof *y, (void **)&y));
    for (int i = 0; i < N; i++) x[i] = (float)(i % 50 + comm->rank);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_comm_op op = rows[i];
        int first = op.kind == TRI_COMM_REDUCE_SCATTER ? comm->rank * EACH : 0;
        op.send = x;
        op.recv = y;
        CHECK_OK(tri_comm_run(data, &op));
        for (int k = 0; k < op.count; k++)
            CHECK(y[k] ==
                  (float)(comm->size * ((first + k) % 50) + comm->size * (comm->size - 1) / 2));
    }
    data->backend->free(data, x);
    data->backend->free(data, y);
    close_data(data, comm, device);
}

// A communicator with TRI_COMM_NUMBERS asks NCCL for only a few thread blocks; one that is split
// from it does not inherit this limit. The queue of each has priority over the device's others.
static void body_settings(tri_comm *comm, ranks_table *table, void *argument) {
    tri_device *device = open_device(comm->rank);
    tri_comm_data_request request = {.control = comm,
                                     .device = device,
                                     .wanted = TRI_COMM_DATA_ABILITIES,
                                     .choice = TRI_COMM_NCCL,
                                     .use = TRI_COMM_NUMBERS};
    tri_comm *world, *control, *group;
    tri_queue *queue;
    CHECK_OK(tri_queue_open(device, &queue));
    CHECK(counted("emulated_priority_streams") == 0);
    CHECK_OK(tri_comm_data_open(&request, &world));
    CHECK(counted("emulated_nccl_blocks") == 2);
    CHECK(counted("emulated_priority_streams") == 1);
    CHECK_OK(comm->backend->split(comm, 0, comm->rank, &control));
    group = open_split(control, device, 0, world, 0);
    CHECK(counted("emulated_nccl_blocks") == 0); // NCCL decides
    CHECK(counted("emulated_priority_streams") == 2);
    tri_queue_close(queue);
    tri_comm_data_stop(group);
    tri_comm_data_close(group, control);
    tri_comm_close(control);
    close_data(world, comm, device);
}

static void test_use_of_gpu(void **state) {
    assert_int_equal(ranks_run(2, NULL, body_aligned, NULL), 0);
    assert_int_equal(ranks_run(3, NULL, body_aligned, NULL), 0);
    assert_int_equal(ranks_run(2, NULL, body_settings, NULL), 0);
}

// ---- messages

// Each rank starts its sends to the next rank and its receives alternately, each as an operation
// group of its own. The messages are larger than any buffer, so a send has to wait for its
// receiver, but it must not keep the receive behind it from running.
static void body_ring(tri_comm *comm, ranks_table *table, void *argument) {
    enum { TURNS = 150, N = 20000 };
    tri_device *device = open_device(comm->rank);
    tri_comm *data = open_data(comm, device, 0);
    int next = (comm->rank + 1) % comm->size, before = (comm->rank + comm->size - 1) % comm->size;
    tri_comm_ticket sends[TURNS], receives[TURNS];
    int32_t *x, *y;
    CHECK_OK(data->backend->alloc(data, (size_t)TURNS * N * 4, (void **)&x));
    CHECK_OK(data->backend->alloc(data, (size_t)TURNS * N * 4, (void **)&y));
    for (int i = 0; i < TURNS * N; i++) x[i] = 7 * i + comm->rank;
    for (int i = 0; i < TURNS; i++) {
        tri_comm_op send = {.kind = TRI_COMM_SEND, .dtype = TRI_I32, .count = N, .peer = next},
                    receive = {.kind = TRI_COMM_RECV, .dtype = TRI_I32, .count = N, .peer = before};
        send.send = x + (size_t)i * N;
        receive.recv = y + (size_t)i * N;
        CHECK_OK(data->backend->start(data, &send, 1, &sends[i]));
        CHECK_OK(data->backend->start(data, &receive, 1, &receives[i]));
    }
    for (int i = TURNS - 1; i >= 0; i--) CHECK_OK(data->backend->wait(data, receives[i]));
    for (int i = 0; i < TURNS; i++) CHECK_OK(data->backend->wait(data, sends[i]));
    for (int i = 0; i < TURNS * N; i++) CHECK(y[i] == 7 * i + before);
    data->backend->free(data, x);
    data->backend->free(data, y);
    close_data(data, comm, device);
}

// Every rank sends to every rank, itself included, in one group.
static void body_to_all(tri_comm *comm, ranks_table *table, void *argument) {
    enum { N = 100, MOST = 4 };
    tri_device *device = open_device(comm->rank);
    tri_comm *data = open_data(comm, device, 0);
    tri_comm_op group[2 * MOST];
    tri_comm_ticket ticket;
    int64_t *out, *in;
    CHECK_OK(data->backend->alloc(data, sizeof(int64_t[MOST][N]), (void **)&out));
    CHECK_OK(data->backend->alloc(data, sizeof(int64_t[MOST][N]), (void **)&in));
    for (int r = 0; r < comm->size; r++) {
        for (int i = 0; i < N; i++) out[r * N + i] = comm->rank * 100 + r * 10 + i;
        group[2 * r] = (tri_comm_op){.kind = TRI_COMM_SEND, .dtype = TRI_I64, .count = N};
        group[2 * r + 1] = (tri_comm_op){.kind = TRI_COMM_RECV, .dtype = TRI_I64, .count = N};
        group[2 * r].send = out + (size_t)r * N;
        group[2 * r + 1].recv = in + (size_t)r * N;
        group[2 * r].peer = group[2 * r + 1].peer = r;
    }
    CHECK_OK(data->backend->start(data, group, 2 * comm->size, &ticket));
    CHECK_OK(data->backend->wait(data, ticket));
    for (int r = 0; r < comm->size; r++)
        for (int i = 0; i < N; i++) CHECK(in[r * N + i] == r * 100 + comm->rank * 10 + i);
    close_data(data, comm, device);
}

// A communicator that was opened for messages alone (TRI_COMM_MESSAGES) carries them, and refuses
// a collective with a message that names the reason.
static void body_messages_only(tri_comm *comm, ranks_table *table, void *argument) {
    tri_device *device = open_device(comm->rank);
    tri_comm_data_request request = {.control = comm,
                                     .device = device,
                                     .wanted = TRI_COMM_DATA_ABILITIES,
                                     .use = TRI_COMM_MESSAGES};
    tri_comm *data;
    float *x;
    CHECK_OK(tri_comm_data_open(&request, &data));
    CHECK_OK(data->backend->alloc(data, 8000, (void **)&x));
    for (int i = 0; i < 1000; i++) x[i] = (float)comm->rank;
    CHECK_OK(run_once(data, true, x));
    for (int i = 0; i < 1000; i++)
        CHECK(x[1000 + i] == (float)((comm->rank + comm->size - 1) % comm->size));
    CHECK(run_once(data, false, x) == TRI_UNSUPPORTED);
    ranks_says("'REDUCE a': ");
    data->backend->free(data, x);
    close_data(data, comm, device);
}

static void test_messages(void **state) {
    for (int size = 2; size <= 3; size++) {
        assert_int_equal(ranks_run(size, NULL, body_ring, NULL), 0);
        assert_int_equal(ranks_run(size, NULL, body_to_all, NULL), 0);
        assert_int_equal(ranks_run(size, NULL, body_messages_only, NULL), 0);
    }
}

// ---- versions of NCCL that lack a function, and hosts without NCCL

// The communicator of a group is split from that of all ranks if the library of NCCL can split.
// With an older library it is opened by itself, with an id of its own.
static void body_split_groups(tri_comm *comm, ranks_table *table, void *argument) {
    const char *refused = argument;
    if (refused && strcmp(refused, "CommSplit") != 0) setenv("EMULATED_NCCL_VERSION", refused, 1);
    tri_device *device = open_device(comm->rank);
    tri_comm *world = open_data(comm, device, 0), *control, *group;
    int colour = comm->rank % 2;
    float *x;
    CHECK_OK(comm->backend->split(comm, colour, -comm->rank, &control));
    if (refused && strcmp(refused, "CommSplit") == 0) {
        setenv("EMULATED_NCCL_REFUSES", "CommSplit", 1);
        ranks_meet(table, 2, comm->size);
        CHECK(tri_comm_data_open(&(tri_comm_data_request){.control = control,
                                                          .device = device,
                                                          .wanted = TRI_COMM_DATA_ABILITIES,
                                                          .parent = world,
                                                          .colour = colour},
                                 &group) == TRI_INTERNAL);
        ranks_says("ncclCommSplit: invalid usage");
        ranks_meet(table, 3, comm->size);
        _exit(0);
    }
    group = open_split(control, device, 0, world, colour);
    CHECK(group->rank == control->rank && group->size == comm->size / 2);
    CHECK_OK(world->backend->alloc(world, 8000, (void **)&x)); // both communicators use it
    for (int i = 0; i < 1000; i++) x[i] = (float)comm->rank;
    CHECK_OK(run_once(group, false, x));
    for (int i = 0; i < 1000; i++) CHECK(x[i] == (float)(2 * colour + 2));
    CHECK_OK(run_once(world, false, x));
    for (int i = 0; i < 1000; i++) CHECK(x[i] == 12);
    for (int i = 0; i < 1000; i++) x[i] = (float)group->rank;
    CHECK_OK(run_once(group, true, x));
    for (int i = 0; i < 1000; i++) CHECK(x[1000 + i] == (float)(1 - group->rank));
    world->backend->free(world, x);
    tri_comm_data_stop(group);
    tri_comm_data_close(group, control);
    tri_comm_close(control);
    close_data(world, comm, device);
}

// Each row is a version that the emulated NCCL pretends to have; NULL: that of NCCL's header.
// "CommSplit": NCCL has the function ncclCommSplit, but calls of it fail.
static void test_versions(void **state) {
    static const char *const rows[] = {NULL, "2.18.1", "2.17.1", "2.14", "CommSplit"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        print_message("splitting, %s\n", rows[i] ? rows[i] : "the version of the header");
        assert_int_equal(ranks_run(4, NULL, body_split_groups, (void *)(uintptr_t)rows[i]), 0);
    }
}

// One rank cannot use NCCL. If the user demands NCCL, all ranks fail and name that rank and the
// cause; else all ranks communicate through the host's memory.
static void body_missing(tri_comm *comm, ranks_table *table, void *argument) {
    const char *const *row = argument;
    tri_comm *data;
    if (comm->rank == 1) setenv(row[0], row[1], 1);
    tri_device *device = open_device(comm->rank);
    tri_comm_data_request request = {.control = comm,
                                     .device = device,
                                     .wanted = TRI_COMM_DATA_ABILITIES,
                                     .choice = TRI_COMM_NCCL};
    CHECK(tri_comm_data_open(&request, &data) == TRI_NOT_FOUND);
    ranks_says("rank 1: comm.backend: nccl: host ");
    ranks_says(row[2]);
    request.choice = TRI_COMM_AUTO;
    CHECK_OK(tri_comm_data_open(&request, &data));
    CHECK(strcmp(data->backend->name, "staged") == 0);
    close_data(data, comm, device);
}

// Each row is an environment variable, its value on rank 1, and a part of the error.
static void test_missing(void **state) {
    static const char *rows[][3] = {
        {"EMULATED_NCCL_VERSION", "0", "libnccl.so was not found; install it"},
        {"EMULATED_NCCL_VERSION", "2.10.3", "libnccl.so is version 2.10.3, which has no nccl"},
        {"TRIREME_NCCL", "0", "TRIREME_NCCL=0 forbids NCCL"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(ranks_run(3, NULL, body_missing, rows[i]), 0);
    assert_int_equal(tri_comm_data_check(TRI_COMM_NCCL, &tri_device_cuda), TRI_OK);
    assert_int_equal(tri_comm_data_check(TRI_COMM_AUTO, &tri_device_ref), TRI_OK);
    assert_int_equal(tri_comm_data_check(TRI_COMM_NCCL, &tri_device_ref), TRI_BAD_INPUT);
    assert_non_null(strstr(tri_error_message(), "the device is ref: set --device cuda"));
}

int main(void) {
    setenv("TRIREME_MODULES", TRIREME_BUILD_DIR "/lib/emulated", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),      cmocka_unit_test(test_plain),
        cmocka_unit_test(test_after),      cmocka_unit_test(test_mismatches),
        cmocka_unit_test(test_messages),   cmocka_unit_test(test_versions),
        cmocka_unit_test(test_missing),    cmocka_unit_test(test_faults),
        cmocka_unit_test(test_use_of_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
