// Checks data communicators (comm/data.h), which carry the data of training for a device and are
// opened over a control communicator: they work in the device's memory, they have the wanted
// abilities also if the control communicator lacks some, and a failure of one of the two ends the
// other.
#include "support/comm_ranks.h"

#include "comm/data.h"
#include "device/far/far.h"
#include "device/queue.h"
#include "device/ref/ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N = 3001 };

// `poor` is the backend `whole` without two abilities: it neither adds in rank order nor compares
// calls.
static const tri_comm_backend *whole;
static tri_comm_backend poor;

static unsigned poor_abilities(const tri_comm *comm) {
    return whole->abilities(comm) & ~(TRI_COMM_RANK_ORDER | TRI_COMM_FINDS_MISMATCHES);
}

static tri_status poor_split(tri_comm *comm, int colour, int key, tri_comm **out) {
    TRI_TRY(whole->split(comm, colour, key, out));
    (*out)->backend = &poor;
    return TRI_OK;
}

static tri_comm *poor_copy(tri_comm *comm) {
    tri_comm *out;
    whole = comm->backend;
    poor = *whole;
    poor.abilities = poor_abilities;
    poor.split = poor_split;
    CHECK_OK(poor_split(comm, 0, comm->rank, &out));
    return out;
}

// Checks an all-reduce in the device's memory. The bits of its sums show whether the terms were
// added in the order of the ranks.
static void check_sum(tri_comm *data, tri_device *device) {
    static float values[N], sums[N];
    void *memory;
    tri_queue *queue;
    CHECK_OK(tri_queue_open(device, &queue));
    CHECK_OK(data->backend->alloc(data, sizeof values, &memory));
    for (int i = 0; i < N; i++) values[i] = 0.1f * (float)(i % 97 + 1) / (float)(data->rank + 1);
    CHECK_OK(tri_queue_write(queue, memory, values, sizeof values));
    CHECK_OK(tri_comm_run(data, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                               .count = N,
                                               .send = memory,
                                               .recv = memory,
                                               .label = "SUM"}));
    CHECK_OK(tri_queue_read(queue, sums, memory, sizeof sums));
    for (int i = 0; i < N; i++) {
        float want = 0.1f * (float)(i % 97 + 1);
        for (int r = 1; r < data->size; r++) want += 0.1f * (float)(i % 97 + 1) / (float)(r + 1);
        CHECK(memcmp(&want, &sums[i], sizeof want) == 0);
    }
    data->backend->free(data, memory);
    tri_queue_close(queue);
}

static void check_device(tri_comm *control, const tri_device_backend *backend, bool is_same) {
    unsigned wanted = TRI_COMM_DATA_ABILITIES | TRI_COMM_RANK_ORDER;
    tri_device *device;
    tri_comm *data;
    CHECK_OK(backend->open(&(tri_device_config){.threads = 1}, &device));
    tri_comm_data_request request = {.control = control, .device = device, .wanted = wanted};
    CHECK_OK(tri_comm_data_open(&request, &data));
    CHECK((data == control) == is_same);
    unsigned can = data->backend->abilities(data);
    CHECK((can & wanted) == wanted);
    CHECK(can & (backend->host_memory ? TRI_COMM_HOST_MEMORY : TRI_COMM_DEVICE_MEMORY));
    check_sum(data, device);
    tri_comm_data_stop(data); // does nothing if the communicator is not staged
    tri_comm_data_close(data, control);
    backend->close(device);
    CHECK_OK(tri_comm_barrier(control, "control lives on"));
}

static void body_open(tri_comm *comm, ranks_table *table, void *argument) {
    check_device(comm, &tri_device_ref, true);
    check_device(comm, &tri_device_far, false);
    if (comm->size == 1) return;
    tri_comm *control = poor_copy(comm);
    check_device(control, &tri_device_ref, false);
    check_device(control, &tri_device_far, false);
    tri_comm_close(control);
}

static void test_open(void **state) {
    for (int size = 1; size <= 4; size++)
        assert_int_equal(ranks_run(size, NULL, body_open, NULL), 0);
}

// A failure of the control communicator (for host memory) ends the data communicator (for device
// memory), and the other way round.
static void body_failure(tri_comm *comm, ranks_table *table, void *argument) {
    bool of_data = *(bool *)argument;
    tri_comm *control = poor_copy(comm), *data;
    tri_device *device;
    CHECK_OK(tri_device_far.open(&(tri_device_config){.threads = 1}, &device));
    tri_comm_data_request request = {
        .control = control, .device = device, .wanted = TRI_COMM_DATA_ABILITIES};
    CHECK_OK(tri_comm_data_open(&request, &data));
    CHECK_OK(tri_comm_barrier(data, "begin"));
    ranks_meet(table, 0, comm->size);
    tri_comm *fails = of_data ? data : control, *waits = of_data ? control : data;
    if (comm->rank == 1) fails->backend->abort(fails, "rank 1: no more");
    CHECK(tri_comm_barrier(waits, "STEP") == TRI_PEER_LOST);
    CHECK(strstr(tri_error_message(), "rank 1: no more"));
    ranks_meet(table, 1, comm->size);
    tri_comm_data_stop(data);
    tri_comm_data_close(data, control);
    tri_comm_close(control);
    device->backend->close(device);
}

static void test_failure(void **state) {
    for (int of_data = 0; of_data < 2; of_data++) {
        bool argument = of_data;
        assert_int_equal(ranks_run(3, NULL, body_failure, &argument), 0);
    }
}

static void test_none(void **state) {
    tri_comm *data;
    assert_int_equal(tri_comm_data_open(&(tri_comm_data_request){0}, &data), TRI_OK);
    assert_null(data);
    tri_comm_data_close(NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
