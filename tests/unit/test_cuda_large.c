// Checks kernels of the device cuda on tensors of more than 2^32 elements, on an emulated GPU:
// indices and grids that do not fit 32 bits. To save time, the emulated GPU runs only the first and
// the last thread block of each grid. Pages of the tensors that no kernel touches take no memory.
#include "base/module.h"
#include "device/cuda/runtime.h"
#include "graph/graph.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#define LARGE ((INT64_C(1) << 32) + 1024) // elements

static const cuda_runtime *runtime;
static cuda_context *context;
static cuda_stream *stream;
static char why[CUDA_WHY_BYTES];

// Allocates memory of which only the pages that are used take space.
static float *reserve(int64_t count) {
    void *memory = mmap(NULL, (size_t)count * sizeof(float), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void drop(float *memory, int64_t count) {
    assert_int_equal(munmap(memory, (size_t)count * sizeof(float)), 0);
}

static void finish(tri_status status) {
    cuda_event *event;
    if (status != TRI_OK) fail_msg("%s", why);
    assert_int_equal(runtime->open_event(context, &event, why), TRI_OK);
    assert_int_equal(runtime->record(stream, event, why), TRI_OK);
    assert_int_equal(runtime->finish(event, why), TRI_OK);
    runtime->close_event(event);
}

static int set_up(void **state) {
    const void *table;
    cuda_properties properties;
    void (*sample)(bool);
    setenv("TRIREME_MODULES", TRIREME_BUILD_DIR "/lib/emulated", 1);
    if (tri_module_load("cuda", CUDA_RUNTIME_INTERFACE, CUDA_RUNTIME_ABI, &table) != TRI_OK)
        fail_msg("%s", tri_error_message());
    runtime = table;
    *(void **)&sample = dlsym(RTLD_DEFAULT, "emulated_sample");
    assert_non_null(*(void **)&sample);
    sample(true);
    assert_int_equal(runtime->open(0, &properties, &context, why), TRI_OK);
    return runtime->open_stream(context, false, &stream, why);
}

static int tear_down(void **state) {
    runtime->close_stream(stream);
    runtime->close(context);
    return 0;
}

static void test_pointwise(void **state) {
    enum { SHOWN = 100 };
    // The count is no multiple of the elements that a thread block computes at a time. All that is
    // checked below is computed by the first and the last thread block, because only these run.
    const int64_t count = LARGE - 509;
    float *a = reserve(LARGE), *b = reserve(LARGE), *out = reserve(LARGE);
    for (int64_t i = 0; i < SHOWN; i++) {
        a[i] = (float)i, b[i] = 1;
        a[count - 1 - i] = (float)-i, b[count - 1 - i] = 2;
    }
    cuda_pointwise p = {.function = CUDA_ADD,
                        .a_type = TRI_F32,
                        .b_type = TRI_F32,
                        .out_type = TRI_F32,
                        .a = a,
                        .b = b,
                        .out = out,
                        .count = count};
    finish(runtime->pointwise(stream, &p, why));
    for (int64_t i = 0; i < SHOWN; i++) {
        assert_true(out[i] == (float)i + 1);
        assert_true(out[count - 1 - i] == 2 - (float)i);
    }
    drop(a, LARGE), drop(b, LARGE), drop(out, LARGE);
}

// Of each kernel only the first and the last thread block run (emulated_sample), so the rows of all
// other blocks keep their zeros. The test checks the first and the last row.
static void test_rows(void **state) {
    enum { WIDTH = 1024 };
    int64_t rows = LARGE / WIDTH;
    float *x = reserve(LARGE), *y = reserve(LARGE), *inv = reserve(rows), bias[WIDTH];
    float *last_x = x + (rows - 1) * WIDTH, *last_y = y + (rows - 1) * WIDTH;
    double squares = 0;
    for (int i = 0; i < WIDTH; i++) {
        last_x[i] = (float)(i % 7) - 3;
        bias[i] = (float)i;
        squares += (double)last_x[i] * (double)last_x[i];
    }
    finish(runtime->add_bias(
        stream, &(cuda_add_bias){.rows = rows, .width = WIDTH, .type = TRI_F32, .x = x, bias, y},
        why));
    for (int i = 0; i < WIDTH; i++) {
        assert_true(y[i] == (float)i);
        assert_true(last_y[i] == last_x[i] + (float)i);
    }
    cuda_row_norm norm = {.rows = rows,
                          .width = WIDTH,
                          .eps = 1e-5f,
                          .x_type = TRI_F32,
                          .y_type = TRI_F32,
                          .x = x,
                          .weight = bias,
                          .y = y,
                          .inv = inv};
    finish(runtime->row_norm(stream, &norm, why));
    double factor = 1 / sqrt(squares / WIDTH + 1e-5);
    assert_true(fabs((double)inv[rows - 1] - factor) < 1e-6);
    for (int i = 0; i < WIDTH; i++)
        assert_true(fabs((double)last_y[i] - (double)last_x[i] * factor * i) < 1e-3);
    drop(x, LARGE), drop(y, LARGE), drop(inv, rows);
}

static void test_embedding(void **state) {
    enum { WIDTH = 8, TOKENS = 3 };
    int64_t rows = LARGE / WIDTH, ids[TOKENS] = {rows - 1, 0, rows - 2};
    float *table = reserve(LARGE), y[TOKENS * WIDTH];
    cuda_fault fault = {0};
    for (int i = 0; i < WIDTH; i++) {
        table[i] = 1 + (float)i;
        table[(rows - 1) * WIDTH + i] = 100 + (float)i;
        table[(rows - 2) * WIDTH + i] = 200 + (float)i;
    }
    cuda_embedding p = {.tokens = {ids, TOKENS, 0, rows, rows, &fault},
                        .width = WIDTH,
                        .type = TRI_F32,
                        .table = table,
                        .y = y};
    finish(runtime->embedding(stream, &p, why));
    static const float first[TOKENS] = {100, 1, 200};
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < WIDTH; i++) assert_true(y[t * WIDTH + i] == first[t] + (float)i);
    drop(table, LARGE);
}

static void test_update(void **state) {
    double step[TRI_STEP_SCALAR_COUNT] = {0};
    float *param = reserve(LARGE), *grad = reserve(LARGE);
    param[LARGE - 1] = 5, grad[LARGE - 1] = 2, param[0] = 1, grad[0] = 4;
    step[TRI_STEP_LR] = 0.25;
    step[TRI_STEP_GRADIENT_SCALE] = 1;
    cuda_update p = {.rule = CUDA_SGD,
                     .lr_factor = 2,
                     .count = LARGE,
                     .step = step,
                     .param = param,
                     .grad = grad};
    finish(runtime->update(stream, &p, why));
    assert_true(param[LARGE - 1] == 4 && param[0] == -1);
    drop(param, LARGE), drop(grad, LARGE);
}

// Checks the last tile of a product [m, n] of more than 2^32 elements. The tile has fewer rows and
// columns than a full one.
static void test_product(void **state) {
    enum { N = 1000, K = 3 };
    int64_t m = LARGE / N + 1;
    float *a = reserve(m * K), *c = reserve(m * N), room[K * N + 1] __attribute__((aligned(16)));
    float *b = room + 1; // not aligned, so that our own kernel computes it, not the library
    for (int i = 0; i < K * N; i++) b[i] = (float)(i % 5);
    for (int k = 0; k < K; k++) a[(m - 1) * K + k] = (float)(k + 1);
    cuda_product p = {
        .m = m, .n = N, .k = K, .in_type = TRI_F32, .out_type = TRI_F32, .a = a, .b = b, .c = c};
    finish(runtime->product(stream, &p, why));
    for (int j = N - 1; j >= N - 40; j--) {
        float sum = 0;
        for (int k = 0; k < K; k++) sum += (float)(k + 1) * b[k * N + j];
        assert_true(c[(m - 1) * N + j] == sum);
    }
    drop(a, m * K), drop(c, m * N);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointwise), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_embedding), cmocka_unit_test(test_update),
        cmocka_unit_test(test_product)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
