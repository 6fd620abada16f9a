// Tests low-rank adapters (nn/lora.c): which layers get one, what their matrices are, what is left
// to train, how ranks that divide layers hold them, and the messages about patterns that find none.
#include "nn/lora.h"
#include "ops/ops.h"
#include "pass/pass.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <trireme/functions.h>
#include <trireme/nn.h>

#include <cmocka.h>

#include "support/arena_fixture.h"
#include "support/message.h"

// A network with layers of every kind of weight, in a graph with adapters of the layers that match.
static tri_graph *make(const char *const *match, int count, int64_t rank) {
    tri_lora lora = {.match = {match, count}, .rank = rank, .alpha = 16};
    tri_graph *g = tri_graph_create(arena, &(tri_graph_options){.training = true, .lora = lora});
    tri_value ids = tri_input(g, "input_ids", TRI_I64, tri_shape_of(4, 3));
    tri_value x =
        tri_embedding(g, "embed", ids, (tri_embedding_options){.tokens = 16, .features = 8});
    tri_value y = tri_linear(g, "mlp.up", tri_rms_norm(g, "norm", x, 1e-6), 12);
    tri_split_layer(g, "mlp.up", TRI_SPLIT_COLUMN);
    y = tri_linear_with(g, "mlp.down", tri_relu(g, y),
                        (tri_linear_options){.features = 8, .stored_transposed = true});
    tri_split_layer(g, "mlp.down", TRI_SPLIT_ROW);
    tri_value qkv = tri_linear(g, "attn.qkv", y, 24);
    tri_split_fused_layer(g, "attn.qkv", 3);
    y = tri_add(g, tri_chunk(g, qkv, 2, 3, 0), tri_chunk(g, qkv, 2, 3, 2));
    tri_share_layer(g, "twice");
    y = tri_linear(g, "twice", tri_linear(g, "twice", y, 8), 8);
    y = tri_linear_with(
        g, "head", y,
        (tri_linear_options){.features = 16, .no_bias = true, .weight = "embed.weight"});
    tri_loss(g, tri_cross_entropy(g, y, ids));
    return g;
}

static tri_graph *made(const char *pattern, int64_t rank) {
    const char **match = TRI_NEW(arena, const char *);
    const char *message = "";
    *match = pattern;
    tri_graph *g = make(match, 1, rank);
    if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s", message);
    return g;
}

static const tri_parameter_info *find(const tri_graph *g, const char *name) {
    int found = tri_index_find(&g->parameter_index, name, strlen(name));
    return found == TRI_NOT_IN_INDEX ? NULL : &g->parameters[found];
}

static int count_adapters(const tri_graph *g) {
    int count = 0;
    for (int i = 0; i < g->parameter_count; i++) count += g->parameters[i].adapts != 0;
    return count;
}

static void check_shape(const tri_graph *g, const char *name, int64_t rows, int64_t columns) {
    const tri_parameter_info *p = find(g, name);
    if (!p) {
        fail_msg("there is no %s", name);
        return;
    }
    assert_int_equal(p->shape.rank, 2);
    assert_int_equal(p->shape.dims[0], rows);
    assert_int_equal(p->shape.dims[1], columns);
}

static void test_matrices(void **state) {
    tri_graph *g = made("mlp.*", 3);
    assert_int_equal(tri_lora_check(g), TRI_OK);
    assert_int_equal(count_adapters(g), 4);
    check_shape(g, "mlp.up.lora_A.weight", 3, 8);
    check_shape(g, "mlp.up.lora_B.weight", 12, 3);
    check_shape(g, "mlp.down.lora_A.weight", 3, 12); // also of a weight that files have transposed
    check_shape(g, "mlp.down.lora_B.weight", 8, 3);
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_parameter_info *p = &g->parameters[i];
        assert_int_equal(p->role, p->adapts ? TRI_ROLE_TRAINED : TRI_ROLE_FROZEN);
        assert_false(p->adapts && p->stored_transposed);
    }
    assert_int_equal(tri_graph_trained_count(g), 3 * (8 + 12) * 2);
    assert_true(find(g, "mlp.up.lora_A.weight")->init.high == 1 / sqrt(8));
    assert_int_equal(find(g, "mlp.up.lora_B.weight")->init.kind, TRI_INIT_ZEROS);
}

// Only the adapters have gradients, and nothing before the first of them is computed backward.
static void test_gradients(void **state) {
    tri_graph *g = made("mlp.down", 2);
    assert_int_equal(tri_pass_autodiff(g), TRI_OK);
    assert_int_equal(g->gradient_count, 2);
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i].phase == TRI_PHASE_BACKWARD)
            assert_true(strncmp(g->nodes[i].name, "mlp.up", 6) && strcmp(g->nodes[i].name, "norm"));
}

static void test_patterns(void **state) {
    static const struct {
        const char *pattern;
        int matrices;
    } rows[] = {{"*", 8},       {"up", 2},    {"mlp.up", 2}, {"*.up", 2},    {"m?p.*", 4},
                {"[ma]*.*", 6}, {"twice", 2}, {"*n*", 4},    {"mlp.down", 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_graph *g = made(rows[i].pattern, 2);
        if (tri_lora_check(g) != TRI_OK) fail_msg("%s", tri_error_message());
        if (count_adapters(g) != rows[i].matrices)
            fail_msg("%s: %d matrices", rows[i].pattern, count_adapters(g));
    }
}

static void test_refusals(void **state) {
    static const struct {
        const char *pattern, *message;
    } rows[] = {
        {"mlp.dwn", "lora.match|mlp.dwn|nearest|mlp.down"},
        {"*.layers.*.qvk", "lora.match|*.layers.*.qvk|nearest|attn.qkv"},
        {"nothing", "lora.match|nothing|first|mlp.up"},
        {"embed", "lora.match|embed|embed|no linear layer"},
        {"hea?", "lora.match|hea?|head|weight"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(tri_lora_check(made(rows[i].pattern, 2)), TRI_BAD_INPUT);
        message_check(tri_error_message(), rows[i].message);
    }
    const char *message = "", *all[] = {"up", "twice", "nothing"};
    assert_int_equal(tri_graph_status(make(all, 2, 9), &message), TRI_BAD_INPUT);
    message_check(message, "lora.rank|9|mlp.up|8 inputs|12 outputs");
    assert_int_equal(tri_lora_check(make(all, 3, 2)), TRI_BAD_INPUT);
}

// Ranks that divide a layer divide one matrix of its adapter, in the same way.
static void test_slices(void **state) {
    tri_graph *g = made("*", 2), *rank;
    tri_mesh mesh = {.size = {1, 1, 1, 1}, .ranks = 2};
    mesh.size[TRI_AXIS_TENSOR_PARALLEL] = 2;
    if (tri_pass_tensor_parallel(arena, g, &mesh, 1, &(tri_tensor_parallel_options){0}, &rank) !=
        TRI_OK)
        fail_msg("%s", tri_error_message());
    check_shape(rank, "mlp.up.lora_A.weight", 2, 8);
    check_shape(rank, "mlp.up.lora_B.weight", 6, 2);
    check_shape(rank, "mlp.down.lora_A.weight", 2, 6);
    check_shape(rank, "mlp.down.lora_B.weight", 8, 2);
    check_shape(rank, "attn.qkv.lora_A.weight", 2, 8);
    check_shape(rank, "attn.qkv.lora_B.weight", 12, 2);
    assert_int_equal(find(rank, "attn.qkv.lora_B.weight")->slice.parts, 3);
    check_shape(rank, "twice.lora_A.weight", 2, 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrices), cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_patterns), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_slices),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
