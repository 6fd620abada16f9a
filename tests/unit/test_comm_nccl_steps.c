// Checks how sums are exchanged over NCCL without running them: every transfer begins at a multiple
// of 16 bytes, because NCCL copies other memory one byte at a time; it lies in the scratch memory
// or in the operation's; and what one rank sends to another is what that one expects.
#include "comm/nccl/steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Addresses of memory that is never touched.
static char *const SCRATCH = (char *)((uintptr_t)1 << 40),
                   *const SEND = (char *)((uintptr_t)2 << 40),
                   *const RECV = (char *)((uintptr_t)3 << 40);

static bool lies_in(const char *at, int64_t bytes, const char *begin, int64_t size) {
    return at >= begin && at + bytes <= begin + size;
}

static void list(nccl_steps *steps, int size, int rank, const tri_comm_op *op,
                 const nccl_sums *sums) {
    tri_comm comm = {.size = size, .rank = rank};
    *steps = (nccl_steps){0};
    assert_int_equal(nccl_steps_add(steps, &comm, op, sums), TRI_OK);
}

static void check_places(const nccl_steps *steps, int size, const tri_comm_op *op,
                         const nccl_sums *sums) {
    int64_t bytes = op->count * (int64_t)tri_dtype_bytes(op->dtype), half = sums->scratch_bytes / 2;
    bool scatters = op->kind == TRI_COMM_REDUCE_SCATTER;
    for (int i = 0; i < steps->transfer_count; i++) {
        const cuda_transfer *t = &steps->transfers[i];
        const char *at = t->kind == CUDA_SEND ? t->send : t->recv;
        assert_true((uintptr_t)at % 16 == 0);
        assert_true(lies_in(at, t->count, SCRATCH, half) ||
                    lies_in(at, t->count, SCRATCH + half, half) ||
                    lies_in(at, t->count, SEND, scatters ? size * bytes : bytes) ||
                    lies_in(at, t->count, RECV, bytes));
    }
    for (int i = 0; i < steps->count; i++) {
        const cuda_ordered_sum *sum = &steps->steps[i].sum;
        if (steps->steps[i].kind != NCCL_SUM) continue;
        int64_t width = (int64_t)tri_dtype_bytes(sum->term_type);
        assert_true((uintptr_t)sum->own_term % 16 == 0 && (uintptr_t)sum->out % 16 == 0);
        assert_true(sum->stride * width % 16 == 0 && sum->stride >= sum->count);
        assert_true(((size - 1) * sum->stride + sum->count) * width <= half);
    }
}

// Returns the bytes of the next transfer of this kind with this peer, from *at on; -1: none is
// left.
static int64_t next_transfer(const nccl_steps *steps, cuda_transfer_kind kind, int peer, int *at) {
    for (; *at < steps->transfer_count; ++*at) {
        const cuda_transfer *t = &steps->transfers[*at];
        if (t->kind == kind && t->peer == peer) return steps->transfers[(*at)++].count;
    }
    return -1;
}

static void check_pair(int size, int from, int to, const tri_comm_op *op, const nccl_sums *sums) {
    nccl_steps sender, receiver;
    int sent = 0, received = 0;
    list(&sender, size, from, op, sums);
    list(&receiver, size, to, op, sums);
    check_places(&sender, size, op, sums);
    check_places(&receiver, size, op, sums);
    for (int64_t bytes = 0; bytes >= 0;) {
        bytes = next_transfer(&sender, CUDA_SEND, to, &sent);
        assert_int_equal(next_transfer(&receiver, CUDA_RECV, from, &received), bytes);
    }
    nccl_steps_free(&sender);
    nccl_steps_free(&receiver);
}

static void test_sums(void **state) {
    static const struct {
        tri_dtype dtype, wire;
    } types[] = {{TRI_F32, TRI_F32}, {TRI_F64, TRI_F32}, {TRI_BF16, TRI_F32}, {TRI_F32, TRI_F16}};
    static const int sizes[] = {2, 3, 8, 1000, 4096};
    static const int64_t counts[] = {1, 63, 100001, 2097150, 5000003};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE,
                                  .dtype = types[t].dtype,
                                  .wire = types[t].wire,
                                  .count = counts[c],
                                  .send = SEND,
                                  .recv = RECV};
                nccl_sums sums = {.scratch = SCRATCH, .rank_order = true};
                sums.scratch_bytes = sizes[s] > 8 && counts[c] < 1000000 ? 1 << 20 : 16 << 20;
                check_pair(sizes[s], 0, sizes[s] - 1, &op, &sums);
                check_pair(sizes[s], 1, 0, &op, &sums);
                // Each rank's result begins at a multiple of 16 bytes in `send`.
                op.kind = TRI_COMM_REDUCE_SCATTER;
                op.count = (counts[c] / sizes[s] + 7) / 8 * 8;
                check_pair(sizes[s], 1, sizes[s] - 1, &op, &sums);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
