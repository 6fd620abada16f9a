// Tests the communicator of one rank (comm/self): operations of all kinds, operations that it has
// to refuse, memory, splits and aborts.
#include "comm/comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int open_self(void **state) {
    tri_comm *comm;
    if (tri_comm_self_open(&comm) != TRI_OK) return -1;
    *state = comm;
    return 0;
}

static int close_self(void **state) {
    tri_comm_close(*state);
    return 0;
}

static void test_collectives(void **state) {
    tri_comm *comm = *state;
    assert_int_equal(comm->rank, 0);
    assert_int_equal(comm->size, 1);
    const tri_comm_kind kinds[] = {TRI_COMM_ALL_REDUCE, TRI_COMM_REDUCE_SCATTER,
                                   TRI_COMM_ALL_GATHER, TRI_COMM_ALL_TO_ALL, TRI_COMM_BROADCAST};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int count = 0; count < 5; count++) {
            float send[5] = {1, 2, 3, 4, 5}, recv[5] = {9, 9, 9, 9, 9};
            tri_comm_op op = {
                .kind = kinds[k], .dtype = TRI_F32, .count = count, .send = send, .recv = recv};
            assert_int_equal(tri_comm_run(comm, &op), TRI_OK);
            for (int i = 0; i < 5; i++) assert_true(recv[i] == (i < count ? (float)(i + 1) : 9));
            op.recv = send;
            assert_int_equal(tri_comm_run(comm, &op), TRI_OK);
            assert_true(send[4] == 5);
        }
    assert_int_equal(tri_comm_barrier(comm, "barrier"), TRI_OK);
}

// Accumulates over several calls, in operation groups (each is the operations that one call of
// `start` begins together) whose operations have different types.
static void test_fold_and_group(void **state) {
    tri_comm *comm = *state;
    float sum[3] = {0}, want[3] = {0};
    double wide[3] = {1, 2, 3}, wide_sum[3] = {10, 10, 10};
    for (int round = 0; round < 7; round++) {
        float part[3];
        for (int i = 0; i < 3; i++) part[i] = 0.1f * (float)(i + 1) / (float)(round + 3);
        for (int i = 0; i < 3; i++) want[i] += part[i];
        uint16_t bf16[2] = {0x3f80, 0x4000}, copied[2] = {0};
        tri_comm_op group[3] = {{.kind = TRI_COMM_REDUCE_SCATTER,
                                 .dtype = TRI_F32,
                                 .accumulate = true,
                                 .count = 3,
                                 .send = part,
                                 .recv = sum},
                                {.kind = TRI_COMM_ALL_GATHER,
                                 .dtype = TRI_BF16,
                                 .count = 2,
                                 .send = bf16,
                                 .recv = copied},
                                {.kind = TRI_COMM_REDUCE_SCATTER,
                                 .dtype = TRI_F64,
                                 .accumulate = true,
                                 .count = 3,
                                 .send = wide,
                                 .recv = wide_sum}};
        tri_comm_ticket ticket;
        assert_int_equal(comm->backend->start(comm, group, 3, &ticket), TRI_OK);
        assert_int_equal(comm->backend->wait(comm, ticket), TRI_OK);
        assert_memory_equal(bf16, copied, sizeof bf16);
    }
    assert_memory_equal(sum, want, sizeof sum);
    for (int i = 0; i < 3; i++) assert_true(wide_sum[i] == 10 + 7 * wide[i]);
}

static void test_group_to_itself(void **state) {
    tri_comm *comm = *state;
    int64_t a[2] = {1, 2}, b[2] = {3, 4}, got[4] = {0};
    tri_comm_op group[4] = {{.kind = TRI_COMM_RECV, .dtype = TRI_I64, .count = 2, .recv = got},
                            {.kind = TRI_COMM_SEND, .dtype = TRI_I64, .count = 2, .send = a},
                            {.kind = TRI_COMM_SEND, .dtype = TRI_I64, .count = 2, .send = b},
                            {.kind = TRI_COMM_RECV, .dtype = TRI_I64, .count = 2, .recv = got + 2}};
    tri_comm_ticket ticket;
    assert_int_equal(comm->backend->start(comm, group, 4, &ticket), TRI_OK);
    assert_true(comm->backend->test(comm, ticket));
    assert_int_equal(comm->backend->wait(comm, ticket), TRI_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(got[i], i + 1);
    // A send without its receive would wait for ever, so it fails, and all later calls with it.
    assert_int_equal(comm->backend->start(comm, group + 1, 1, &ticket), TRI_MISMATCH);
    assert_int_equal(tri_comm_barrier(comm, "after"), TRI_MISMATCH);
}

static void test_bad_operations(void **state) {
    float x[4] = {0};
    const struct {
        tri_comm_op op;
        tri_status want;
        const char *says;
    } rows[] = {
        {{.kind = TRI_COMM_KIND_COUNT}, TRI_BAD_INPUT, "no kind"},
        {{.kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_DTYPE_COUNT, .count = 1},
         TRI_BAD_INPUT,
         "element type"},
        {{.kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_F32, .count = -1},
         TRI_BAD_INPUT,
         "-1 elements"},
        {{.kind = TRI_COMM_ALL_GATHER, .dtype = TRI_F32, .count = INT64_MAX},
         TRI_BAD_INPUT,
         "not possible"},
        {{.kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_U8, .count = 1},
         TRI_UNSUPPORTED,
         "U8 does not reduce"},
        {{.kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_F32, .count = 1, .accumulate = true},
         TRI_UNSUPPORTED,
         "only a reduce_scatter"},
        {{.kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_F64, .count = 1, .wire = TRI_BF16},
         TRI_UNSUPPORTED,
         "only sums of F32"},
        {{.kind = TRI_COMM_ALL_GATHER, .count = 1, .wire = TRI_BF16},
         TRI_UNSUPPORTED,
         "only sums of F32"},
        {{.kind = TRI_COMM_ALL_REDUCE, .count = 1, .wire = TRI_U8},
         TRI_UNSUPPORTED,
         "only sums of F32"},
        {{.kind = TRI_COMM_REDUCE_SCATTER, .dtype = TRI_BF16, .count = 1, .accumulate = true},
         TRI_UNSUPPORTED,
         "F32 or F64"},
        {{.kind = TRI_COMM_REDUCE_SCATTER, .dtype = TRI_F32, .count = 1, .accumulate = true},
         TRI_BAD_INPUT,
         "recv overlaps send"},
        {{.kind = TRI_COMM_ALL_REDUCE, .reduction = (tri_comm_reduction)7, .count = 1},
         TRI_BAD_INPUT,
         "reduction"},
        {{.kind = TRI_COMM_BROADCAST, .dtype = TRI_F32, .count = 1, .root = 1},
         TRI_BAD_INPUT,
         "root 1"},
        {{.kind = TRI_COMM_SEND, .dtype = TRI_F32, .count = 1, .peer = -1},
         TRI_BAD_INPUT,
         "peer -1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_comm *comm;
        assert_int_equal(tri_comm_self_open(&comm), TRI_OK);
        tri_comm_op op = rows[i].op;
        op.send = op.recv = x;
        op.label = "bad";
        assert_int_equal(tri_comm_run(comm, &op), rows[i].want);
        assert_non_null(strstr(tri_error_message(), rows[i].says));
        tri_comm_close(comm);
    }
}

static void test_memory_and_split(void **state) {
    tri_comm *comm = *state;
    for (size_t size = 0; size < 20000; size = size * 3 + 1) {
        unsigned char *memory;
        assert_int_equal(comm->backend->alloc(comm, size, (void **)&memory), TRI_OK);
        assert_int_equal((uintptr_t)memory % (size >= 4096 ? 4096 : 64), 0);
        for (size_t i = 0; i < size; i++) assert_int_equal(memory[i], 0);
        comm->backend->free(comm, memory);
    }
    tri_comm *part;
    assert_int_equal(comm->backend->split(comm, 3, 0, &part), TRI_OK);
    assert_int_equal(part->size, 1);
    tri_comm_close(part);
    assert_int_equal(comm->backend->split(comm, -1, 0, &part), TRI_OK);
    assert_null(part);
}

static void test_abort(void **state) {
    tri_comm *comm = *state;
    comm->backend->abort(comm, "the loader failed");
    assert_int_equal(tri_comm_barrier(comm, "after"), TRI_PEER_LOST);
    assert_string_equal(tri_error_message(), "the loader failed");
}

static void test_abort_without_reason(void **state) {
    tri_comm *comm = *state;
    comm->backend->abort(comm, NULL);
    assert_int_equal(tri_comm_barrier(comm, "after"), TRI_PEER_LOST);
    assert_string_equal(tri_error_message(), "aborted");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_collectives, open_self, close_self),
        cmocka_unit_test_setup_teardown(test_fold_and_group, open_self, close_self),
        cmocka_unit_test_setup_teardown(test_group_to_itself, open_self, close_self),
        cmocka_unit_test(test_bad_operations),
        cmocka_unit_test_setup_teardown(test_memory_and_split, open_self, close_self),
        cmocka_unit_test_setup_teardown(test_abort, open_self, close_self),
        cmocka_unit_test_setup_teardown(test_abort_without_reason, open_self, close_self),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
