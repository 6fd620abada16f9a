// Checks which gradients kernels add directly to those of earlier micro-batches, and which they
// first write to the round gradients (memory for gradients of one micro-batch), which are then
// added. This depends on the device. In a deterministic run no kernel adds directly.
#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"
#include "device/far/far.h"
#include "device/ref/ref.h"
#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/nn.h>

#include <cmocka.h>

enum { SAMPLES = 12, MICRO = 4, WIDTH = 64, CLASSES = 10, MOST_RANGES = 1024 };

// Builds a model whose block `once` has one layer. Block `twice` uses its layer twice, so that the
// gradient of its weight is a sum, which a node makes.
static void build(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "once");
    tri_value x = tri_relu(g, tri_linear(g, "once", tri_flatten(g, batch->images), WIDTH));
    tri_block(g, "twice");
    tri_share_layer(g, "twice");
    x = tri_linear(g, "twice", tri_relu(g, tri_linear(g, "twice", x, WIDTH)), WIDTH);
    tri_block(g, "head");
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "head", x, CLASSES), batch->labels));
}
enum { ONCE, TWICE };

static tri_plan *plan_for(const tri_device_backend *backend, bool deterministic) {
    static const tri_task task = {.name = "shared", .build = build};
    static const tri_field fields[] = {{"images", TRI_F32, {3, {1, 8, 8}}},
                                       {"labels", TRI_I64, {0}}};
    static const tri_strategy_options alone = {.name = TRI_STRATEGY_SINGLE, .recompute_every = 1};
    tri_device_config config = {.threads = 1};
    // The model of a GPU, such as "h200", so that a machine without a GPU can describe the device.
    if (backend == &tri_device_cuda) config.model = backend->models;
    tri_device_description device = tri_device_description_of(backend, &config);
    if (!config.model && backend->describe(&config, &device) != TRI_OK)
        fail_msg("%s", tri_error_message());
    tri_model_request model = {
        .task = &task, .fields = fields, .field_count = 2, .options = {.seed = 1}};
    tri_plan_request request = {.model = &model,
                                .options = &alone,
                                .mesh = {.size = {1, 1, 1, 1}, .ranks = 1},
                                .step_samples = {[TRI_STEP_FULL] = SAMPLES},
                                .micro = MICRO,
                                .deterministic = deterministic,
                                .optimizer_states = 1};
    tri_plan *plan = NULL;
    if (tri_plan_create(NULL, &device, &request, &plan) != TRI_OK)
        fail_msg("%s", tri_error_message());
    return plan;
}

// Finds the ranges of round gradients that the block's backward pass needs in a micro-batch.
// Returns their number.
static int ranges_of(const tri_plan *plan, int block, int round, tri_round_range *ranges) {
    const tri_step_plan *step = &plan->steps[TRI_STEP_FULL];
    int count = -1;
    assert_int_equal(tri_round_range_limit(plan) <= MOST_RANGES, 1);
    for (int i = 0; i < step->schedule.count; i++) {
        const tri_action *a = &step->schedule.actions[i];
        if (a->kind != TRI_ACTION_BACKWARD || a->subject != block || a->round != round) continue;
        int64_t elements = tri_round_gradients(plan, step, a, ranges, &count);
        assert_true(elements <= plan->sizes.round_elements);
        for (int k = 0; k < count; k++) assert_true(ranges[k].at + ranges[k].elements <= elements);
    }
    assert_true(count >= 0);
    return count;
}

static void check_whole(const tri_plan *plan, int block) {
    tri_round_range ranges[MOST_RANGES];
    assert_int_equal(ranges_of(plan, block, 1, ranges), 1);
    assert_int_equal(ranges[0].parameter, -1);
    assert_true(ranges[0].elements >= WIDTH * WIDTH);
}

static void test_cuda(void **state) {
    tri_round_range ranges[MOST_RANGES];
    tri_plan *plan = plan_for(&tri_device_cuda, false);
    // The gradients of the first micro-batch overwrite what lies in memory, so they need no range.
    assert_int_equal(ranges_of(plan, ONCE, 0, ranges), 0);
    // The kernel of the weight's gradient adds it directly. That of the bias's gradient overwrites,
    // so the bias needs a range of round gradients.
    assert_int_equal(ranges_of(plan, ONCE, 1, ranges), 1);
    assert_int_equal(ranges[0].elements, WIDTH);
    assert_string_equal(plan->graph->parameters[ranges[0].parameter].name, "once.bias");
    assert_int_equal(ranges[0].first, plan->flat.parameters[ranges[0].parameter].offset);
    check_whole(plan, TWICE);
    tri_plan_destroy(plan);
}

// How many gradients kernels add directly, in all programs of the plan.
static int added_directly(const tri_plan *plan) {
    int sum = 0;
    for (int i = 0; i < plan->program_count; i++)
        for (int k = 0; k < plan->programs[i]->graph->gradient_count; k++)
            sum += tri_round_adds(plan->programs[i], &plan->programs[i]->graph->gradients[k]);
    return sum;
}

// On a CPU no kernel adds directly. So the gradients that one rank sums over its micro-batches have
// the same bits as those that several ranks sum, each with one micro-batch. A kernel that added
// directly would round the sum in another order.
static void test_cpu(void **state) {
    static const tri_device_backend *const backends[] = {&tri_device_cpu, &tri_device_far};
    for (int i = 0; i < 2; i++) {
        tri_plan *plan = plan_for(backends[i], false);
        for (int block = ONCE; block <= TWICE; block++) check_whole(plan, block);
        assert_int_equal(added_directly(plan), 0);
        tri_plan_destroy(plan);
    }
}

// The kernels of the reference device `ref` overwrite every gradient. In a deterministic run no
// kernel adds directly, because the sum would be rounded in the kernel's own order.
static void test_whole(void **state) {
    tri_plan *ref = plan_for(&tri_device_ref, false), *exact = plan_for(&tri_device_cuda, true);
    tri_plan *cuda = plan_for(&tri_device_cuda, false);
    for (int block = ONCE; block <= TWICE; block++) check_whole(ref, block);
    assert_int_equal(added_directly(ref), 0);
    assert_int_equal(added_directly(exact), 0);
    assert_int_equal(added_directly(cuda), 2); // the weights of `once` and `head`
    tri_plan_destroy(ref);
    tri_plan_destroy(exact);
    tri_plan_destroy(cuda);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuda), cmocka_unit_test(test_cpu),
                                       cmocka_unit_test(test_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
