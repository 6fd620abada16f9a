// Checks steps of the device cuda whose parts are captured and repeated as CUDA graphs. The losses
// are the same to the last bit as without graphs: for full, shorter and evaluation steps in any
// order, with up to TRI_MAX_STEPS_AHEAD steps issued before the host reads results, and after a
// step whose loss is not finite. Each step takes fewer calls of the host and fewer reads of the
// GPU's clock. The first step of a shape, which loads kernels, begins only after all earlier work.
// The test runs on an emulated GPU or, if TRIREME_TEST_GPU is set, on the GPU of this host.
#include "comm/comm.h"
#include "device/cuda/cuda.h"
#include "device/queue.h"
#include "engine/engine_internal.h"
#include "ops/ops.h"
#include "support/test_gpu.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/trireme.h>

#include <cmocka.h>

enum { FEATURES = 12, MICRO = 3, STEPS = 14, TRACED = 10000 };
static const int64_t samples[TRI_STEP_SHAPE_COUNT] = {11, 7, 9, 0};

static bool is_real; // true: the GPU is a real one; false: it is emulated

typedef struct rig {
    tri_arena *arena;
    tri_device *device;
    tri_comm *comm;
    tri_plan *plan;
    tri_engine *engine;
    int64_t left; // how many samples of the step the engine has not got yet
    int given;    // how many micro-batches the engine has got since the start
    float inputs[TRI_TAKEN_BATCHES][MICRO * FEATURES], targets[TRI_TAKEN_BATCHES][MICRO];
    bool is_bad;       // the inputs are so large that the step's loss is not finite
    bool follows_held; // the step may begin only after the work that is held up (test_first_step)
} rig;

static void check(tri_status status) {
    if (status != TRI_OK) fail_msg("%s", tri_error_message());
}

// A linear layer whose weight is a parameter of another shape. In the backward pass the gradient is
// copied into the memory of the parameter's gradient, from the GPU to the GPU: a CUDA graph may
// contain such a copy.
static tri_value linear_of_reshaped(tri_graph *g, tri_value x) {
    tri_value weight =
        tri_parameter(g, "reshaped.weight", (tri_shape){3, {5, 2, 10}},
                      (tri_init){.kind = TRI_INIT_UNIFORM, .low = -0.5, .high = 0.5});
    weight = tri_reshape(g, weight, (tri_shape){2, {10, 10}});
    const tri_value inputs[] = {x, weight, {0}};
    return tri_node_add(g, &tri_op_linear, inputs, 3, &(tri_linear_attr){.axes = 1}, "reshaped");
}

static void net(tri_graph *g, const tri_batch *batch) {
    tri_value x = batch->inputs;
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"first", "second", "third", "fourth"};
        tri_block(g, names[i]);
        x = tri_relu(g, tri_linear(g, names[i], x, 10));
    }
    tri_block(g, "reshaped");
    x = linear_of_reshaped(g, x);
    tri_block(g, "head");
    tri_loss(g, tri_mse_loss(g, tri_linear(g, "head", x, 1), batch->targets));
}

// Work that the GPU waits for and that ends late, after all threads have had many turns. A thread
// of the queue waits for it.
enum { LATE_YIELDS = 100000 };
static _Atomic bool is_released;

static tri_status release_late(void *source, uint64_t number) {
    (void)source;
    (void)number;
    for (int i = 0; i < LATE_YIELDS; i++) sched_yield();
    is_released = true;
    return TRI_OK;
}

static bool was_released(void *source, uint64_t number) {
    (void)source;
    (void)number;
    return is_released;
}

static const tri_ticket_kind held = {.wait = release_late, .is_done = was_released};

static tri_status next(void *context, tri_engine_batch *out) {
    rig *r = context;
    if (r->follows_held) assert_true(is_released);
    int at = r->given++ % TRI_TAKEN_BATCHES;
    out->size = r->left < MICRO ? r->left : MICRO;
    r->left -= out->size;
    for (int i = 0; i < MICRO * FEATURES; i++)
        r->inputs[at][i] = r->is_bad ? 1e30f : (float)((i + r->given * 5) % 17) / 17;
    for (int i = 0; i < MICRO; i++) r->targets[at][i] = (float)((i + r->given) % 3);
    out->fields[0] = r->inputs[at];
    out->fields[1] = r->targets[at];
    return TRI_OK;
}

static void open_rig(rig *r, const char *graphs) {
    static const tri_task task = {.name = "net", .build = net};
    static const tri_field fields[] = {{"inputs", TRI_F32, {1, {FEATURES}}},
                                       {"targets", TRI_F32, {1, {1}}}};
    *r = (rig){.arena = tri_arena_create(NULL, "test")};
    setenv("TRIREME_CUDA_GRAPHS", graphs, 1);
    check(tri_device_cuda.open(&(tri_device_config){.threads = 1}, &r->device));
    check(tri_comm_self_open(&r->comm));
    tri_optimizer optimizer;
    tri_optimizer_options options = {.name = "adadelta", .lr = 0.5, .rho = 0.9, .eps = 1e-6};
    check(tri_optimizer_make(r->arena, &options, &optimizer));
    tri_model_request model = {
        .task = &task, .fields = fields, .field_count = 2, .options = {.seed = 1}};
    tri_strategy_options alone = {.name = TRI_STRATEGY_SINGLE, .recompute_every = 1};
    tri_plan_request request = {.model = &model,
                                .options = &alone,
                                .mesh = {.size = {1, 1, 1, 1}, .ranks = 1},
                                .micro = MICRO,
                                .eval_micro = MICRO,
                                .loader_batches = 3,
                                .optimizer_states = optimizer.state_count};
    memcpy(request.step_samples, samples, sizeof samples);
    check(tri_plan_create(r->arena, &r->device->description, &request, &r->plan));
    check(tri_engine_create(
        &(tri_engine_config){
            .plan = r->plan, .device = r->device, .world = r->comm, .optimizer = &optimizer},
        &r->engine));
    check(tri_engine_initialize(r->engine, 1));
}

static void close_rig(rig *r) {
    check(tri_engine_release_batches(r->engine));
    tri_engine_destroy(r->engine);
    tri_plan_destroy(r->plan);
    tri_comm_close(r->comm);
    r->device->backend->close(r->device);
    tri_arena_destroy(r->arena);
}

// Calls `function`, which returns what the emulated GPU has counted so far. A real GPU has no such
// function; the result is then 0.
static int64_t counted(const char *function) {
    int64_t (*count)(void);
    *(void **)&count = dlsym(RTLD_DEFAULT, function);
    if (is_real && !*(void **)&count) return 0;
    assert_non_null(*(void **)&count);
    return count();
}

// How many calls have given work to streams.
static int64_t issued_so_far(void) { return counted("emulated_issued"); }

static tri_step_shape shape_of(int step) {
    if (step % 5 == 3) return TRI_STEP_EVALUATE;
    return step % 5 == 4 ? TRI_STEP_TAIL : TRI_STEP_FULL;
}

static tri_status issue(rig *r, tri_step_shape shape, int number) {
    r->left = samples[shape];
    return tri_engine_issue(r->engine, &(tri_step_input){.shape = shape,
                                                         .step = number,
                                                         .lr = {0.5, 0.5},
                                                         .clip = 0.05,
                                                         .next = next,
                                                         .context = r});
}

typedef struct course {
    double losses[STEPS], norms[STEPS];
    int64_t issued; // how many calls to the GPU the last full step made
    int64_t clocks; // how many times kernels of all steps have read the GPU's clock
} course;

// Checks what the ledger says of the GPU's actions: each has ended, and none began before the one
// before it had ended.
static void check_times(const rig *r) {
    const tri_ledger *ledger = r->comm->ledger;
    uint64_t dropped;
    size_t count = tri_ledger_traced(ledger, &dropped);
    int64_t end_ns = 1, actions = 0;
    for (size_t i = 0; i < count; i++) {
        const tri_ledger_event *event = tri_ledger_traced_at(ledger, i);
        if (event->lane != r->engine->times.lane) continue;
        assert_true(event->begin_ns >= end_ns && event->end_ns >= event->begin_ns);
        end_ns = event->end_ns;
        actions++;
    }
    assert_true(actions > STEPS * 6 && dropped == 0);
}

// Runs the steps. Each is issued before the results of the `ahead` steps before it are read.
static void run_course(const char *graphs, int ahead, course *out) {
    rig r;
    open_rig(&r, graphs);
    int64_t blocked = counted("emulated_blocked"), clocks = counted("emulated_clocks");
    check(tri_ledger_trace(r.comm->ledger, TRACED));
    for (int end = 0, issued = 0; end < STEPS; end++) {
        while (issued < STEPS && issued - end <= ahead) {
            int64_t before = issued_so_far();
            check(issue(&r, shape_of(issued), issued));
            if (shape_of(issued++) == TRI_STEP_FULL) out->issued = issued_so_far() - before;
        }
        tri_step_output result;
        check(tri_engine_collect(r.engine, &result));
        assert_int_equal((int)result.count[0], (int)samples[shape_of(end)]);
        assert_true(isfinite(result.sum[0]));
        out->losses[end] = result.sum[0];
        out->norms[end] = result.gradient_norm;
    }
    assert_true(is_real || counted("emulated_marks") > 0); // a profiler would see the actions
    assert_true(counted("emulated_blocked") == blocked);   // no step waits for its copies
    out->clocks = counted("emulated_clocks") - clocks;
    check_times(&r);
    close_rig(&r);
}

static void test_same_losses(void **state) {
    (void)state;
    for (int ahead = 0; ahead <= TRI_MAX_STEPS_AHEAD; ahead++) {
        course with = {0}, without = {0};
        run_course("0", ahead, &without);
        run_course("1", ahead, &with);
        assert_memory_equal(with.losses, without.losses, sizeof with.losses);
        assert_memory_equal(with.norms, without.norms, sizeof with.norms);
        if (without.issued == 0) continue; // a real GPU does not count calls
        print_message("a full step, %d ahead: %" PRId64 " calls, %" PRId64 " with graphs\n", ahead,
                      without.issued, with.issued);
        assert_true(with.issued < without.issued * 2 / 3);
        assert_true(with.clocks < without.clocks * 3 / 4);
    }
}

// Runs steps of which one, number 6, has a loss that is not finite. That step, and the one that is
// issued after it, change nothing. The training then continues with the next step.
static void run_halt(const char *graphs, double losses[STEPS]) {
    rig r;
    open_rig(&r, graphs);
    for (int i = 0; i < STEPS; i++) {
        tri_step_output result;
        r.is_bad = i == 6;
        check(issue(&r, TRI_STEP_FULL, i));
        if (r.is_bad) {
            check(issue(&r, TRI_STEP_FULL, i));
            assert_int_equal(tri_engine_collect(r.engine, &result), TRI_NOT_FINITE);
            check(tri_engine_release_batches(r.engine));
            continue;
        }
        check(tri_engine_collect(r.engine, &result));
        losses[i] = result.sum[0];
    }
    close_rig(&r);
}

static void test_halt(void **state) {
    (void)state;
    double with[STEPS] = {0}, without[STEPS] = {0};
    run_halt("0", without);
    run_halt("1", with);
    assert_memory_equal(with, without, sizeof with);
}

// After a step whose loss is not finite, and another one behind it, the same step is made with all
// values checked, which no graph can do: the message names the op.
static void test_search(void **state) {
    (void)state;
    for (int graphs = 0; graphs < 2; graphs++) {
        rig r;
        tri_step_output result;
        open_rig(&r, graphs ? "1" : "0");
        for (int i = 0; i < 4; i++) {
            check(issue(&r, TRI_STEP_FULL, i));
            check(tri_engine_collect(r.engine, &result));
        }
        r.is_bad = true;
        for (int i = 4; i < 6; i++) check(issue(&r, TRI_STEP_FULL, i));
        assert_int_equal(tri_engine_collect(r.engine, &result), TRI_NOT_FINITE);
        check(tri_engine_release_batches(r.engine));
        tri_engine_detect_anomaly(r.engine);
        assert_int_equal(tri_engine_steps_ahead(r.engine), 0);
        assert_int_equal(issue(&r, TRI_STEP_FULL, 4), TRI_NOT_FINITE);
        assert_non_null(strstr(tri_error_message(), "step 5: the forward pass of block "));
        assert_non_null(strstr(tri_error_message(), " made "));
        check(tri_engine_release_batches(r.engine));
        close_rig(&r);
    }
}

// While kernels are loaded, a driver may block the threads for which queues wait. So the first step
// of a shape begins when the device has done the steps in flight, and other steps begin before.
static void test_first_step(void **state) {
    (void)state;
    rig r;
    tri_step_output result;
    open_rig(&r, "1");
    check(issue(&r, TRI_STEP_FULL, 0));
    check(tri_engine_collect(r.engine, &result));
    check(issue(&r, TRI_STEP_FULL, 1));
    check(r.device->backend->wait(r.engine->queue, &(tri_ticket){.kind = &held}));
    r.follows_held = true;
    check(issue(&r, TRI_STEP_TAIL, 2));
    for (int i = 0; i < 2; i++) check(tri_engine_collect(r.engine, &result));
    close_rig(&r);
}

static void test_bad_setting(void **state) {
    (void)state;
    tri_device *device;
    setenv("TRIREME_CUDA_GRAPHS", "yes", 1);
    assert_int_equal(tri_device_cuda.open(&(tri_device_config){.threads = 1}, &device),
                     TRI_BAD_INPUT);
    assert_non_null(strstr(tri_error_message(), "TRIREME_CUDA_GRAPHS is 'yes'"));
}

// Work that a queue captures is not done until it is repeated. While a queue captures, calls for
// which the host may wait are refused: copies to and from the host, and tickets.
static void test_queue(void **state) {
    (void)state;
    tri_device *device;
    tri_queue *queue;
    tri_captured *captured;
    tri_ticket ticket;
    void *memory;
    float values[2] = {1, 2};
    unsetenv("TRIREME_CUDA_GRAPHS");
    const tri_device_backend *cuda = &tri_device_cuda;
    check(cuda->open(&(tri_device_config){.threads = 1}, &device));
    assert_false(device->without_captures);
    check(tri_queue_open(device, &queue));
    check(cuda->alloc(device, sizeof values, &memory));
    check(tri_queue_write(queue, memory, values, sizeof values));
    check(cuda->begin_capture(queue));
    check(cuda->add(queue, memory, memory, 2));
    assert_int_equal(cuda->record(queue, &ticket), TRI_INTERNAL);
    assert_int_equal(cuda->copy_in(queue, memory, values, sizeof values), TRI_INTERNAL);
    assert_int_equal(cuda->copy_out(queue, values, memory, sizeof values), TRI_INTERNAL);
    check(cuda->end_capture(queue, &captured));
    check(tri_queue_read(queue, values, memory, sizeof values));
    assert_true(values[0] == 1 && values[1] == 2);
    for (int i = 0; i < 3; i++) check(cuda->repeat(queue, captured));
    check(tri_queue_read(queue, values, memory, sizeof values));
    assert_true(values[0] == 8 && values[1] == 16);
    cuda->close_capture(captured);
    cuda->free(device, memory);
    tri_queue_close(queue);
    cuda->close(device);
}

int main(void) {
    is_real = test_gpu_choose();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queue),       cmocka_unit_test(test_bad_setting),
        cmocka_unit_test(test_same_losses), cmocka_unit_test(test_halt),
        cmocka_unit_test(test_search),      cmocka_unit_test(test_first_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
