// Tests the pass that applies a precision (such as bf16-mixed) to a model's graph: the type of each
// value of the built-in models, and where casts are added. Also tests that what the reference
// device `ref` computes in a half type (BF16 or F16) is its F32 result, rounded once.
#include "device/cpu/cpu.h"
#include "device/ref/ref.h"
#include "nn/models/models.h"
#include "pass/pass.h"
#include "plan/program.h"
#include "support/op_compare.h"
#include "tensor/half.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/nn.h>

#include <cmocka.h>

static void check(tri_status status, const char *what) {
    if (status != TRI_OK) fail_msg("%s: %s", what, tri_error_message());
}

static tri_graph *build(tri_arena *arena, const tri_task *task, bool training) {
    tri_model_request request = {
        .task = task, .fields = task->fields, .options = {.seed = 1, .training = training}};
    while (request.field_count < TRI_TASK_MAX_FIELDS && task->fields[request.field_count].name)
        request.field_count++;
    tri_graph *graph = NULL;
    check(tri_model_build(arena, &request, 4, &graph), task->name);
    check(tri_pass_fuse(graph, NULL, TRI_FUSE_BEFORE_AUTODIFF), task->name);
    return graph;
}

static const tri_dtype half_types[] = {[TRI_PRECISION_32_TRUE] = TRI_F32,
                                       [TRI_PRECISION_BF16_MIXED] = TRI_BF16,
                                       [TRI_PRECISION_16_MIXED] = TRI_F16,
                                       [TRI_PRECISION_BF16_TRUE] = TRI_BF16};
enum { PRECISIONS = 4 };

static int count_op(const tri_graph *g, const tri_op *op) {
    int count = 0;
    for (int i = 0; i < g->node_count; i++) count += g->nodes[i].op == op;
    return count;
}

static tri_dtype type_of(const tri_graph *g, tri_value value) {
    return tri_value_get(g, value)->dtype;
}

static bool is_product(const tri_op *op) {
    static const tri_op *const products[] = {
        &tri_op_linear,    &tri_op_linear_grad_input, &tri_op_linear_grad_weight,
        &tri_op_conv2d,    &tri_op_conv2d_grad_input, &tri_op_conv2d_grad_weight,
        &tri_op_attention, &tri_op_attention_grad,
    };
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        if (products[i] == op) return true;
    return false;
}

static bool is_weight_gradient(const tri_op *op) {
    return op == &tri_op_linear_grad_weight || op == &tri_op_conv2d_grad_weight;
}

static void check_node(const tri_graph *g, const tri_node *node, tri_dtype half) {
    const char *name = node->op->name;
    if (is_product(node->op)) {
        int half_inputs = node->op == &tri_op_attention_grad ? 5 : node->input_count;
        for (int k = 0; k < half_inputs; k++)
            if (tri_value_is(node->inputs[k]) && type_of(g, node->inputs[k]) != half)
                fail_msg("%s '%s': input %d is not half", name, node->name, k);
        tri_dtype made = is_weight_gradient(node->op) ? TRI_F32 : half;
        if (type_of(g, node->outputs[0]) != made)
            fail_msg("%s '%s': makes another type", name, node->name);
    }
    if (node->op == &tri_op_mse_loss || node->op == &tri_op_relative_l2_loss)
        assert_int_equal(type_of(g, node->inputs[0]), TRI_F32);
    if (node->op == &tri_op_batch_norm || node->op == &tri_op_rms_norm ||
        node->op == &tri_op_layer_norm) {
        for (int k = 1; k < node->input_count; k++)
            if (tri_value_is(node->inputs[k]))
                assert_int_equal(type_of(g, node->inputs[k]), TRI_F32);
        // Output 5 of batch norm is the `index` of a pooling that is fused into it.
        for (int k = 1; k < node->output_count; k++)
            assert_int_equal(type_of(g, node->outputs[k]), k == 5 ? TRI_U8 : TRI_F32);
    }
    // No cast converts a value to the type that it already has.
    if (node->op == &tri_op_cast)
        assert_int_not_equal(type_of(g, node->inputs[0]), type_of(g, node->outputs[0]));
}

// Checks that no value is cast twice.
static void check_casts(const tri_graph *g) {
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < i; k++)
            if (g->nodes[i].op == &tri_op_cast && g->nodes[k].op == &tri_op_cast &&
                g->nodes[i].inputs[0].id == g->nodes[k].inputs[0].id)
                fail_msg("value %u is cast twice", g->nodes[i].inputs[0].id);
}

// Casts of floats to floats; the others are a model's own.
static int count_float_casts(const tri_graph *g) {
    int count = 0;
    for (int i = 0; i < g->node_count; i++)
        count += g->nodes[i].op == &tri_op_cast &&
                 tri_dtype_is_float(type_of(g, g->nodes[i].inputs[0])) &&
                 tri_dtype_is_float(type_of(g, g->nodes[i].outputs[0]));
    return count;
}

static void test_models(void **state) {
    for (int m = 0; tri_models[m]; m++)
        for (int p = 0; p < PRECISIONS; p++)
            for (int training = 0; training < 2; training++) {
                tri_arena *arena = tri_arena_create(NULL, "test");
                tri_graph *g = build(arena, tri_models[m], training);
                check(tri_pass_precision(g, (tri_precision)p), tri_models[m]->name);
                if (p == TRI_PRECISION_32_TRUE) assert_int_equal(count_float_casts(g), 0);
                check_casts(g);
                if (training) check(tri_pass_autodiff(g), tri_models[m]->name);
                for (int i = 0; i < g->node_count; i++) check_node(g, &g->nodes[i], half_types[p]);
                for (int i = 0; i < g->parameter_count; i++) {
                    const tri_parameter_info *info = &g->parameters[i];
                    if (info->role == TRI_ROLE_COUNTER || info->role == TRI_ROLE_CONSTANT) continue;
                    assert_int_equal(info->dtype, TRI_F32);
                    if (info->role == TRI_ROLE_STATISTIC || p == TRI_PRECISION_32_TRUE)
                        assert_int_equal(type_of(g, info->value), TRI_F32);
                    else if (p == TRI_PRECISION_BF16_TRUE)
                        assert_int_equal(type_of(g, info->value), TRI_BF16);
                }
                tri_arena_destroy(arena);
            }
}

// In the model mnist-cnn only the images are cast: all values between its matrix products and
// convolutions stay BF16.
static void test_cnn(void **state) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_graph *g = build(arena, &tri_model_mnist_cnn, true);
    check(tri_pass_precision(g, TRI_PRECISION_BF16_MIXED), "mnist-cnn");
    assert_int_equal(count_op(g, &tri_op_cast), 1);
    assert_int_equal(g->nodes[0].op == &tri_op_cast, true);
    check(tri_pass_autodiff(g), "mnist-cnn");
    assert_int_equal(count_op(g, &tri_op_cast), 1);
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].output_count; k++) {
            tri_dtype dtype = type_of(g, g->nodes[i].outputs[k]);
            bool small = dtype == TRI_F64 || dtype == TRI_U8 || is_weight_gradient(g->nodes[i].op);
            assert_true(small || dtype == TRI_BF16);
        }
    tri_arena_destroy(arena);
}

// Adds a part of a transformer's layer with a residual connection: norm, gated linear layers, and
// the sum with x. In mixed precision the residual stream (x and the sum) stays F32, and the forward
// pass has no cast.
static tri_value residual(tri_graph *g, tri_value x, const char *norm, const char *in,
                          const char *out) {
    tri_shape width = tri_shape_of(tri_value_shape(g, x).dims[1]);
    tri_value weight = tri_parameter(g, norm, width, (tri_init){0});
    tri_norm_attr attr = {.eps = 1e-5};
    tri_value y = tri_node_add(g, &tri_op_rms_norm, (tri_value[]){x, weight}, 2, &attr, norm);
    tri_value h = tri_linear(g, in, y, 32);
    h = tri_silu_mul(g, h, tri_linear(g, "up", y, 32));
    return tri_add(g, x, tri_linear(g, out, h, width.dims[0]));
}

static tri_graph *transformer(tri_arena *arena, bool tied, tri_precision precision) {
    tri_graph *g = tri_graph_create(arena, &(tri_graph_options){.training = true});
    tri_block(g, "embed");
    tri_value ids = tri_input(g, "input_ids", TRI_I64, tri_shape_of(6));
    tri_value table = tri_parameter(g, "table", tri_shape_of(40, 16), (tri_init){0});
    tri_value x = tri_node_add(g, &tri_op_embedding, (tri_value[]){ids, table}, 2, NULL, "embed");
    tri_block(g, "layer");
    x = residual(g, x, "norm", "gate", "down");
    tri_block(g, "head");
    tri_norm_attr attr = {.eps = 1e-5};
    tri_value weight = tri_parameter(g, "final", tri_shape_of(16), (tri_init){0});
    x = tri_node_add(g, &tri_op_rms_norm, (tri_value[]){x, weight}, 2, &attr, "final");
    tri_linear_attr one = {.axes = 1};
    x = tied ? tri_node_add(g, &tri_op_linear, (tri_value[]){x, table}, 2, &one, "head")
             : tri_linear(g, "head", x, 40);
    tri_loss(g, tri_cross_entropy(g, x, tri_input(g, "labels", TRI_I64, tri_shape_of(6))));
    const char *message = "";
    if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s", message);
    check(tri_pass_precision(g, precision), "transformer");
    return g;
}

static const tri_node *first_of(const tri_graph *g, const tri_op *op) {
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i].op == op) return &g->nodes[i];
    fail_msg("there is no %s", op->name);
    return NULL;
}

static tri_dtype parameter_type(const tri_graph *g, const char *name) {
    for (int i = 0; i < g->parameter_count; i++)
        if (!strcmp(g->parameters[i].name, name)) return type_of(g, g->parameters[i].value);
    fail_msg("there is no %s", name);
    return TRI_F32;
}

static void test_transformer(void **state) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_graph *g = transformer(arena, false, TRI_PRECISION_BF16_MIXED);
    assert_int_equal(count_op(g, &tri_op_cast), 0);
    assert_int_equal(parameter_type(g, "table"), TRI_F32);
    assert_int_equal(parameter_type(g, "norm"), TRI_F32);
    assert_int_equal(parameter_type(g, "gate.weight"), TRI_BF16);
    assert_int_equal(type_of(g, first_of(g, &tri_op_embedding)->outputs[0]), TRI_F32);
    assert_int_equal(type_of(g, first_of(g, &tri_op_rms_norm)->outputs[0]), TRI_BF16);
    assert_int_equal(type_of(g, first_of(g, &tri_op_map)->outputs[0]), TRI_BF16);
    assert_int_equal(type_of(g, first_of(g, &tri_op_add)->outputs[0]), TRI_F32);
    assert_int_equal(type_of(g, first_of(g, &tri_op_cross_entropy)->inputs[0]), TRI_BF16);
    check(tri_pass_autodiff(g), "transformer");
    // The only cast: the residual stream is F32, so its gradient is cast to BF16 for the backward
    // pass of the matrix product whose result was added to the stream.
    assert_int_equal(count_op(g, &tri_op_cast), 1);
    assert_int_equal(type_of(g, first_of(g, &tri_op_cross_entropy_grad)->outputs[0]), TRI_BF16);
    assert_int_equal(type_of(g, first_of(g, &tri_op_rms_norm_grad)->outputs[0]), TRI_F32);

    // Tied weights: the embedding's table has the half type because the head needs that; its rows
    // are cast to F32 for the residual stream.
    g = transformer(arena, true, TRI_PRECISION_BF16_MIXED);
    assert_int_equal(parameter_type(g, "table"), TRI_BF16);
    assert_int_equal(count_op(g, &tri_op_cast), 1);
    const tri_node *cast = first_of(g, &tri_op_cast);
    assert_ptr_equal(tri_value_node(g, cast->inputs[0])->op, &tri_op_embedding);
    assert_int_equal(cast->block, 1);
    assert_int_equal(type_of(g, first_of(g, &tri_op_add)->outputs[0]), TRI_F32);
    check(tri_pass_autodiff(g), "transformer");

    g = transformer(arena, false, TRI_PRECISION_BF16_TRUE);
    assert_int_equal(parameter_type(g, "table"), TRI_BF16);
    assert_int_equal(count_op(g, &tri_op_cast), 2); // of the norms' weights, from BF16 to F32
    assert_int_equal(type_of(g, first_of(g, &tri_op_add)->outputs[0]), TRI_BF16);
    check(tri_pass_autodiff(g), "transformer");
    assert_int_equal(count_op(g, &tri_op_cast), 2);

    g = transformer(arena, false, TRI_PRECISION_16_MIXED);
    assert_int_equal(parameter_type(g, "gate.weight"), TRI_F16);
    assert_int_equal(type_of(g, first_of(g, &tri_op_add)->outputs[0]), TRI_F32);
    tri_arena_destroy(arena);
}

// What becomes an integer, such as an index that is halved, keeps its digits in every precision,
// and so does what is made of integers alone; beside other numbers it is rounded.
static void test_integers(void **state) {
    for (int p = TRI_PRECISION_32_TRUE; p <= TRI_PRECISION_BF16_TRUE; p++) {
        tri_arena *arena = tri_arena_create(NULL, "test");
        tri_graph *g = tri_graph_create(arena, &(tri_graph_options){.training = true});
        tri_block(g, "first");
        tri_value i = tri_input(g, "ids", TRI_I64, tri_shape_of(6, 4));
        tri_value x = tri_cast(g, i, TRI_F32);
        tri_value halved = tri_map(g, "i / 2", tri_add(g, x, tri_map(g, "i + 3", x)));
        tri_value index = tri_cast(g, tri_cumsum(g, tri_map(g, "i - 1", halved), 1), TRI_I64);
        tri_value sum = tri_map(g, "i, x -> i + x", tri_cast(g, index, TRI_F32), x);
        tri_value targets = tri_input(g, "targets", TRI_F32, tri_shape_of(6, 4));
        tri_value below = tri_map(g, "i, j -> i <= j", sum, x);
        tri_value mixed = tri_map(g, "b, t -> b * t", tri_reshape(g, below, tri_shape_of(6, 4)),
                                  tri_map(g, "t + 1", targets));
        tri_value y = tri_linear(g, "a", tri_add(g, mixed, below), 4);
        tri_loss(g, tri_mse_loss(g, y, targets));
        check(tri_pass_precision(g, (tri_precision)p), "integers");
        assert_int_equal(type_of(g, below), TRI_F32);
        assert_int_equal(type_of(g, mixed), p == TRI_PRECISION_BF16_TRUE ? TRI_BF16 : TRI_F32);
        assert_int_equal(type_of(g, halved), TRI_F32);
        assert_int_equal(type_of(g, index), TRI_I64);
        assert_int_equal(type_of(g, sum), TRI_F32);
        check(tri_pass_autodiff(g), "integers");
        tri_arena_destroy(arena);
    }
}

// Random numbers below 1 would be rounded to 1 in a half type: they stay F32, whether a map has
// taken them in or reads them in another shape.
static void test_random_numbers(void **state) {
    (void)state;
    for (int rows = 1; rows <= 2; rows++) {
        tri_arena *arena = tri_arena_create(NULL, "test");
        tri_graph *g = tri_graph_create(
            arena, &(tri_graph_options){.training = true, .precision = TRI_PRECISION_BF16_TRUE});
        tri_block(g, "first");
        tri_value targets = tri_input(g, "targets", TRI_F32, tri_shape_of(6 * rows, 4));
        tri_value x = tri_linear(g, "a", targets, 4), u = tri_rand_like(g, "u", x);
        tri_value y =
            tri_map(g, "x, u -> x - log(1 - u)", x, tri_reshape(g, u, tri_value_shape(g, x)));
        tri_loss(g, tri_mse_loss(g, tri_linear(g, "b", tri_mul(g, y, u), 4), targets));
        check(tri_pass_fuse(g, NULL, TRI_FUSE_BEFORE_AUTODIFF), "random numbers");
        check(tri_pass_precision(g, TRI_PRECISION_BF16_TRUE), "random numbers");
        for (int i = 0; i < g->node_count; i++) {
            const tri_node *node = &g->nodes[i], *maker = tri_value_node(g, node->inputs[0]);
            while (maker && maker->op == &tri_op_reshape)
                maker = tri_value_node(g, maker->inputs[0]);
            if (node->op != &tri_op_cast || !maker || maker->op != &tri_op_map) continue;
            const tri_map_attr *map = maker->attr;
            assert_false(map->drawn && map->formula.input_count == 1);
        }
        tri_arena_destroy(arena);
    }
}

// If other blocks read an F32 value only in a half type, it is cast in the block that makes it. If
// another block also reads it in F32, it is cast in the blocks that read it in the half type.
static void test_where_casts_are(void **state) {
    for (int both = 0; both < 2; both++) {
        tri_arena *arena = tri_arena_create(NULL, "test");
        tri_graph *g = tri_graph_create(arena, &(tri_graph_options){.training = true});
        tri_block(g, "first");
        tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(6, 16));
        tri_value t = tri_input(g, "targets", TRI_F32, tri_shape_of(6, 16));
        tri_value sum = tri_add(g, x, t);
        tri_block(g, "second");
        tri_value y = tri_add(g, tri_linear(g, "a", sum, 16), tri_linear(g, "b", sum, 16));
        if (both) y = tri_add(g, y, sum);
        tri_loss(g, tri_mse_loss(g, y, t));
        check(tri_pass_precision(g, TRI_PRECISION_BF16_MIXED), "casts");
        const tri_node *cast = first_of(g, &tri_op_cast);
        assert_int_equal(cast->inputs[0].id, sum.id);
        assert_int_equal(cast->block, both);
        // Without `both` there is a second cast, of y: it is BF16, and the loss reads it in F32.
        assert_int_equal(count_op(g, &tri_op_cast), both ? 1 : 2);
        check(tri_pass_autodiff(g), "casts");
        tri_arena_destroy(arena);
    }
}

// Changes the graph: replaces the half type by F32, in values and in attributes.
static void widen(tri_graph *g, tri_dtype half) {
    for (int i = 0; i < g->value_count; i++)
        if (g->values[i].dtype == half) g->values[i].dtype = TRI_F32;
    for (int i = 0; i < g->node_count; i++) {
        tri_node *node = &g->nodes[i];
        char *attr = tri_arena_alloc(g->arena, node->op->attr_bytes);
        if (node->op->attr_bytes) memcpy(attr, node->attr, node->op->attr_bytes);
        for (const tri_attr_field *f = node->op->attr_fields; f && f->name; f++) {
            int64_t *dtype = (int64_t *)(attr + f->offset);
            if (f->kind == TRI_ATTR_TYPE && *dtype == (int64_t)half) *dtype = TRI_F32;
        }
        node->attr = attr;
    }
}

// Runs a graph in a half type and the same graph in F32, both on inputs that the half type holds
// exactly. For nodes that read only inputs, the result in the half type must be that in F32,
// rounded.
static void compare_rounded(const op_family *family, uint64_t seed, tri_dtype half) {
    tri_device *device = op_device_open(&tri_device_ref, 1);
    op_session *sessions[2];
    op_case cases[2];
    for (int wide = 0; wide < 2; wide++) {
        op_case *c = &cases[wide];
        *c = (op_case){.graph = op_graph_open(TRI_F32), .dtype = half, .seed = seed};
        family->build(c);
        if (wide) widen(c->graph, half);
        sessions[wide] = op_session_open(c->graph, device, false);
        op_sources_fill(sessions[wide], c);
        for (int i = 0; wide && i < c->source_count; i++) {
            tri_value source = c->sources[i].value;
            if (type_of(cases[0].graph, source) != half) continue;
            for (int64_t k = 0; k < op_count(sessions[0], source); k++)
                op_set(sessions[1], source, k, op_get(sessions[0], source, k));
        }
        op_run_ok(sessions[wide]);
    }
    const tri_graph *g = cases[0].graph;
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        bool direct = true; // the node reads no outputs of other nodes
        for (int k = 0; k < node->input_count; k++)
            direct = direct && tri_value_get(g, node->inputs[k])->kind != TRI_VALUE_RESULT;
        for (int k = 0; direct && k < node->output_count; k++) {
            tri_dtype dtype = type_of(g, node->outputs[k]);
            if (!tri_dtype_is_float(dtype)) continue;
            for (int64_t n = 0; n < op_count(sessions[0], node->outputs[k]); n++) {
                double got = op_get(sessions[0], node->outputs[k], n);
                double want = op_get(sessions[1], node->outputs[k], n);
                if (dtype == half)
                    want = (double)tri_half_to_float(half, tri_float_to_half(half, (float)want));
                if (got != want && !(isnan(got) && isnan(want)))
                    fail_msg("%s: %g is not %g", node->op->name, got, want);
            }
        }
    }
    for (int wide = 0; wide < 2; wide++) {
        op_session_close(sessions[wide]);
        op_graph_close(cases[wide].graph);
    }
    device->backend->close(device);
}

static void test_rounded(void **state) {
    for (const op_family *family = op_families; family->name; family++)
        for (uint64_t seed = 1; seed <= 4 && !family->half_tolerance; seed++) {
            compare_rounded(family, seed, TRI_BF16);
            compare_rounded(family, seed + 10, TRI_F16);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),         cmocka_unit_test(test_cnn),
        cmocka_unit_test(test_transformer),    cmocka_unit_test(test_integers),
        cmocka_unit_test(test_random_numbers), cmocka_unit_test(test_where_casts_are),
        cmocka_unit_test(test_rounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
