// Outputs that a model names (tri_output). A run that trains and evaluates plans the same bytes and
// nodes with and without them. A plan for outputs has no losses, needs no labels, and keeps each
// output until the end of its segment (the nodes of a block in one phase), when the host gets it.
#include "device/ref/ref.h"
#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <trireme/trireme.h>

#include <cmocka.h>

enum { SAMPLES = 4, HIDDEN = 6, CLASSES = 3 };

static bool names_outputs; // whether the model `net` names its outputs

// The ReLU would be computed in the memory of what it reads, or in the layer before it.
static void net(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "first");
    tri_value hidden = tri_linear(g, "first", batch->inputs, HIDDEN);
    if (names_outputs) tri_output(g, "hidden", hidden);
    tri_value x = tri_linear(g, "second", tri_relu(g, hidden), HIDDEN);
    tri_block(g, "head");
    tri_value scores = tri_linear(g, "head", tri_relu(g, x), CLASSES);
    if (names_outputs) tri_output(g, "logits", scores);
    tri_loss(g, tri_add(g, tri_cross_entropy(g, scores, batch->labels),
                        tri_weighted(g, tri_nll_loss(g, tri_log_softmax(g, scores), batch->labels),
                                     0.5)));
}

typedef struct planned {
    tri_arena *arena;
    tri_device *device;
    tri_plan *plan; // NULL: it was refused
} planned;

static planned plan_of(void (*build)(tri_graph *g, const tri_batch *batch), bool predicts) {
    const tri_task task = {.name = "net", .build = build};
    const tri_field fields[] = {{"inputs", TRI_F32, {1, {5}}}, {"labels", TRI_I64, {0, {0}}}};
    const tri_model_request model = {.task = &task,
                                     .fields = fields,
                                     .field_count = predicts ? 1 : 2,
                                     .options.predicts = predicts,
                                     .options.cache_length = predicts ? 8 : 0};
    const tri_strategy_options options = {
        .name = TRI_STRATEGY_SINGLE, .recompute_every = 1, .prefetch = 1};
    const tri_plan_request request = {
        .model = &model,
        .options = &options,
        .mesh = {.size = {1, 1, 1, 1}, .ranks = 1},
        .step_samples =
            {[TRI_STEP_FULL] = predicts ? 0 : 2 * SAMPLES, [TRI_STEP_EVALUATE] = SAMPLES},
        .eval_micro = SAMPLES};
    planned made = {.arena = tri_arena_create(NULL, "test")};
    const tri_device_config config = {0};
    assert_int_equal(tri_device_ref.open(&config, &made.device), TRI_OK);
    (void)tri_plan_create(made.arena, &made.device->description, &request, &made.plan);
    return made;
}

static void drop(planned *p) {
    tri_plan_destroy(p->plan);
    p->device->backend->close(p->device);
    tri_arena_destroy(p->arena);
}

static void test_cost_nothing(void **state) {
    names_outputs = false;
    planned without = plan_of(net, false);
    names_outputs = true;
    planned with = plan_of(net, false);
    assert_non_null(without.plan);
    assert_non_null(with.plan);
    assert_memory_equal(&with.plan->memory, &without.plan->memory, sizeof with.plan->memory);
    assert_memory_equal(&with.plan->sizes, &without.plan->sizes, sizeof with.plan->sizes);
    assert_int_equal(with.plan->output_bytes, 0);
    for (int i = 0; i < with.plan->program_count; i++) {
        assert_int_equal(with.plan->programs[i]->graph->node_count,
                         without.plan->programs[i]->graph->node_count);
        assert_int_equal(with.plan->programs[i]->graph->output_count, 0);
    }
    drop(&with);
    drop(&without);
}

// Checks that no later node of the segment writes where the output lies.
static void check_kept(const tri_program *p, tri_value output) {
    const tri_graph *g = p->graph;
    const tri_node *maker = tri_value_node(g, output);
    tri_location at = p->locations[output.id];
    int64_t end = at.offset + tri_value_bytes(g, output);
    for (const tri_node *node = maker + 1; node < g->nodes + g->node_count; node++)
        for (int k = 0; k < node->output_count && node->block == maker->block; k++) {
            tri_location other = p->locations[node->outputs[k].id];
            if (other.kind != at.kind || other.index != at.index) continue;
            assert_true(other.offset >= end ||
                        other.offset + tri_value_bytes(g, node->outputs[k]) <= at.offset);
        }
}

static void test_predict(void **state) {
    names_outputs = true;
    planned p = plan_of(net, true);
    assert_non_null(p.plan);
    const tri_graph *g = p.plan->graph;
    assert_int_equal(g->metric_count + g->term_count, 0);
    assert_int_equal(g->output_count, 2);
    assert_string_equal(g->outputs[0].name, "hidden");
    assert_string_equal(g->outputs[1].name, "logits");
    for (int i = 0; i < g->node_count; i++) assert_false(g->nodes[i].op->flags & TRI_OP_LOSS);
    for (int i = 0; i < 2; i++) check_kept(p.plan->programs[0], g->outputs[i].value);
    assert_int_equal(p.plan->output_bytes, SAMPLES * HIDDEN * sizeof(float));
    assert_int_equal(p.plan->memory.gradients + p.plan->memory.optimizer, 0);
    drop(&p);
}

static void target_first(tri_graph *g, const tri_batch *batch) {
    tri_value x = tri_linear(g, "fc", batch->inputs, 3);
    tri_output(g, "x", x);
    tri_loss(
        g, tri_add(g, tri_mse_loss(g, batch->targets, x), tri_huber_loss(g, batch->targets, x, 1)));
}

// A loss of which the target stands first reads it no more than one where it stands second.
static void test_target_first(void **state) {
    planned p = plan_of(target_first, true);
    assert_non_null(p.plan);
    assert_int_equal(p.plan->graph->output_count, 1);
    drop(&p);
}

static void twice(tri_graph *g, const tri_batch *batch) {
    tri_output(g, "x", tri_linear(g, "fc", batch->inputs, 3));
    tri_output(g, "x", tri_linear(g, "fc2", batch->inputs, 3));
}
static void without_rows(tri_graph *g, const tri_batch *batch) {
    tri_value x = tri_linear(g, "fc", batch->inputs, 3);
    tri_output(g, "whole", tri_reshape(g, x, tri_shape_of(batch->size * 3)));
}
static void of_none(tri_graph *g, const tri_batch *batch) {
    tri_output(g, "masked", tri_batch_field(batch, "mask"));
}
static void of_input(tri_graph *g, const tri_batch *batch) {
    tri_linear(g, "fc", batch->inputs, 3);
    tri_output(g, "same", batch->inputs);
}
static void nameless(tri_graph *g, const tri_batch *batch) {
    tri_output(g, "", tri_linear(g, "fc", batch->inputs, 3));
}
static void unnamed(tri_graph *g, const tri_batch *batch) {
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "fc", batch->inputs, 3), batch->labels));
}

static void computed_spans(tri_graph *g, const tri_batch *batch) {
    tri_value spans = tri_cast(g, tri_slice(g, batch->inputs, 1, 0, 2, 1), TRI_I64);
    tri_output(g, "x", tri_cache(g, "kept", tri_linear(g, "fc", batch->inputs, 3), spans));
}

static void test_refused(void **state) {
    static const struct {
        void (*build)(tri_graph *g, const tri_batch *batch);
        const char *says;
    } cases[] = {{twice, "'x'"},
                 {without_rows, "'whole'"},
                 {of_none, "masked"},
                 {of_input, "'same'"},
                 {nameless, "an empty name"},
                 {unnamed, "tri_output"},
                 {computed_spans, "cache kept: its spans"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        planned p = plan_of(cases[i].build, true);
        assert_null(p.plan);
        assert_non_null(strstr(tri_error_message(), cases[i].says));
        drop(&p);
    }
}

// A target that a map reads, of which the data to be predicted have none.
static void own_loss(tri_graph *g, const tri_batch *batch) {
    tri_value scores = tri_linear(g, "head", batch->inputs, CLASSES);
    tri_output(g, "scores", scores);
    tri_loss(g, tri_mean_loss(g, tri_map(g, "p, t -> (p - t) ^ 2", scores,
                                         tri_batch_field(batch, "targets"))));
}

static void test_names_what_predictions_need(void **state) {
    planned p = plan_of(own_loss, true);
    assert_null(p.plan);
    assert_non_null(strstr(tri_error_message(), "data.shapes"));
    drop(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cost_nothing),
        cmocka_unit_test(test_predict),
        cmocka_unit_test(test_target_first),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_names_what_predictions_need),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
