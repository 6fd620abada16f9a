// Tests the passes (rewrites of a model's graph) on every built-in model, device, mode and size.
// Each pass leaves a graph that tri_graph_verify accepts, the same graph every time, with the
// properties that the pass promises. Graphs that the test makes wrong are refused.
#include "device/cpu/cpu.h"
#include "device/null/null.h"
#include "device/ref/ref.h"
#include "nn/models/models.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "plan/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/nn.h>

#include <cmocka.h>

static const tri_device_backend *const backends[] = {&tri_device_ref, &tri_device_null,
                                                     &tri_device_cpu};
enum { BACKENDS = sizeof backends / sizeof *backends };

static void check(tri_status status, const char *model, const char *what) {
    if (status != TRI_OK) fail_msg("%s, %s: %s", model, what, tri_error_message());
}

static tri_graph *build(tri_arena *arena, const tri_task *task, int64_t batch, bool training) {
    tri_model_request request = {
        .task = task, .fields = task->fields, .options = {.seed = 1, .training = training}};
    while (request.field_count < TRI_TASK_MAX_FIELDS && task->fields[request.field_count].name)
        request.field_count++;
    tri_graph *graph;
    check(tri_model_build(arena, &request, batch, &graph), task->name, "build");
    return graph;
}

static int count_op(const tri_graph *g, const tri_op *op) {
    int count = 0;
    for (int i = 0; i < g->node_count; i++) count += g->nodes[i].op == op;
    return count;
}

// Counts the nodes none of whose outputs is needed: no node reads the output, and it is neither a
// gradient nor a metric.
static int count_useless(const tri_graph *g) {
    bool *used = calloc((size_t)g->value_count, sizeof *used);
    assert_non_null(used);
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].input_count; k++) used[g->nodes[i].inputs[k].id] = true;
    for (int i = 0; i < g->gradient_count; i++) used[g->gradients[i].value.id] = true;
    for (int i = 0; i < g->metric_count; i++) used[g->metrics[i].value.id] = true;
    int useless = 0;
    for (int i = 0; i < g->node_count; i++) {
        bool needed = false;
        for (int k = 0; k < g->nodes[i].output_count; k++)
            needed = needed || used[g->nodes[i].outputs[k].id];
        useless += !needed;
    }
    free(used);
    return useless;
}

static char *text_of(const tri_graph *g, bool dot) {
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    (dot ? tri_graph_dot : tri_graph_print)(g, to);
    fclose(to);
    return text;
}

// A stage of a pipeline runs its backward pass before those of the stages in front of it, so what a
// backward pass reads must not come from the forward pass of a later block.
static void check_order(const tri_graph *g, const char *model) {
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        for (int k = 0; k < node->input_count; k++) {
            const tri_node *maker =
                tri_value_is(node->inputs[k]) ? tri_value_node(g, node->inputs[k]) : NULL;
            if (maker && maker->phase == TRI_PHASE_FORWARD && maker->block > node->block)
                fail_msg("%s: %s of block %s reads %s of the later block %s", model, node->op->name,
                         g->blocks[node->block], maker->op->name, g->blocks[maker->block]);
        }
    }
}

// Each parameter has a gradient of its shape, a tied one also several.
static void check_gradients(const tri_graph *g) {
    for (int i = 0; i < g->parameter_count; i++) {
        tri_parameter_role role = g->parameters[i].role;
        bool found = role == TRI_ROLE_COUNTER || role == TRI_ROLE_CONSTANT;
        for (int k = 0; k < g->gradient_count; k++) {
            if (g->gradients[k].parameter != i) continue;
            tri_shape shape = tri_value_shape(g, g->gradients[k].value);
            assert_true(tri_shape_equal(&shape, &g->parameters[i].shape));
            found = true;
        }
        if (!found) fail_msg("%s has no gradient", g->parameters[i].name);
    }
}

static char *rewrite(const tri_task *task, const tri_device *device, int64_t batch, bool training,
                     bool dot) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_graph *g = build(arena, task, batch, training);
    int64_t trained = tri_graph_trained_count(g);
    check(tri_graph_verify(g), task->name, "build");
    check(tri_pass_fuse(g, NULL, TRI_FUSE_BEFORE_AUTODIFF), task->name, "fuse");
    check(tri_graph_verify(g), task->name, "fuse");
    assert_int_equal(count_op(g, &tri_op_log_softmax), 0); // it was merged into nll_loss
    if (training) {
        check(tri_pass_autodiff(g), task->name, "autodiff");
        check(tri_graph_verify(g), task->name, "autodiff");
        check_gradients(g);
    }
    check(tri_pass_sweep(g), task->name, "sweep");
    check(tri_graph_verify(g), task->name, "sweep");
    assert_int_equal(count_useless(g), 0);
    check(tri_pass_layout(g, &device->description), task->name, "layout");
    check(tri_graph_verify(g), task->name, "layout");
    check_order(g, task->name);
    for (int i = 0; i < g->node_count; i++)
        assert_non_null(tri_device_select(&device->description, g, &g->nodes[i]));
    assert_int_equal(tri_graph_trained_count(g), trained);
    char *text = text_of(g, dot);
    tri_arena_destroy(arena);
    return text;
}

static void test_models(void **state) {
    (void)state;
    static const int64_t batches[] = {1, 3, 16};
    for (int b = 0; b < BACKENDS; b++) {
        tri_device *device;
        check(backends[b]->open(&(tri_device_config){.threads = 1}, &device), "", "open");
        for (int m = 0; tri_models[m]; m++)
            for (int k = 0; k < 3; k++)
                for (int training = 0; training < 2; training++)
                    for (int dot = 0; dot < 2; dot++) {
                        char *one = rewrite(tri_models[m], device, batches[k], training, dot);
                        char *two = rewrite(tri_models[m], device, batches[k], training, dot);
                        assert_string_equal(one, two);
                        assert_non_null(strstr(one, dot ? "digraph" : "forward "));
                        assert_true(training == (strstr(one, dot ? "filled" : "backward ") != 0));
                        free(one);
                        free(two);
                    }
        device->backend->close(device);
    }
}

// The layout in which a parameter is kept (its home layout) depends neither on the size of the
// micro-batch nor on whether the graph trains or evaluates.
static void test_homes(void **state) {
    (void)state;
    tri_device *device;
    check(tri_device_cpu.open(&(tri_device_config){.threads = 1}, &device), "", "open");
    for (int m = 0; tri_models[m]; m++) {
        tri_arena *arena = tri_arena_create(NULL, "test");
        tri_graph *first = NULL;
        for (int64_t batch = 1; batch <= 9; batch++)
            for (int training = 0; training < 2; training++) {
                tri_graph *g = build(arena, tri_models[m], batch, training);
                check(tri_pass_fuse(g, NULL, TRI_FUSE_BEFORE_AUTODIFF), g->blocks[0], "fuse");
                if (training) check(tri_pass_autodiff(g), g->blocks[0], "autodiff");
                check(tri_pass_sweep(g), g->blocks[0], "sweep");
                check(tri_pass_layout(g, &device->description), g->blocks[0], "layout");
                if (!first) first = g;
                assert_int_equal(g->parameter_count, first->parameter_count);
                for (int i = 0; i < g->parameter_count; i++) {
                    assert_string_equal(g->parameters[i].name, first->parameters[i].name);
                    if (!tri_layout_equal(&g->parameters[i].layout, &first->parameters[i].layout))
                        fail_msg("%s, %s: another home at batch %d", tri_models[m]->name,
                                 g->parameters[i].name, (int)batch);
                }
            }
        tri_arena_destroy(arena);
    }
    device->backend->close(device);
}

// Changes every node of a good graph in each of the ways below, one at a time, and checks that
// tri_graph_verify finds each change.
static void test_verify(void **state) {
    (void)state;
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_graph *g = build(arena, &tri_model_mnist_convnet, 2, true);
    check(tri_pass_fuse(g, NULL, TRI_FUSE_BEFORE_AUTODIFF), "mnist-convnet", "fuse");
    check(tri_pass_autodiff(g), "mnist-convnet", "autodiff");
    for (int i = 0; i < g->node_count; i++) {
        tri_node *node = &g->nodes[i], kept = *node;
        tri_value_info *out = &g->values[node->outputs[0].id], was = *out;
#define SPOILED(change)                                                                            \
    do {                                                                                           \
        change;                                                                                    \
        if (tri_graph_verify(g) == TRI_OK) fail_msg("node %d, %s: not caught", i, #change);        \
        *node = kept;                                                                              \
        *out = was;                                                                                \
    } while (0)
        SPOILED(node->block = -1);
        SPOILED(node->block = g->block_count);
        SPOILED(node->inputs[0] = (tri_value){(uint32_t)g->value_count});
        SPOILED(node->inputs[0] = node->outputs[0]);
        SPOILED(node->inputs[0] = (tri_value){0});
        SPOILED(out->shape.dims[0]++);
        SPOILED(out->dtype = TRI_U8);
        SPOILED(out->node = i + 1);
        SPOILED(out->output = 5);
        if (i + 1 < g->node_count && node->phase == TRI_PHASE_FORWARD)
            SPOILED(node->phase = TRI_PHASE_STEP);
        if (i > 0 && node->phase == TRI_PHASE_FORWARD && kept.block == 0 && i < 2)
            SPOILED(node->block = g->block_count - 1);
        assert_int_equal(tri_graph_verify(g), TRI_OK);
    }
    for (int i = 0; i < g->parameter_count; i++) {
        if (!tri_value_is(tri_gradient_of(g, i))) continue;
        tri_parameter_info kept = g->parameters[i];
        g->parameters[i].shape.dims[0]++;
        assert_int_not_equal(tri_graph_verify(g), TRI_OK);
        g->parameters[i] = kept;
    }
    tri_arena_destroy(arena);
}

static tri_value image(tri_graph *g, const char *name, const tri_batch *batch) {
    tri_value x = tri_linear(g, name, tri_flatten(g, batch->images), 16 * 4 * 4);
    return tri_reshape(g, x, tri_shape_of(batch->size, 16, 4, 4));
}

static void copied_later(tri_graph *g, const tri_batch *batch) {
    tri_conv_options options = {.channels = 16, .kernel = 3, .padding = 1};
    tri_block(g, "first");
    tri_value a = image(g, "fc1", batch), b = image(g, "fc2", batch);
    tri_block(g, "second");
    tri_value x = tri_map(g, "a, b, c -> a * b + c", a, tri_conv2d(g, "conv1", b, options), b);
    tri_block(g, "third");
    x = tri_add(g, tri_conv2d(g, "conv2", x, options), tri_conv2d(g, "conv3", a, options));
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "out", tri_flatten(g, x), 10), batch->labels));
}

// The second block reorders what the first has made; the first one's backward pass needs that too.
static void test_copies_of_later_blocks(void **state) {
    (void)state;
    tri_task task = tri_model_mnist_cnn;
    task.build = copied_later;
    tri_device *device;
    check(tri_device_cpu.open(&(tri_device_config){.threads = 1}, &device), "", "open");
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_graph *g = build(arena, &task, 4, true);
    check(tri_pass_autodiff(g), "copied_later", "autodiff");
    check(tri_pass_sweep(g), "copied_later", "sweep");
    check(tri_pass_layout(g, &device->description), "copied_later", "layout");
    check_order(g, "copied_later");
    tri_arena_destroy(arena);
    device->backend->close(device);
}

static void no_loss(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "only");
    tri_linear(g, "fc", tri_flatten(g, batch->images), 10);
}

static void idle_parameter(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "only");
    tri_linear(g, "idle", tri_flatten(g, batch->images), 3);
    tri_value x = tri_linear(g, "fc", tri_flatten(g, batch->images), 10);
    tri_loss(g, tri_cross_entropy(g, x, batch->labels));
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        void (*build)(tri_graph *g, const tri_batch *batch);
        const char *part;
    } cases[] = {{no_loss, "loss"}, {idle_parameter, "idle"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_arena *arena = tri_arena_create(NULL, "test");
        tri_task task = tri_model_mnist_cnn;
        task.build = cases[i].build;
        tri_model_request request = {
            .task = &task, .fields = task.fields, .field_count = 2, .options = {.training = true}};
        tri_graph *g = NULL;
        tri_status status = tri_model_build(arena, &request, 2, &g);
        if (status == TRI_OK) status = tri_pass_autodiff(g);
        assert_int_equal(status, TRI_BAD_INPUT);
        if (!strstr(tri_error_message(), cases[i].part)) fail_msg("%s", tri_error_message());
        tri_arena_destroy(arena);
    }
}

static tri_status silent_shape(const void *attr, tri_op_signature *s) {
    s->out[0] = s->in[0];
    s->out_type[0] = s->in_type[0];
    return TRI_OK;
}

// An op whose row says nothing of precision and of slices is computed as it is always right: in
// F32, and whole on every rank.
static void test_row_without_a_word(void **state) {
    (void)state;
    static const tri_op silent = {
        .name = "silent", .input_count = 1, .output_count = 1, .shape = silent_shape};
    static const tri_tensor_parallel_options as_annotated = {0};
    tri_mesh mesh = {.size = {1, 1, 1, 1}, .ranks = 2};
    mesh.size[TRI_AXIS_TENSOR_PARALLEL] = 2;
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_graph *g = tri_graph_create(arena, &(tri_graph_options){.dtype = TRI_F32}), *rank;
    tri_block(g, "test");
    tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 6));
    x = tri_linear(g, "fc1", x, 8);
    tri_split_layer(g, "fc1", TRI_SPLIT_COLUMN);
    tri_node_add(g, &silent, &x, 1, NULL, "");
    check(tri_pass_tensor_parallel(arena, g, &mesh, 0, &as_annotated, &rank), "silent", "slices");
    const tri_node *last = &rank->nodes[rank->node_count - 1];
    assert_ptr_equal(last->op, &silent);
    assert_int_equal(tri_value_shape(rank, last->inputs[0]).dims[1], 8);
    check(tri_pass_precision(g, TRI_PRECISION_BF16_MIXED), "silent", "precision");
    last = &g->nodes[g->node_count - 1];
    assert_int_equal(tri_value_get(g, last->inputs[0])->dtype, TRI_F32);
    tri_arena_destroy(arena);
}

// The backward pass reads the output of a batch norm only where ReLU is fused into it. Else that
// output would be kept for nothing: a quarter of what ResNet-50 keeps.
static void test_outputs_of_norms(void **state) {
    (void)state;
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_graph *g = build(arena, &tri_model_resnet, 1, true);
    int masks = 0;
    check(tri_pass_fuse(g, NULL, TRI_FUSE_BEFORE_AUTODIFF), "resnet", "fuse");
    check(tri_pass_autodiff(g), "resnet", "autodiff");
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].input_count; k++) {
            const tri_node *maker = tri_value_is(g->nodes[i].inputs[k])
                                        ? tri_value_node(g, g->nodes[i].inputs[k])
                                        : NULL;
            if (!maker || maker->op != &tri_op_batch_norm ||
                g->nodes[i].phase == TRI_PHASE_FORWARD ||
                tri_value_get(g, g->nodes[i].inputs[k])->output != 0)
                continue;
            assert_true(((const tri_batch_norm_attr *)maker->attr)->relu);
            masks += g->nodes[i].op == &tri_op_batch_norm_grad;
        }
    assert_int_equal(masks, 32); // two of each of the 16 bottlenecks
    tri_arena_destroy(arena);
}

// Gradients of slices that together are the whole value are joined, not padded and added: in each
// layer of vit those of queries, keys and values.
static void test_slices(void **state) {
    (void)state;
    static const int parts[][2] = {{0, 8}, {8, 12}, {12, 16}, {0, 7}, {4, 12}};
    static const struct {
        int first, count, concats; // the slices of 16 columns, and how often gradients are joined
        int reshapes;              // slices are of the reshaped value: 1: all, 2: some
    } cases[] = {{0, 3, 1, 0}, {0, 2, 0, 0}, {1, 3, 0, 0}, {3, 1, 0, 0},
                 {0, 3, 1, 1}, {0, 2, 0, 1}, {0, 3, 1, 2}, {0, 2, 0, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_arena *arena = tri_arena_create(NULL, "test");
        tri_graph *g = tri_graph_create(arena, &(tri_graph_options){.training = true});
        tri_value x, sum = {0};
        tri_block(g, "test");
        x = tri_linear(g, "fc", tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 6)), 16);
        for (int k = cases[i].first; k < cases[i].first + cases[i].count; k++) {
            bool reshapes = cases[i].reshapes == 1 || (cases[i].reshapes == 2 && k != 1);
            tri_value from = reshapes ? tri_reshape(g, x, tri_shape_of(4, 4, 4)) : x;
            int unit = reshapes ? 4 : 1;
            tri_value part = tri_slice(g, from, 1, parts[k][0] / unit, parts[k][1] / unit, 1);
            part = tri_mean_loss(g, tri_mul(g, part, part));
            sum = tri_value_is(sum) ? tri_add(g, sum, part) : part;
        }
        tri_loss(g, sum);
        check(tri_pass_autodiff(g), "slices", "autodiff");
        assert_int_equal(count_op(g, &tri_op_concat), cases[i].concats);
        assert_int_equal(count_useless(g), 0);
        tri_arena_destroy(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models),
                                       cmocka_unit_test(test_homes),
                                       cmocka_unit_test(test_verify),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_copies_of_later_blocks),
                                       cmocka_unit_test(test_outputs_of_norms),
                                       cmocka_unit_test(test_slices),
                                       cmocka_unit_test(test_row_without_a_word)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
