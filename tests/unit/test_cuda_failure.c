// Tests what the functions of the module `cuda` return after a GPU has failed, and which calls fail
// during a capture. It runs on an emulated GPU or, if TRIREME_TEST_GPU is set, on the GPU of this
// host, which shows whether the emulation is right. A failed GPU stays failed in its process, so
// the test that makes it fail is the last.
#include "base/module.h"
#include "device/cuda/runtime.h"
#include "support/test_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { BUFFER_BYTES = 1 << 16, SIZE = 64 };

static const cuda_runtime *runtime;
static cuda_context *context;
static cuda_stream *stream;
static void *a, *b, *c, *workspace;
static char why[CUDA_WHY_BYTES];
static bool is_real; // true: the GPU may be a real one

static void expect(tri_status wanted, tri_status got, const char *call) {
    if (got != wanted) fail_msg("%s: status %d, not %d: %s", call, (int)got, (int)wanted, why);
    why[0] = 0;
}
#define OK(call) expect(TRI_OK, (call), #call)

static int set_up(void **state) {
    const void *table;
    cuda_properties properties;
    is_real = test_gpu_choose();
    if (tri_module_load("cuda", CUDA_RUNTIME_INTERFACE, CUDA_RUNTIME_ABI, &table) != TRI_OK)
        fail_msg("%s", tri_error_message());
    runtime = table;
    OK(runtime->open(0, &properties, &context, why));
    OK(runtime->open_stream(context, false, &stream, why));
    void **const buffers[] = {&a, &b, &c, &workspace};
    for (int i = 0; i < 4; i++) {
        OK(runtime->alloc(context, BUFFER_BYTES, buffers[i], why));
        OK(runtime->zero(stream, *buffers[i], BUFFER_BYTES, why));
    }
    return 0;
}

static int tear_down(void **state) {
    runtime->close_stream(stream);
    void *const buffers[] = {a, b, c, workspace};
    for (int i = 0; i < 4; i++) runtime->free(context, buffers[i]);
    runtime->close(context);
    return 0;
}

static tri_status finish(void) {
    cuda_event *event;
    tri_status status = runtime->open_event(context, &event, why);
    if (status != TRI_OK) return status;
    status = runtime->record(stream, event, why);
    if (status == TRI_OK) status = runtime->finish(event, why);
    runtime->close_event(event);
    return status;
}

static tri_status product(void) {
    cuda_product p = {.m = SIZE,
                      .n = SIZE,
                      .k = SIZE,
                      .in_type = TRI_F32,
                      .out_type = TRI_F32,
                      .a = a,
                      .b = b,
                      .c = c,
                      .workspace = workspace,
                      .workspace_bytes = BUFFER_BYTES};
    return runtime->product(stream, &p, why);
}

static tri_status convolution(void) {
    cuda_convolution p = {.kind = CUDA_FORWARD,
                          .samples = 2,
                          .channels = 3,
                          .features = 4,
                          .groups = 1,
                          .in = {8, 8},
                          .out = {6, 6},
                          .kernel = {3, 3},
                          .stride = {1, 1},
                          .dilation = {1, 1},
                          .in_type = TRI_F32,
                          .out_type = TRI_F32,
                          .slices = 1,
                          .a = a,
                          .b = b,
                          .c = c,
                          .workspace = workspace,
                          .workspace_bytes = BUFFER_BYTES};
    return runtime->convolution(stream, &p, why);
}

// Work that is captured into a graph can be repeated. While a thread captures, a call that a graph
// cannot contain is refused, and the capture then gives no graph.
static void test_capture(void **state) {
    cuda_graph *graph;
    void *memory;
    OK(product());
    OK(convolution());
    OK(finish());
    OK(runtime->begin_capture(stream, why));
    OK(product());
    OK(convolution());
    OK(runtime->end_capture(stream, &graph, why));
    OK(runtime->repeat(stream, graph, why));
    OK(finish());
    runtime->close_graph(graph);
    OK(runtime->begin_capture(stream, why));
    assert_int_not_equal(runtime->alloc(context, BUFFER_BYTES, &memory, why), TRI_OK);
    assert_null(memory);
    assert_int_not_equal(runtime->end_capture(stream, &graph, why), TRI_OK);
    assert_null(graph);
    OK(product());
    OK(finish());
}

// Checks a call that only notes work for later. A real driver may accept it after a failure; the
// calls that follow then have to report the failure.
static void expect_noted(tri_status got, const char *call) {
    if (!is_real || got != TRI_OK) expect(TRI_IO, got, call);
    why[0] = 0;
}

// After a failure of the GPU every call returns TRI_IO, also a product or a convolution, although
// the errors of cuBLAS and cuDNN themselves do not tell that the GPU has failed.
static void test_failed(void **state) {
    cuda_trap trap = {0};
    cuda_event *event;
    cuda_graph *graph, *empty;
    void *memory;
    OK(product());
    OK(convolution());
    OK(runtime->begin_capture(stream, why));
    OK(product());
    OK(runtime->end_capture(stream, &graph, why));
    OK(runtime->open_event(context, &event, why));
    OK(runtime->trap(stream, &trap, why));
    expect(TRI_IO, finish(), "finish");
    expect(TRI_IO, product(), "product");
    expect(TRI_IO, convolution(), "convolution");
    expect(TRI_IO, runtime->repeat(stream, graph, why), "repeat");
    expect(TRI_IO, runtime->copy(stream, a, b, BUFFER_BYTES, why), "copy");
    expect(TRI_IO, runtime->zero(stream, a, BUFFER_BYTES, why), "zero");
    expect(TRI_IO, runtime->record(stream, event, why), "record");
    expect_noted(runtime->wait(stream, event, why), "wait");
    tri_status capture = runtime->begin_capture(stream, why);
    expect_noted(capture, "begin_capture");
    if (capture == TRI_OK && runtime->end_capture(stream, &empty, why) == TRI_OK)
        runtime->close_graph(empty);
    expect(TRI_IO, finish(), "finish");
    expect(TRI_IO, runtime->alloc(context, 1, &memory, why), "alloc");
    assert_int_equal(runtime->query(event), CUDA_EVENT_FAILED);
    runtime->close_event(event);
    runtime->close_graph(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_capture),
                                       cmocka_unit_test(test_failed)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
