// Checks how a plan chooses whether the device or its host runs the optimizer of offloaded state:
// it computes which is faster, from the bytes that each has to move and from the rates of the
// host's memory and of the link to the host. No GPU is needed, only descriptions.
#include "device/choose.h"
#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"
#include "plan/estimate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <trireme/trireme.h>

#include <cmocka.h>

enum { WIDTH = 512, STATES = 2 };

static void ok(tri_status status) {
    if (status != TRI_OK) fail_msg("%s", tri_error_message());
}

static void model(tri_graph *g, const tri_batch *batch) {
    tri_value x = tri_linear_with(g, "a", batch->inputs, (tri_linear_options){.features = WIDTH});
    tri_block(g, "b");
    x = tri_linear_with(g, "b", x, (tri_linear_options){.features = WIDTH});
    tri_loss(g, tri_mse_loss(g, x, batch->targets));
}

static const tri_task task = {.name = "test", .build = model};
static const tri_field fields[] = {{"inputs", TRI_F32, {1, {WIDTH}}},
                                   {"targets", TRI_F32, {1, {WIDTH}}}};

static tri_strategy_options options;
static tri_precision precision;
static bool deterministic;

static tri_plan *plan_on(tri_arena *arena, const char *name, int ranks) {
    static const tri_device_backend *const devices[] = {&tri_device_cuda, &tri_device_cpu, NULL};
    tri_device_description device;
    ok(tri_device_describe(devices, name, &device));
    tri_model_request of_model = {.task = &task, .fields = fields, .field_count = 2};
    of_model.options.precision = precision;
    tri_plan_request request = {.model = &of_model,
                                .options = &options,
                                .step_samples = {[TRI_STEP_FULL] = 32},
                                .micro = 2,
                                .deterministic = deterministic,
                                .optimizer_states = STATES};
    ok(tri_mesh_make((const int[TRI_AXIS_COUNT]){0}, TRI_AXIS_REPLICATE, ranks, &request.mesh));
    tri_plan *plan;
    ok(tri_plan_create(arena, &device, &request, &plan));
    return plan;
}

static int setup(void **state) {
    *state = tri_arena_create(NULL, "test");
    options = (tri_strategy_options){
        .name = TRI_STRATEGY_DDP, .recompute_every = 1, .offload = TRI_OFFLOAD_OPTIMIZER};
    precision = TRI_PRECISION_BF16_MIXED;
    deterministic = false;
    return 0;
}

static int teardown(void **state) {
    tri_arena_destroy(*state);
    return 0;
}

static bool is_on_host(tri_arena *arena, const char *device, int ranks) {
    tri_plan *plan = plan_on(arena, device, ranks);
    bool on_host = plan->offload.steps_on_host;
    assert_int_equal(plan->steps[TRI_STEP_FULL].request.steps_on_host, on_host);
    tri_plan_destroy(plan);
    return on_host;
}

// The optimizer runs on the host if that is faster. The rule compares two times for each element of
// the parameters: the host reads and writes 40 bytes of its memory ("host" below; test_bytes shows
// which ones), or the device copies 16 bytes over its link to the host ("link"): two states of 4
// bytes, to the device and back. The last argument is the number of ranks: those on one socket
// share the rate of its memory, but each has a link of its own.
static void test_rule(void **state) {
    assert_true(is_on_host(*state, "cuda:h200", 1)); // host 40 B / 307 GB/s, link 16 B / 64 GB/s
    assert_false(is_on_host(*state, "cuda:h200", 8));
    assert_true(is_on_host(*state, "cuda:a100-64", 2)); // host 40 B / 102 GB/s, link 16 B / 32 GB/s
    assert_false(is_on_host(*state, "cuda:a100-64", 4));
    assert_true(is_on_host(*state, "cuda:v100-32", 16)); // host 40 B / 64 GB/s, link 16 B / 16 GB/s
    deterministic = true;
    assert_false(is_on_host(*state, "cuda:v100-32", 1));
    options.offload_step = TRI_OFFLOAD_STEP_HOST;
    assert_true(is_on_host(*state, "cuda:v100-32", 1));
    assert_true(is_on_host(*state, "cuda:h200", 8));
    options.offload_step = TRI_OFFLOAD_STEP_DEVICE;
    assert_false(is_on_host(*state, "cuda:h200", 1));
}

// The host does not run the optimizer if nothing is offloaded, if the state is offloaded to a file,
// or if the device is no GPU.
static void test_impossible(void **state) {
    options.offload_step = TRI_OFFLOAD_STEP_HOST;
    assert_false(is_on_host(*state, "cpu", 1));
    options.offload = TRI_OFFLOAD_NONE;
    assert_false(is_on_host(*state, "cuda:h200", 1));
    options.offload = TRI_OFFLOAD_OPTIMIZER;
    options.offload_path = "/tmp";
    assert_false(is_on_host(*state, "cuda:h200", 1));
}

// Checks how many bytes a plan copies between device and host, and how much memory it needs on
// each of the two.
static void test_bytes(void **state) {
    options.offload_step = TRI_OFFLOAD_STEP_DEVICE;
    tri_plan *device = plan_on(*state, "cuda:h200", 1);
    options.offload_step = TRI_OFFLOAD_STEP_HOST;
    tri_plan *host = plan_on(*state, "cuda:h200", 1);
    int64_t n = host->flat.state_elements;
    assert_true(n >= 2 * (WIDTH * WIDTH + WIDTH));
    assert_int_equal(host->flat.own_elements[TRI_FLAT_HALF], n);
    tri_host_step_bytes bytes = tri_plan_host_step_bytes(host, -1);
    assert_int_equal(bytes.down, 4 * n);
    assert_int_equal(bytes.up, 2 * n);
    // Bytes for each parameter. 28: the optimizer reads the gradient, the weight and two states (4
    // bytes each), and writes the weight and the states. 6: the cast reads F32 and writes the half
    // type. 6: the copies of the gradient (4) and of the half type (2).
    assert_int_equal(bytes.memory, (28 + 6 + 6) * n);
    tri_host_step_bytes a = tri_plan_host_step_bytes(host, 0),
                        b = tri_plan_host_step_bytes(host, 1);
    assert_int_equal(a.memory + b.memory, bytes.memory);
    // An optimizer on the device offloads two states of each parameter. One on the host also keeps
    // F32 master weights, gradients and the parameters in the half type in the host's memory.
    assert_int_equal(device->memory.offloaded, 8 * n);
    assert_int_equal(host->memory.offloaded, (8 + 4 + 4 + 2) * n);
    assert_int_equal(device->memory.parameters - host->memory.parameters, 4 * n);
    assert_int_equal(device->memory.optimizer + host->memory.optimizer, 0);
    assert_true(host->memory.peak <= device->memory.peak - 4 * n);
    tri_plan_destroy(host);
    precision = TRI_PRECISION_32_TRUE;
    tri_plan *wide = plan_on(*state, "cuda:h200", 1);
    bytes = tri_plan_host_step_bytes(wide, -1);
    assert_int_equal(bytes.up, 4 * n);
    // 28 as above, but no cast. 8: the copies of the gradient (4) and of the F32 weight (4).
    assert_int_equal(bytes.memory, (28 + 8) * n);
    assert_int_equal(wide->memory.offloaded, (8 + 4 + 4) * n);
    tri_plan_destroy(wide);
    tri_plan_destroy(device);
}

// If only the rate of the host's memory is limited, a step takes as long as the optimizer's reads
// and writes of that memory. If only the rate of copies is limited, it takes as long as the copies
// of the gradients to the host and then of the parameters back to the device.
static void test_estimate(void **state) {
    tri_arena *arena = *state;
    options.offload_step = TRI_OFFLOAD_STEP_HOST;
    tri_plan *plan = plan_on(arena, "cuda:h200", 1);
    int64_t n = plan->flat.state_elements;
    tri_pipeline_plans pipeline = {.count = 1, .plans = &plan, .ranks_each = 1};
    tri_rates rates = {1e18, 1e18, 1e18, 1e18, 1e18, 1e18, 1e6, 4, 0, 0};
    tri_estimate e;
    tri_estimate_step(arena, &pipeline, &rates, NULL, &e);
    double wanted = 40.0 * (double)n / 1e6;
    assert_true(e.step_s > 0.999 * wanted && e.step_s < 1.001 * wanted);
    rates = (tri_rates){1e18, 1e18, 1e18, 1e18, 1e18, 1e6, 1e18, 4, 0, 0};
    tri_estimate_step(arena, &pipeline, &rates, NULL, &e);
    // The gradients of block b are copied to the host, then those of a. After NORM, which needs all
    // gradients, the parameters are copied to the device, first b's and then a's.
    wanted = (4.0 + 2.0) * (double)n / 1e6;
    assert_true(e.step_s > 0.7 * wanted && e.step_s < 1.001 * wanted);
    tri_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rule, setup, teardown),
        cmocka_unit_test_setup_teardown(test_impossible, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_estimate, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
