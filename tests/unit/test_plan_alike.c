// A model whose graph differs in evaluation or for another batch size is refused, because all its
// programs share the parameters and the sums of the metrics.
#include "device/ref/ref.h"
#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <trireme/trireme.h>

#include <cmocka.h>

static void same(tri_graph *g, const tri_batch *batch) {
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "fc", batch->inputs, 3), batch->labels));
}

static void other_metrics(tri_graph *g, const tri_batch *batch) {
    tri_value scores = tri_linear(g, "fc", batch->inputs, 3);
    if (tri_training(g))
        tri_metric(g, "extra", tri_nll_loss(g, tri_log_softmax(g, scores), batch->labels));
    tri_loss(g, tri_cross_entropy(g, scores, batch->labels));
}

static void other_names(tri_graph *g, const tri_batch *batch) {
    tri_value scores = tri_linear(g, tri_training(g) ? "train" : "test", batch->inputs, 3);
    tri_loss(g, tri_cross_entropy(g, scores, batch->labels));
}

static void other_shapes(tri_graph *g, const tri_batch *batch) {
    tri_value hidden = tri_linear(g, "hidden", batch->inputs, batch->size);
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "fc", hidden, 3), batch->labels));
}

static tri_status plan_of(void (*build)(tri_graph *g, const tri_batch *batch)) {
    const tri_task task = {.name = "odd", .build = build};
    const tri_field fields[] = {{"inputs", TRI_F32, {1, {5}}}, {"labels", TRI_I64, {0, {0}}}};
    tri_model_request model = {.task = &task, .fields = fields, .field_count = 2};
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_device *device;
    tri_device_config config = {0};
    assert_int_equal(tri_device_ref.open(&config, &device), TRI_OK);
    static const tri_strategy_options alone = {.name = TRI_STRATEGY_SINGLE, .recompute_every = 1};
    tri_plan_request request = {.model = &model,
                                .options = &alone,
                                .mesh = {.size = {1, 1, 1, 1}, .ranks = 1},
                                .step_samples = {[TRI_STEP_FULL] = 8, [TRI_STEP_EVALUATE] = 4},
                                .eval_micro = 4};
    tri_plan *plan = NULL;
    tri_status status = tri_plan_create(arena, &device->description, &request, &plan);
    tri_plan_destroy(plan);
    device->backend->close(device);
    tri_arena_destroy(arena);
    return status;
}

static void test_wants_one_model(void **state) {
    (void)state;
    assert_int_equal(plan_of(same), TRI_OK);
    assert_int_equal(plan_of(other_metrics), TRI_BAD_INPUT);
    assert_int_equal(plan_of(other_names), TRI_BAD_INPUT);
    assert_int_equal(plan_of(other_shapes), TRI_BAD_INPUT);
    assert_non_null(strstr(tri_error_message(), "build function"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wants_one_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
