// Fusion: each row of the table is used where the device has a kernel for the merged node, and only
// there. Sums that gradients of norms take over keep their bits.
#include "device/cpu/cpu.h"
#include "device/ref/ref.h"
#include "pass/fusions.h"
#include "support/op_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/nn.h>

#include <cmocka.h>

static int count_op(const tri_graph *g, const tri_op *op) {
    int count = 0;
    for (int i = 0; i < g->node_count; i++) count += g->nodes[i].op == op;
    return count;
}

static void ok(tri_status status) {
    if (status != TRI_OK) fail_msg("%s", tri_error_message());
}

// ---- the device is asked

// A device whose convolutions have no activation and whose max pooling has no dropout.
static bool is_bare(const tri_device_description *device, const tri_graph *graph,
                    const tri_node *node) {
    if (node->op == &tri_op_conv2d)
        return ((const tri_conv2d_attr *)node->attr)->activation == TRI_ACTIVATION_NONE;
    if (node->op == &tri_op_max_pool2d)
        return ((const tri_max_pool2d_attr *)node->attr)->dropout == 0;
    return true;
}
static const tri_kernel_def bare = {.name = "bare", .supports = is_bare};
static const tri_kernel_def *const bare_kernels[] = {&bare, NULL};
static const tri_device_backend bare_backend = {.name = "bare", .kernels = bare_kernels};

static tri_graph *build_images(void) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value x = tri_parameter(g, "x", tri_shape_of(2, 3, 8, 8), (tri_init){0});
    x = tri_relu(g, tri_conv2d(g, "a", x, (tri_conv2d_options){.channels = 4, .kernel = 3}));
    x = tri_relu(g, tri_conv2d(g, "b", x, (tri_conv2d_options){.channels = 4, .kernel = 3}));
    x = tri_dropout(g, "drop", tri_max_pool2d(g, x, (tri_pool2d_options){.kernel = 2}), 0.5);
    x = tri_relu(g, tri_linear(g, "c", tri_flatten(g, x), 5));
    tri_value target = tri_input(g, "target", TRI_F32, tri_shape_of(2, 5));
    tri_loss(g, tri_mse_loss(g, x, target));
    return g;
}

static void test_device_is_asked(void **state) {
    (void)state;
    tri_graph *all = build_images(), *some = build_images();
    tri_device_description device = {.backend = &bare_backend};
    ok(tri_pass_fuse(all, NULL, TRI_FUSE_BEFORE_AUTODIFF));
    assert_int_equal(count_op(all, &tri_op_relu), 0);
    assert_int_equal(count_op(all, &tri_op_dropout), 0);
    assert_int_equal(count_op(all, &tri_op_reshape), 0);
    ok(tri_pass_fuse(some, &device, TRI_FUSE_BEFORE_AUTODIFF));
    assert_int_equal(count_op(some, &tri_op_relu), 2); // those behind convolutions
    assert_int_equal(count_op(some, &tri_op_dropout), 1);
    assert_int_equal(count_op(some, &tri_op_reshape), 0);
    op_graph_close(all);
    op_graph_close(some);
}

// ---- sums of gradients

enum { ROWS = 5, WIDTH = 48 };

// Norms beside residual connections, in both orders of the sum.
static tri_graph *build_residual(tri_precision precision) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_shape shape = tri_shape_of(ROWS, WIDTH);
    tri_value x = tri_parameter(g, "x", shape, (tri_init){0});
    x = tri_add(g, x, tri_gelu(g, tri_layer_norm(g, "a", x, (tri_layer_norm_options){0})));
    x = tri_add(g, tri_gelu(g, tri_rms_norm(g, "b", x, 1e-5)), x);
    x = tri_add(g, x, tri_gelu(g, tri_rms_norm(g, "c", x, 1e-5)));
    tri_value target = tri_input(g, "target", TRI_F32, shape);
    tri_loss(g, tri_mse_loss(g, x, target));
    ok(tri_pass_precision(g, precision));
    ok(tri_pass_autodiff(g));
    return g;
}

static void test_sums_of_gradients(const tri_device_backend *backend, tri_precision precision) {
    tri_device *device = op_device_open(backend, 2);
    tri_graph *graphs[2] = {build_residual(precision), build_residual(precision)};
    assert_int_equal(count_op(graphs[0], &tri_op_add), 6);
    ok(tri_pass_fuse(graphs[1], &device->description, TRI_FUSE_AFTER_AUTODIFF));
    assert_int_equal(count_op(graphs[1], &tri_op_add), 3);
    op_session *sessions[2];
    for (int k = 0; k < 2; k++) {
        sessions[k] = op_session_open(graphs[k], device, true);
        for (int i = 0; i < graphs[k]->parameter_count; i++)
            op_fill(sessions[k], graphs[k]->parameters[i].value, 7, -1, 1);
        for (int i = 0; i < graphs[k]->input_count; i++)
            op_fill(sessions[k], graphs[k]->inputs[i].value, 7, -1, 1);
        op_set(sessions[k], tri_scalar(graphs[k], TRI_SCALAR_SEED), 0, 1);
        op_run_ok(sessions[k]);
    }
    for (int i = 0; i < graphs[0]->gradient_count; i++) {
        tri_value a = graphs[0]->gradients[i].value, b = graphs[1]->gradients[i].value;
        for (int64_t n = 0; n < op_count(sessions[0], a); n++) {
            double wanted = op_get(sessions[0], a, n), got = op_get(sessions[1], b, n);
            if (got != wanted)
                fail_msg("%s: gradient %d, element %d: %.9g, not %.9g", backend->name, i, (int)n,
                         got, wanted);
        }
    }
    for (int k = 0; k < 2; k++) {
        op_session_close(sessions[k]);
        op_graph_close(graphs[k]);
    }
    device->backend->close(device);
}

static void test_sums(void **state) {
    (void)state;
    test_sums_of_gradients(&tri_device_ref, TRI_PRECISION_32_TRUE);
    test_sums_of_gradients(&tri_device_cpu, TRI_PRECISION_32_TRUE);
    test_sums_of_gradients(&tri_device_cpu, TRI_PRECISION_BF16_MIXED);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_device_is_asked),
                                       cmocka_unit_test(test_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
