// Checks what parallel training needs from a communicator over shared memory: sums with the same
// bits on any number of ranks, operation groups of several types, messages of pipelines that do not
// wait for each other, and communicators along the axes of a mesh.
#include "support/comm_ranks.h"

#include "base/limits.h"
#include "tensor/half.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// Makes numbers whose sums depend on the order of addition.
static float uneven(int rank, int round, int64_t i) {
    uint32_t mixed = (uint32_t)(rank * 7919 + round * 104729) + (uint32_t)i * 2654435761u;
    mixed = (mixed ^ mixed >> 15) * 2246822519u;
    return ((float)(mixed >> 8) - 8388608.0f) * 0x1.3p-20f / (float)(mixed % 13 + 1);
}

// Allocates zeroed memory: memory that all ranks share, or private memory of this rank.
static void *memory_of(tri_comm *comm, size_t bytes, bool shared) {
    void *memory = calloc(1, bytes + 64);
    if (shared) CHECK_OK(comm->backend->alloc(comm, bytes + 64, &memory));
    CHECK(memory);
    return memory;
}

// ---- accumulation: if terms are spread over ranks and calls, their sum has the same bits as if
// one rank adds them in order

enum { FOLD_PARTS = 24, FOLD_COUNTS = 5 };
static const int64_t fold_counts[FOLD_COUNTS] = {0, 1, 333, 1029, 70001};

static void fold_check(tri_comm *comm, int64_t whole, bool shared) {
    int size = comm->size, rounds = FOLD_PARTS / size;
    int64_t count = (whole + size - 1) / size, first = comm->rank * count;
    float *send = memory_of(comm, (size_t)(count * size) * sizeof *send, shared);
    float *sum = memory_of(comm, (size_t)count * sizeof *sum, shared);
    for (int round = 0; round < rounds; round++) {
        int part = round * size + comm->rank;
        for (int64_t i = 0; i < whole; i++) send[i] = uneven(part, 0, i);
        CHECK_OK(tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_REDUCE_SCATTER,
                                                   .dtype = TRI_F32,
                                                   .accumulate = true,
                                                   .count = count,
                                                   .send = send,
                                                   .recv = sum,
                                                   .label = "FOLD"}));
    }
    bool order_matters = false;
    for (int64_t i = first; i < first + count && i < whole; i++) {
        float plain = 0, backwards = 0;
        for (int part = 0; part < FOLD_PARTS; part++) plain += uneven(part, 0, i);
        for (int part = FOLD_PARTS - 1; part >= 0; part--) backwards += uneven(part, 0, i);
        order_matters = order_matters || plain != backwards;
        CHECK(memcmp(&plain, &sum[i - first], sizeof plain) == 0);
    }
    CHECK(order_matters || whole < 333);
}

static void body_fold(tri_comm *comm, ranks_table *table, void *argument) {
    for (int c = 0; c < FOLD_COUNTS; c++)
        for (int shared = 0; shared < 2; shared++) fold_check(comm, fold_counts[c], shared);
}

static void test_fold(void **state) {
    const int sizes[] = {1, 2, 3, 4, 6, 8};
    for (int i = 0; i < 6; i++) assert_int_equal(ranks_run(sizes[i], NULL, body_fold, NULL), 0);
}

// ---- sums are computed in rank order, and half types are rounded once

static uint16_t half_of(tri_dtype dtype, float value) {
    return dtype == TRI_BF16 ? tri_float_to_bf16(value) : tri_float_to_f16(value);
}

static float float_of(tri_dtype dtype, uint16_t half) {
    return dtype == TRI_BF16 ? tri_bf16_to_float(half) : tri_f16_to_float(half);
}

// Stores at to[at] the number that rank `rank` sends as its element i.
static void put(tri_dtype dtype, void *to, int64_t at, int rank, int64_t i) {
    float value = uneven(rank, 1, i);
    if (dtype == TRI_F32) ((float *)to)[at] = value;
    if (dtype == TRI_F64) ((double *)to)[at] = (double)value / 3;
    if (dtype == TRI_BF16 || dtype == TRI_F16) ((uint16_t *)to)[at] = half_of(dtype, value);
}

static bool is_sum(tri_dtype dtype, const void *got, int64_t at, int size, int64_t i) {
    if (dtype == TRI_F64) {
        double sum = (double)uneven(0, 1, i) / 3;
        for (int r = 1; r < size; r++) sum += (double)uneven(r, 1, i) / 3;
        return sum == ((const double *)got)[at];
    }
    bool half = dtype != TRI_F32;
    float sum = half ? float_of(dtype, half_of(dtype, uneven(0, 1, i))) : uneven(0, 1, i);
    for (int r = 1; r < size; r++)
        sum += half ? float_of(dtype, half_of(dtype, uneven(r, 1, i))) : uneven(r, 1, i);
    return half ? half_of(dtype, sum) == ((const uint16_t *)got)[at]
                : sum == ((const float *)got)[at];
}

// Runs three operations as one operation group: an all-reduce, and a reduce-scatter and an
// all-gather in place (a rank's shard is a range of the whole buffer). Checks all results.
static void order_check(tri_comm *comm, tri_dtype dtype, int64_t count, bool shared) {
    size_t width = tri_dtype_bytes(dtype);
    int64_t whole = count * comm->size;
    char *all = memory_of(comm, (size_t)whole * width, shared);
    char *parts = memory_of(comm, (size_t)whole * width, shared);
    char *mine = parts + (size_t)comm->rank * (size_t)count * width;
    for (int64_t i = 0; i < whole; i++) {
        put(dtype, all, i, comm->rank, i);
        put(dtype, parts, i, comm->rank, i);
    }
    tri_comm_op group[3] = {
        {.kind = TRI_COMM_REDUCE_SCATTER, .count = count, .send = parts, .recv = mine},
        {.kind = TRI_COMM_ALL_GATHER, .count = count, .send = mine, .recv = parts},
        {.kind = TRI_COMM_ALL_REDUCE, .count = whole, .send = all, .recv = all}};
    for (int i = 0; i < 3; i++) group[i].dtype = dtype;
    tri_comm_ticket ticket;
    CHECK_OK(comm->backend->start(comm, group, 3, &ticket));
    CHECK_OK(comm->backend->wait(comm, ticket));
    for (int64_t i = 0; i < whole; i++) {
        CHECK(is_sum(dtype, all, i, comm->size, i));
        CHECK(is_sum(dtype, parts, i, comm->size, i));
    }
}

static void body_order(tri_comm *comm, ranks_table *table, void *argument) {
    const tri_dtype types[] = {TRI_F32, TRI_F64, TRI_BF16, TRI_F16};
    const int64_t counts[] = {0, 1, 7, 1001, 30011};
    for (int t = 0; t < 4; t++)
        for (int c = 0; c < 5; c++)
            for (int shared = 0; shared < 2; shared++)
                order_check(comm, types[t], counts[c], shared);
}

static void test_order(void **state) {
    for (int size = 1; size <= 8; size++)
        assert_int_equal(ranks_run(size, NULL, body_order, NULL), 0);
}

// Sums in half types: NaN stays NaN, and values that are too large become infinite.
static void body_specials(tri_comm *comm, ranks_table *table, void *argument) {
    const float values[] = {INFINITY, -INFINITY, NAN, 0x1.fep127f, 0x1p-130f, -0.0f, 65504, 1};
    const tri_dtype types[] = {TRI_BF16, TRI_F16};
    for (int t = 0; t < 2; t++) {
        uint16_t x[40], sum[40];
        for (int i = 0; i < 40; i++) x[i] = half_of(types[t], values[i % 8]);
        CHECK_OK(tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                   .dtype = types[t],
                                                   .count = 40,
                                                   .send = x,
                                                   .recv = sum}));
        for (int i = 0; i < 40; i++) {
            float one = float_of(types[t], x[i]), got = float_of(types[t], sum[i]);
            float want = float_of(types[t], half_of(types[t], one + one));
            CHECK(isnan(want) ? isnan(got) : want == got);
        }
    }
}

static void test_specials(void **state) {
    assert_int_equal(ranks_run(2, NULL, body_specials, NULL), 0);
}

// ---- operations of different types in one group, as when BF16 and F32 parameters are gathered

static void body_types(tri_comm *comm, ranks_table *table, void *argument) {
    for (int64_t count = 1; count < 40000; count = count * 5 + 2)
        for (int shared = 0; shared < 2; shared++) {
            int64_t whole = count * comm->size, first = comm->rank * count;
            uint16_t *halves = memory_of(comm, (size_t)whole * 2, shared);
            float *floats = memory_of(comm, (size_t)whole * 4, !shared);
            for (int64_t i = 0; i < count; i++) {
                halves[first + i] = (uint16_t)(comm->rank * 1000 + i);
                floats[first + i] = (float)(comm->rank * 1000 + i);
            }
            tri_comm_op group[2] = {{.kind = TRI_COMM_ALL_GATHER,
                                     .dtype = TRI_BF16,
                                     .count = count,
                                     .send = halves + first,
                                     .recv = halves},
                                    {.kind = TRI_COMM_ALL_GATHER,
                                     .dtype = TRI_F32,
                                     .count = count,
                                     .send = floats + first,
                                     .recv = floats}};
            tri_comm_ticket ticket;
            CHECK_OK(comm->backend->start(comm, group, 2, &ticket));
            CHECK_OK(comm->backend->wait(comm, ticket));
            CHECK(comm->backend->test(comm, ticket));
            for (int64_t i = 0; i < whole; i++) {
                CHECK(halves[i] == (uint16_t)(i / count * 1000 + i % count));
                CHECK(floats[i] == (float)(i / count * 1000 + i % count));
            }
        }
}

static void test_types(void **state) {
    assert_int_equal(ranks_run(3, NULL, body_types, NULL), 0);
    assert_int_equal(ranks_run(4, NULL, body_types, NULL), 0);
}

// ---- messages of different pairs do not wait for each other

// Rank 1 receives from rank 2 while its own message to rank 0 is not yet read, and only then tells
// rank 0 to read it.
static void body_overtake(tri_comm *comm, ranks_table *table, void *argument) {
    enum { N = 50000 }; // more numbers than the pipe between two ranks holds (comm/shm)
    int rank = comm->rank;
    bool shared = *(bool *)argument;
    float *out = memory_of(comm, N * sizeof *out, shared);
    float *in = memory_of(comm, N * sizeof *in, shared);
    for (int i = 0; i < N; i++) out[i] = (float)(rank * N + i);
    tri_comm_op send = {.kind = TRI_COMM_SEND, .dtype = TRI_F32, .count = N, .send = out},
                recv = {.kind = TRI_COMM_RECV, .dtype = TRI_F32, .count = N, .recv = in};
    tri_comm_ticket sent, got;
    for (int round = 1; round <= 3; round++) {
        if (rank == 0) {
            while (atomic_load(&table->notes[0]) < round) ranks_sleep_ms(1);
            recv.peer = 1;
            CHECK_OK(tri_comm_run(comm, &recv));
            for (int i = 0; i < N; i++) CHECK(in[i] == (float)(N + i));
        } else if (rank == 1) {
            send.peer = 0, recv.peer = 2;
            CHECK_OK(comm->backend->start(comm, &send, 1, &sent));
            CHECK_OK(comm->backend->start(comm, &recv, 1, &got));
            CHECK_OK(comm->backend->wait(comm, got));
            for (int i = 0; i < N; i++) CHECK(in[i] == (float)(2 * N + i));
            CHECK(!comm->backend->test(comm, sent));
            // `test` may return false while the background thread advances operations.
            while (!comm->backend->test(comm, got)) ranks_sleep_ms(1);
            // A message to rank 2 also overtakes the one to rank 0, which rank 0 does not receive
            // yet.
            send.peer = 2;
            CHECK_OK(tri_comm_run(comm, &send));
            CHECK(!comm->backend->test(comm, sent));
            atomic_store(&table->notes[0], round);
            CHECK_OK(comm->backend->wait(comm, sent));
        } else {
            send.peer = recv.peer = 1;
            CHECK_OK(tri_comm_run(comm, &send));
            CHECK_OK(tri_comm_run(comm, &recv));
            for (int i = 0; i < N; i++) CHECK(in[i] == (float)(N + i));
        }
        CHECK_OK(tri_comm_barrier(comm, "round"));
    }
}

static void test_overtake(void **state) {
    for (int shared = 0; shared < 2; shared++) {
        bool argument = shared;
        assert_int_equal(ranks_run(3, NULL, body_overtake, &argument), 0);
    }
}

// Sends messages as a pipeline does: many are in flight in both directions, and ranks wait for them
// in another order than they were started.
static void body_pipeline(tri_comm *comm, ranks_table *table, void *argument) {
    enum { FLIGHT = 12, N = 3000 };
    int rank = comm->rank, last = comm->size - 1;
    static float out[2][FLIGHT][N], in[2][FLIGHT][N];
    for (int round = 0; round < 20; round++) {
        tri_comm_ticket sent[2][FLIGHT] = {0}, got[2][FLIGHT] = {0};
        for (int m = 0; m < FLIGHT; m++)
            for (int back = 0; back < 2; back++) {
                int to = back ? rank - 1 : rank + 1, from = back ? rank + 1 : rank - 1;
                tri_comm_op op = {.dtype = TRI_F32, .count = N - m};
                for (int i = 0; i < N; i++) out[back][m][i] = (float)(rank + m * 10 + i + round);
                op.kind = TRI_COMM_SEND, op.peer = to, op.send = out[back][m];
                if (to >= 0 && to <= last)
                    CHECK_OK(comm->backend->start(comm, &op, 1, &sent[back][m]));
                op.kind = TRI_COMM_RECV, op.peer = from, op.recv = in[back][m];
                if (from >= 0 && from <= last)
                    CHECK_OK(comm->backend->start(comm, &op, 1, &got[back][m]));
            }
        for (int m = FLIGHT - 1; m >= 0; m--)
            for (int back = 0; back < 2; back++) {
                int from = back ? rank + 1 : rank - 1;
                if (!got[back][m].value) continue;
                CHECK_OK(comm->backend->wait(comm, got[back][m]));
                for (int i = 0; i < N - m; i++)
                    CHECK(in[back][m][i] == (float)(from + m * 10 + i + round));
            }
        for (int m = 0; m < FLIGHT; m++)
            for (int back = 0; back < 2; back++)
                if (sent[back][m].value) CHECK_OK(comm->backend->wait(comm, sent[back][m]));
    }
}

static void test_pipeline(void **state) {
    assert_int_equal(ranks_run(2, NULL, body_pipeline, NULL), 0);
    assert_int_equal(ranks_run(5, NULL, body_pipeline, NULL), 0);
}

// ---- the axes of a mesh as communicators split from one

static int64_t status_of(const char *key) {
    char line[256];
    int64_t value = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key))) value = atoll(line + strlen(key) + 1);
    if (f) fclose(f);
    return value;
}

static int open_files(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

static void body_axes(tri_comm *comm, ranks_table *table, void *argument) {
    enum { AXES = 8, N = 20000 };
    // 8 ranks are 2 x 2 x 2. Bit i of a mask: the communicator runs along axis i. There is one for
    // each axis, for each pair of axes, and two more of axis 0, as for a pipeline's two directions.
    const int masks[AXES] = {1, 2, 4, 3, 5, 6, 1, 1};
    tri_comm *axes[AXES];
    int files = open_files();
    int64_t threads = status_of("Threads"); // the main thread, and that of the communicators
    int64_t before_kb = status_of("VmRSS");
    for (int a = 0; a < AXES; a++)
        CHECK_OK(comm->backend->split(comm, comm->rank & ~masks[a], comm->rank, &axes[a]));
    CHECK(status_of("Threads") == threads);
    CHECK(open_files() <=
          files + comm->size); // a pidfd for each rank, however many communicators are split
    // `comm` allocates the gradients, and the communicators of the axes reduce parts of them, all
    // at the same time.
    float *wide, *narrow;
    CHECK_OK(comm->backend->alloc(comm, AXES * N * sizeof *wide, (void **)&wide));
    CHECK_OK(axes[0]->backend->alloc(axes[0], N * sizeof *narrow, (void **)&narrow));
    tri_comm_ticket tickets[AXES];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) narrow[i] = (float)comm->rank;
        for (int i = 0; i < AXES * N; i++) wide[i] = (float)(comm->rank + round);
        for (int a = 0; a < AXES; a++) {
            float *x = wide + (size_t)a * N;
            tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE,
                              .dtype = TRI_F32,
                              .count = N,
                              .send = x,
                              .recv = x,
                              .label = "axis"};
            CHECK_OK(axes[a]->backend->start(axes[a], &op, 1, &tickets[a]));
        }
        tri_comm_op across = {.kind = TRI_COMM_ALL_REDUCE,
                              .dtype = TRI_F32,
                              .count = N,
                              .send = narrow,
                              .recv = narrow};
        CHECK_OK(tri_comm_run(axes[1], &across));
        int other = comm->rank ^ 2;
        for (int i = 0; i < N; i++) CHECK(narrow[i] == (float)(comm->rank + other));
        for (int a = 0; a < AXES; a++) {
            CHECK_OK(axes[a]->backend->wait(axes[a], tickets[a]));
            float want = 0;
            for (int r = 0; r < comm->size; r++)
                if ((r & ~masks[a]) == (comm->rank & ~masks[a])) want += (float)(r + round);
            for (int i = 0; i < N; i++) CHECK(wide[(size_t)a * N + (size_t)i] == want);
        }
    }
    // By how many KiB the memory of the process has grown, including the test's own buffers (720
    // KB). It has grown little, because a communicator's staging memory takes space only once an
    // operation uses it, and only one communicator here needs it.
    int64_t grown_kb = status_of("VmRSS") - before_kb;
    CHECK(grown_kb < 16 << 10);
    CHECK_OK(tri_comm_barrier(comm, "end"));
    axes[0]->backend->free(axes[0], narrow);
    for (int a = 0; a < AXES; a++) tri_comm_close(axes[a]);
}

static void test_axes(void **state) { assert_int_equal(ranks_run(8, NULL, body_axes, NULL), 0); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fold),     cmocka_unit_test(test_order),
        cmocka_unit_test(test_specials), cmocka_unit_test(test_types),
        cmocka_unit_test(test_overtake), cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
