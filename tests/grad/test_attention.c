// Compares attention with PyTorch (product_tables.h), value and gradients, on the devices `ref` and
// `cpu`; compares what the fused op computes with the products and the softmax that take its place;
// and checks masks, dropout and refusals.
#include "device/cpu/cpu.h"
#include "support/torch_check.h"

#include "grad/product_tables.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static tri_value parameter(tri_graph *g, const char *name, tri_shape shape) {
    return tri_parameter(g, name, shape, (tri_init){0});
}

static const struct row {
    const char *name;
    tri_shape k, v, bias;
    tri_attention_options options;
    bool masks;
} rows[] = {
    {"attention", {4, {2, 7, 2, 3}}, {4, {2, 7, 2, 3}}, {0}, {0}, false},
    {"attention, causal",
     {4, {2, 7, 4, 3}},
     {4, {2, 7, 4, 3}},
     {0},
     {.scale = 0.7, .causal = true},
     false},
    {"attention of wider values", {4, {2, 7, 2, 3}}, {4, {2, 7, 2, 5}}, {0}, {0}, false},
    {"attention with a bias",
     {4, {2, 5, 4, 3}},
     {4, {2, 5, 4, 3}},
     {4, {1, 4, 5, 5}},
     {.scale = 1},
     false},
    {"attention with a bias, causal",
     {4, {2, 70, 2, 2}},
     {4, {2, 70, 2, 2}},
     {3, {4, 1, 70}},
     {.scale = 0.5, .causal = true},
     false},
    {"attention with a mask", {4, {2, 6, 1, 3}}, {4, {2, 6, 1, 3}}, {4, {2, 1, 1, 6}}, {0}, true},
    {"attention of one element",
     {4, {1, 1, 1, 1}},
     {4, {1, 1, 1, 1}},
     {4, {1, 1, 1, 1}},
     {0},
     false},
};

static const struct row *row_of(const char *name) {
    for (size_t i = 0; i < COUNT(rows); i++)
        if (!strcmp(rows[i].name, name)) return &rows[i];
    return NULL;
}

// The attention of a row. A mask has no gradient of its own, so the row's operand is also added, in
// no part.
static tri_value attend(tri_graph *g, const char *name, tri_value q) {
    const struct row *row = row_of(name);
    tri_attention_options options = row->options;
    tri_value k = parameter(g, "k", row->k), v = parameter(g, "v", row->v);
    if (row->bias.rank) options.bias = parameter(g, "bias", row->bias);
    if (row->masks) {
        options.mask = tri_map(g, "bias -> bias > -0.5", options.bias);
        options.bias = tri_mul_scalar(g, options.bias, 0);
    }
    return tri_attention(g, "attention", q, k, v, options);
}

static tri_value composed(tri_graph *g, const char *name, tri_value q) {
    const struct row *row = row_of(name);
    tri_attention_options options = row->options;
    tri_value k = parameter(g, "k", row->k), v = parameter(g, "v", row->v);
    tri_value ones = tri_map(g, "k -> k == k", k); // a mask that hides nothing
    options.mask = tri_amax(g, ones, NULL, 0, false);
    return tri_attention(g, "attention", q, k, v, options);
}

static void test_torch(void **state) {
    int found = 0;
    for (size_t i = 0; i < COUNT(torch_products); i++) {
        const torch_case *c = &torch_products[i];
        if (!row_of(c->name)) continue;
        found++;
        torch_check(c, attend, &tri_device_ref, TRI_F64, 1e-10);
        torch_check(c, attend, &tri_device_cpu, TRI_F32, 1e-4);
        if (row_of(c->name)->bias.rank) continue;
        // The fused op and the products have one result.
        torch_check(c, composed, &tri_device_ref, TRI_F64, 1e-10);
        torch_check(c, composed, &tri_device_cpu, TRI_F32, 1e-4);
    }
    assert_int_equal(found, COUNT(rows));
}

static bool has_op(const tri_graph *g, const tri_op *op) {
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i].op == op) return true;
    return false;
}

static bool drops(const tri_graph *g) {
    tri_map_dropout dropout;
    for (int i = 0; i < g->node_count; i++)
        if (tri_map_is_dropout(g, &g->nodes[i], &dropout)) return true;
    return false;
}

// Which op computes attention, with and without options, in training and in evaluation.
static void test_fused(void **state) {
    for (int training = 0; training < 2; training++)
        for (int with = 0; with < 4; with++) {
            tri_graph *g = op_graph_open(TRI_F32);
            g->options.training = training;
            tri_value q = tri_input(g, "q", TRI_F32, tri_shape_of(2, 3, 2, 4));
            tri_value one = tri_input(g, "one", TRI_F32, tri_shape_of(1));
            tri_attention_options o = {.bias = with == 1 ? one : (tri_value){0},
                                       .mask = with == 2 ? one : (tri_value){0},
                                       .dropout = with == 3 ? 0.25 : 0};
            tri_attention(g, "a", q, q, q, o);
            bool fused = with == 0 || (with == 3 && !training);
            assert_true(has_op(g, &tri_op_attention) == fused);
            assert_true(drops(g) == (with == 3 && training));
            const char *message = "";
            if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s", message);
            op_graph_close(g);
        }
}

// A query that sees no key, by a mask or by a bias of -infinity, has 0 as its result, and no
// gradient that is not finite.
static void test_unseeing(void **state) {
    for (int by_bias = 0; by_bias < 2; by_bias++)
        for (int device = 0; device < 2; device++) {
            tri_dtype dtype = device ? TRI_F32 : TRI_F64;
            tri_graph *g = op_graph_open(dtype);
            tri_value q = parameter(g, "q", tri_shape_of(2, 3, 2, 4));
            tri_value k = parameter(g, "k", tri_shape_of(2, 5, 2, 4));
            tri_value hides = tri_input(g, "hides", dtype, tri_shape_of(2, 1, 3, 5));
            tri_attention_options o = {.mask = hides};
            if (by_bias)
                o = (tri_attention_options){.bias = tri_map(g, "m -> m == 0 ? -1 / 0 : 0", hides)};
            tri_value y = tri_attention(g, "a", q, k, k, o);
            tri_value target = tri_input(g, "target", dtype, tri_value_shape(g, y));
            tri_loss(g, tri_node_add(g, &tri_op_mse_loss, (tri_value[]){y, target}, 2, NULL, ""));
            assert_int_equal(tri_pass_autodiff(g), TRI_OK);
            tri_device *opened = op_device_open(device ? &tri_device_cpu : &tri_device_ref, 1);
            op_session *session = op_session_open(g, opened, false);
            fill_wave(session, q, 1, 1, 0);
            fill_wave(session, k, 2, 1, 0);
            for (int64_t i = 0; i < op_count(session, hides); i++)
                op_set(session, hides, i, i >= 5 && i < 10 ? 0 : 1); // query 1 of sample 0
            for (int64_t i = 0; i < op_count(session, target); i++) op_set(session, target, i, 1);
            op_set(session, g->scalars[TRI_SCALAR_SEED], 0, 1);
            op_run_ok(session);
            for (int64_t i = 0; i < op_count(session, y); i++)
                assert_true((op_get(session, y, i) == 0) == (i >= 8 && i < 16));
            for (int n = 0; n < g->gradient_count; n++)
                for (int64_t i = 0; i < op_count(session, g->gradients[n].value); i++)
                    assert_true(isfinite(op_get(session, g->gradients[n].value, i)));
            op_session_close(session);
            opened->backend->close(opened);
            op_graph_close(g);
        }
}

// Finite differences, through products, bias, mask, softmax and dropout.
static void test_differences(void **state) {
    for (int causal = 0; causal < 2; causal++) {
        subject s = begin();
        s.graph->options.training = true;
        tri_value q = trained(&s, "q", tri_shape_of(2, 3, 4, 2));
        tri_value k = trained(&s, "k", tri_shape_of(2, 4, 2, 2));
        tri_value v = trained(&s, "v", tri_shape_of(2, 4, 2, 3));
        tri_value bias = trained(&s, "bias", tri_shape_of(4, 1, 4));
        tri_value mask = tri_map(s.graph, "bias -> bias > -0.7", bias);
        tri_attention_options o = {
            .bias = bias, .mask = mask, .dropout = 0.3, .causal = causal, .scale = 0.8};
        check(&s, distance(&s, tri_attention(s.graph, "a", q, k, v, o)));
    }
}

static void refused(tri_shape q, tri_shape k, tri_shape v, tri_shape bias, double dropout,
                    const char *word) {
    tri_graph *g = op_graph_open(TRI_F32);
    g->options.training = true;
    tri_attention_options o = {.causal = true, .dropout = dropout};
    o.bias = tri_input(g, "bias", TRI_F32, bias);
    tri_attention(g, "a", tri_input(g, "q", TRI_F32, q), tri_input(g, "k", TRI_F32, k),
                  tri_input(g, "v", TRI_F32, v), o);
    const char *message = "";
    assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
    if (!strstr(message, word)) fail_msg("\"%s\" has no \"%s\"", message, word);
    op_graph_close(g);
}

static void test_refusals(void **state) {
    tri_shape q = tri_shape_of(2, 3, 4, 2), k = tri_shape_of(2, 3, 2, 2), one = tri_shape_of(1);
    refused(tri_shape_of(2, 3, 8), k, k, one, 0, "[2, 3, 8]");
    refused(q, tri_shape_of(2, 3, 3, 2), tri_shape_of(2, 3, 3, 2), one, 0, "multiple");
    refused(q, k, tri_shape_of(2, 4, 2, 2), one, 0, "[2, 4, 2, 2]");
    refused(q, tri_shape_of(2, 2, 2, 2), tri_shape_of(2, 2, 2, 2), one, 0, "causal");
    refused(q, tri_shape_of(2, 0, 2, 2), tri_shape_of(2, 0, 2, 2), one, 0, "empty");
    refused(q, k, k, tri_shape_of(3, 4, 3, 3), 0, "[3, 4, 3, 3]");
    refused(q, k, k, tri_shape_of(2, 1, 1, 1, 3), 0, "[2, 2, 4, 3, 3]");
    refused(q, k, k, one, 1.5, "1.5");
    refused(q, k, k, one, -0.5, "-0.5");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),    cmocka_unit_test(test_fused),
        cmocka_unit_test(test_unseeing), cmocka_unit_test(test_differences),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
