// Checks fusions (rewrites of two nodes, mostly into one): each row of their table in
// pass/fusions.c is used where the device has a kernel for the changed node, and only there. Maps
// merge where that saves memory passes and keeps no more for the backward pass. The
// results keep their bits when the sum of two gradients is fused into the gradient of a norm, or a
// max pooling into a batch norm.
#include "device/cpu/cpu.h"
#include "device/ref/ref.h"
#include "pass/fusions.h"
#include "support/op_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/functions.h>
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

// ---- only what the device supports is fused

// The `supports` of a device that has no kernel for a max pooling with ReLU or dropout.
static bool is_bare(const tri_device_description *device, const tri_graph *graph,
                    const tri_node *node) {
    const tri_max_pool2d_attr *pool = node->attr;
    return node->op != &tri_op_max_pool2d || (pool->dropout == 0 && !pool->relu);
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
    assert_int_equal(count_op(all, &tri_op_map), 2); // products compute them in the end
    assert_int_equal(count_op(all, &tri_op_reshape), 0);
    ok(tri_pass_fuse(some, &device, TRI_FUSE_BEFORE_AUTODIFF));
    assert_int_equal(count_op(some, &tri_op_map), 4);
    assert_int_equal(count_op(some, &tri_op_reshape), 0);
    op_graph_close(all);
    op_graph_close(some);
}

// The kernels of the device for convolutions do not compute maps of other inputs. The reference
// does, but takes longer than the two kernels by far.
static void test_reference_is_not_taken(void **state) {
    (void)state;
    const tri_device_backend *const backends[] = {&tri_device_cpu, &tri_device_ref};
    for (int i = 0; i < 2; i++) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_device *device = op_device_open(backends[i], 1);
        tri_value x = tri_parameter(g, "x", tri_shape_of(2, 3, 8, 8), (tri_init){0});
        tri_value place = tri_parameter(g, "place", tri_shape_of(1, 16, 6, 6), (tri_init){0});
        x = tri_conv2d(g, "a", x, (tri_conv2d_options){.channels = 16, .kernel = 3});
        tri_loss(g, tri_mean_loss(g, tri_map(g, "a, b -> a + b", x, place)));
        ok(tri_pass_fuse(g, &device->description, TRI_FUSE_LAST));
        assert_int_equal(count_op(g, &tri_op_product_map), i);
        op_graph_close(g);
        device->backend->close(device);
    }
}

// Where the network reads which elements were the largest, ReLU and dropout stay outside of the
// pooling, because they would change that.
static void test_indices_are_kept(void **state) {
    (void)state;
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value index, x = tri_parameter(g, "x", tri_shape_of(2, 3, 8, 8), (tri_init){0});
    x = tri_relu(g, tri_conv2d(g, "a", x, (tri_conv2d_options){.channels = 4, .kernel = 3}));
    x = tri_max_pool2d_with_indices(g, x, (tri_pool2d_options){.kernel = 2}, &index);
    x = tri_add(g, tri_dropout(g, "drop", x, 0.5), tri_cast(g, index, TRI_F32));
    tri_loss(g, tri_mean_loss(g, x));
    ok(tri_pass_fuse(g, NULL, TRI_FUSE_BEFORE_AUTODIFF));
    assert_int_equal(count_op(g, &tri_op_max_pool2d), 1);
    for (int i = 0; i < g->node_count; i++) {
        const tri_max_pool2d_attr *pool = g->nodes[i].attr;
        if (g->nodes[i].op != &tri_op_max_pool2d) continue;
        assert_true(pool->indexed && !pool->relu && pool->dropout == 0);
    }
    op_graph_close(g);
}

// ---- sums of gradients

enum { ROWS = 5, WIDTH = 48 };

// Builds norms with residual connections, in both orders of the sum: x + f(norm(x)) and
// f(norm(x)) + x.
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

// Checks that value b of the second session has the same bits as value a of the first.
static void same_bits(op_session *const *sessions, tri_value a, tri_value b, const char *what,
                      int number) {
    for (int64_t n = 0; n < op_count(sessions[0], a); n++) {
        double wanted = op_get(sessions[0], a, n), got = op_get(sessions[1], b, n);
        if (got != wanted)
            fail_msg("%s %d, element %d: %.9g, not %.9g", what, number, (int)n, got, wanted);
    }
}

// Runs both graphs, and checks that their metrics and gradients have the same bits. Closes the
// graphs and the device.
static void compare_runs(tri_graph *const *graphs, tri_device *device) {
    op_session *sessions[2];
    for (int k = 0; k < 2; k++) {
        sessions[k] = op_session_open(graphs[k], device, true);
        for (int i = 0; i < graphs[k]->parameter_count; i++) {
            // Statistics get positive values, because a running variance is never negative.
            double low = graphs[k]->parameters[i].role == TRI_ROLE_STATISTIC ? 0.1 : -1;
            if (graphs[k]->parameters[i].role != TRI_ROLE_COUNTER)
                op_fill(sessions[k], graphs[k]->parameters[i].value, 7, low, 1);
        }
        for (int i = 0; i < graphs[k]->input_count; i++)
            op_fill(sessions[k], graphs[k]->inputs[i].value, 7, -1, 1);
        if (graphs[k]->gradient_count > 0)
            op_set(sessions[k], tri_scalar(graphs[k], TRI_SCALAR_SEED), 0, 1);
        op_run_ok(sessions[k]);
    }
    for (int i = 0; i < graphs[0]->metric_count; i++)
        same_bits(sessions, graphs[0]->metrics[i].value, graphs[1]->metrics[i].value, "metric", i);
    for (int i = 0; i < graphs[0]->gradient_count; i++)
        same_bits(sessions, graphs[0]->gradients[i].value, graphs[1]->gradients[i].value,
                  "gradient", i);
    for (int k = 0; k < 2; k++) {
        op_session_close(sessions[k]);
        op_graph_close(graphs[k]);
    }
    device->backend->close(device);
}

static void test_sums_of_gradients(const tri_device_backend *backend, tri_precision precision) {
    tri_device *device = op_device_open(backend, 2);
    tri_graph *graphs[2] = {build_residual(precision), build_residual(precision)};
    assert_int_equal(count_op(graphs[0], &tri_op_add), 6);
    ok(tri_pass_fuse(graphs[1], &device->description, TRI_FUSE_AFTER_AUTODIFF));
    assert_int_equal(count_op(graphs[1], &tri_op_add), 3);
    compare_runs(graphs, device);
}

static void test_sums(void **state) {
    (void)state;
    test_sums_of_gradients(&tri_device_ref, TRI_PRECISION_32_TRUE);
    test_sums_of_gradients(&tri_device_cpu, TRI_PRECISION_32_TRUE);
    test_sums_of_gradients(&tri_device_cpu, TRI_PRECISION_BF16_MIXED);
}

// Builds a residual connection with a ReLU behind it, and another sum that something else reads.
static tri_graph *build_relu_of_sum(tri_precision precision) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_shape shape = tri_shape_of(ROWS, WIDTH);
    tri_value x = tri_parameter(g, "x", shape, (tri_init){0});
    x = tri_relu(g, tri_add(g, tri_layer_norm(g, "a", x, (tri_layer_norm_options){0}), x));
    tri_value sum = tri_add(g, x, tri_layer_norm(g, "b", x, (tri_layer_norm_options){0}));
    x = tri_add(g, tri_relu(g, sum), tri_layer_norm(g, "c", sum, (tri_layer_norm_options){0}));
    tri_loss(g, tri_mse_loss(g, x, tri_input(g, "target", TRI_F32, shape)));
    ok(tri_pass_precision(g, precision));
    ok(tri_pass_autodiff(g));
    return g;
}

static int count_forward(const tri_graph *g, const tri_op *op) {
    int count = 0;
    for (int i = 0; i < g->node_count; i++)
        count += g->nodes[i].op == op && g->nodes[i].phase == TRI_PHASE_FORWARD;
    return count;
}

// ReLU takes in the sum that nothing else reads, with the same bits.
static void test_relu_of_sum(void **state) {
    (void)state;
    static const tri_device_backend *const backends[] = {&tri_device_ref, &tri_device_cpu};
    for (int i = 0; i < 2; i++) {
        tri_device *device = op_device_open(backends[i], 2);
        tri_graph *graphs[2];
        for (int k = 0; k < 2; k++) graphs[k] = build_relu_of_sum(TRI_PRECISION_32_TRUE);
        assert_int_equal(count_forward(graphs[0], &tri_op_add), 3);
        ok(tri_pass_fuse(graphs[1], &device->description, TRI_FUSE_AFTER_AUTODIFF));
        assert_int_equal(count_forward(graphs[1], &tri_op_add), 2);
        compare_runs(graphs, device);
    }
}

// ---- max pooling in batch norm

// What differs between the cases: the size of the images, the pooling, and the model. relu: a ReLU
// stands between batch norm and pooling. shared: batch norm is computed over all replicas
// (batch_norm_shared). evaluates: the model is not trained.
typedef struct pool_case {
    int64_t height, width;
    tri_pool2d_options pool;
    bool relu, shared, evaluates;
    bool reads_twice; // another node reads the batch norm's output too
    int fused;        // how many of the two poolings a batch norm takes over
} pool_case;

// Builds two batch norms, each with a pooling behind it. A convolution reads the first result, and
// a linear layer the second.
static tri_graph *build_pooled(const pool_case *c) {
    tri_graph_options options = {.seed = 1, .training = !c->evaluates, .dtype = TRI_F32};
    tri_graph *g = tri_graph_create(NULL, &options);
    tri_block(g, "test");
    tri_value x = tri_parameter(g, "x", tri_shape_of(3, 16, c->height, c->width), (tri_init){0});
    for (int i = 0; i < 2; i++) {
        const char *name = tri_name(g, "norm%d", i);
        x = tri_conv2d(g, tri_name(g, "conv%d", i), x,
                       (tri_conv2d_options){.channels = 32, .kernel = 3, .padding = 1});
        tri_value norm = tri_batch_norm(g, name, x, (tri_batch_norm_options){0});
        if (c->shared) {
            tri_node like = *tri_value_node(g, norm);
            tri_collective_attr alone = {.group = TRI_GROUP_REPLICAS, .slices = 1};
            norm = ops_batch_norm_shared(g, &like, like.inputs, &alone);
        }
        x = tri_max_pool2d(g, c->relu ? tri_relu(g, norm) : norm, c->pool);
        if (c->reads_twice) {
            tri_value mean = tri_adaptive_avg_pool2d(g, norm, 1);
            x = tri_add(g, x, tri_max_pool2d(g, norm, c->pool));
            tri_metric(g, tri_name(g, "mean%d", i), tri_mse_loss(g, mean, mean));
        }
    }
    x = tri_linear(g, "fc", tri_flatten(g, x), 5);
    tri_value loss = tri_mse_loss(g, x, tri_input(g, "target", TRI_F32, tri_value_shape(g, x)));
    if (c->evaluates)
        tri_metric(g, "mean", loss);
    else
        tri_loss(g, loss);
    return g;
}

// Whether the node is no batch norm with a fused pooling. It serves as the `supports` of a device
// whose only kernel for such nodes runs on the host (uses_host), so that no pooling may be fused.
static bool is_separate(const tri_device_description *device, const tri_graph *graph,
                        const tri_node *node) {
    bool norm = node->op == &tri_op_batch_norm || node->op == &tri_op_batch_norm_shared ||
                node->op == &tri_op_batch_norm_inference;
    return !norm || ((const tri_batch_norm_attr *)node->attr)->pool.kernel[0] == 0;
}
static const tri_kernel_def separate = {.name = "separate", .supports = is_separate};
static const tri_kernel_def on_host = {.name = "on-host", .uses_host = true};
static const tri_kernel_def *const separate_kernels[] = {&separate, &on_host, NULL};
static const tri_device_backend separate_backend = {.name = "separate",
                                                    .kernels = separate_kernels};

static void compare_pooled(const pool_case *c, const tri_device_backend *backend,
                           tri_precision precision) {
    tri_device *device = op_device_open(backend, 2);
    tri_device_description without = {.backend = &separate_backend};
    const tri_device_description *devices[] = {&without, &device->description};
    tri_graph *graphs[2];
    for (int k = 0; k < 2; k++) {
        graphs[k] = build_pooled(c);
        int poolings = count_op(graphs[k], &tri_op_max_pool2d);
        ok(tri_pass_fuse(graphs[k], devices[k], TRI_FUSE_BEFORE_AUTODIFF));
        assert_int_equal(count_op(graphs[k], &tri_op_max_pool2d), poolings - k * c->fused);
        ok(tri_pass_precision(graphs[k], precision));
        if (!c->evaluates) ok(tri_pass_autodiff(graphs[k]));
    }
    compare_runs(graphs, device);
}

static void test_pooling_in_batch_norm(void **state) {
    (void)state;
    static const pool_case cases[] = {
        {8, 12, {.kernel = 2}, .relu = true, .fused = 2},
        {8, 12, {.kernel = 2}, .relu = false, .fused = 2},
        {9, 13, {.kernel = 2}, .relu = true, .fused = 2},
        {9, 13, {.kernel = 2}, .relu = true, .shared = true, .fused = 2},
        {9, 13, {.kernel = 2}, .relu = true, .evaluates = true, .fused = 2},
        {20, 17, {.kernel = 3, .stride = 4, .padding = 1}, .relu = true, .fused = 2},
        {11, 10, {.kernel = 3, .stride = 2, .padding = 1}, .relu = true, .fused = 0},
        {8, 12, {.kernel = 2}, .relu = true, .reads_twice = true, .fused = 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        compare_pooled(&cases[i], &tri_device_ref, TRI_PRECISION_32_TRUE);
        compare_pooled(&cases[i], &tri_device_cpu, TRI_PRECISION_32_TRUE);
        compare_pooled(&cases[i], &tri_device_cpu, TRI_PRECISION_BF16_MIXED);
    }
}

// ---- maps

typedef tri_value chain(tri_graph *g, tri_value a, tri_value b, tri_value c);

static tri_value six_functions(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    tri_value x = tri_map(g, "x, y -> x + y", tri_exp(g, tri_neg(g, a)), b);
    x = tri_map(g, "a, b -> a * b - 3", tri_sqrt(g, tri_abs(g, tri_mul(g, a, b))), x);
    return tri_map(g, "x, y -> x * y", x, tri_tanh(g, tri_map(g, "a, b -> a - b", b, a)));
}
static tri_value view_of_views(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    tri_value x = tri_transpose(g, tri_flip(g, tri_exp(g, a), 0), 0, 1);
    x = tri_slice(g, x, 0, 1, 5, 1);
    return tri_map(g, "x, y -> x - y", tri_transpose(g, x, 0, 1),
                   tri_slice(g, tri_sin(g, b), 1, 2, 6, 1));
}
static tri_value pad_of_slice(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    return tri_pad(g, tri_slice(g, a, 1, 1, 3, 1), 1, 1, 2);
}
static tri_value slice_of_pad(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    return tri_slice(g, tri_pad(g, a, 1, 2, 2), 1, 1, 9, 1);
}
static tri_value spread_sum(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    return tri_map(g, "a, b -> a * b", a, tri_map(g, "x, y -> x + y", c, c));
}
static tri_value spread_exp(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    return tri_map(g, "a, b -> a * b", a, tri_exp(g, c));
}
static tri_value cheap_twice(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    tri_value x = tri_map(g, "a, b -> a * b", a, b);
    return tri_concat(g, (tri_value[]){tri_sin(g, x), tri_cos(g, x)}, 2, 1);
}
// Equal numbers are looked for: what is compared is what others read, and not computed again.
static tri_value compared(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    tri_value x = tri_map(g, "a, b -> a * b", a, b);
    return tri_map(g, "x, most -> x == most ? 1 : 0", x, tri_amax(g, x, (int[]){1}, 1, true));
}
static tri_value compared_maps(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    tri_value x = tri_map(g, "a, b -> a * b", a, b);
    tri_value same = tri_map(g, "x, y -> x == y ? 1 : 0", x, tri_flip(g, x, 1));
    return tri_concat(g, (tri_value[]){same, tri_flip(g, x, 1)}, 2, 1);
}
static tri_value costly_twice(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    tri_value x = tri_map(g, "a, b -> exp(a * b)", a, b);
    return tri_concat(g, (tri_value[]){tri_sin(g, x), tri_cos(g, x)}, 2, 1);
}
static tri_value read_by_another(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    tri_value x = tri_map(g, "a, b -> a * b", a, b);
    return tri_concat(g, (tri_value[]){tri_sin(g, x), x}, 2, 1);
}
static tri_value named_output(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    tri_value x = tri_map(g, "a, b -> a * b", a, b);
    tri_output_add(g, "x", x);
    return tri_sin(g, x);
}
static tri_value block_between(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    tri_value x = tri_map(g, "a, b -> a * b", a, b);
    tri_block(g, "second");
    return tri_sin(g, x);
}
// The gradient of sin needs its argument, and that of the sum nothing.
static tri_value sum_in_function(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    tri_value x = tri_linear(g, "la", a, 6), y = tri_linear(g, "lb", b, 6);
    return tri_sin(g, tri_map(g, "x, y -> x + y", x, y));
}
static tri_value long_sum(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    tri_value all[] = {a, b, c, tri_flip(g, a, 0), tri_flip(g, a, 1), tri_flip(g, b, 0)};
    tri_value x = tri_map_values(g, "a, b, c, d, e, f -> a + b * c + d * e - f", all, 6);
    tri_value both = tri_flip(g, tri_flip(g, a, 0), 1);
    tri_value others[] = {x, tri_flip(g, b, 1), tri_flip(g, c, 0), both};
    return tri_map_values(g, "x, a, b, c -> x * a - b * c", others, 4);
}
static tri_value reduced(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    tri_value x = tri_map(g, "a, b, c -> exp(a) * b + c", a, b, c);
    return tri_sum(g, tri_flip(g, x, 1), (int[]){0}, 1, true);
}
static tri_value reduced_and_read(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    tri_value x = tri_map(g, "a, b, c -> exp(a) * b + c", a, b, c);
    return tri_concat(g, (tri_value[]){tri_amax(g, x, (int[]){0}, 1, true), x}, 2, 0);
}
static tri_value integers(tri_graph *g, tri_value a, tri_dtype dtype) {
    tri_value x = tri_cast(g, tri_mul_scalar(g, a, 100), dtype);
    x = tri_map(g, "x, y -> x < y * 3", x, tri_map(g, "x -> x * 5 + 7", x));
    return tri_cast(g, x, TRI_F32);
}
static tri_value wide_integers(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    return integers(g, a, TRI_I64);
}
static tri_value narrow_integers(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    return integers(g, a, TRI_I32);
}

// A mask takes in what it compares, and is taken in by nothing: it is 1 or 0 only where it is
// stored.
static tri_value masks(tri_graph *g, tri_value a, tri_value b, tri_value c) {
    tri_value mask = tri_mask(g, "a, b -> a - b", tri_round(g, tri_mul_scalar(g, a, 2)), b);
    return tri_map(g, "m, a -> m * 3 + a", tri_flip(g, mask, 0), tri_neg(g, a));
}
static tri_graph *build_chain(chain *make, bool training, tri_dtype dtype) {
    tri_graph_options options = {.seed = 1, .training = training, .dtype = dtype};
    tri_graph *g = tri_graph_create(NULL, &options);
    tri_block(g, "test");
    tri_shape shape = tri_shape_of(4, 6);
    tri_value a = tri_input(g, "inputs", dtype, shape), b = tri_input(g, "b", dtype, shape);
    tri_value y = make(g, a, b, tri_parameter(g, "c", tri_shape_of(6), (tri_init){0}));
    tri_metric(g, "mean", tri_mean_loss(g, y));
    tri_output_add(g, "y", y);
    return g;
}

// `ref` rounds to F32 between maps that are not merged, but not in F64.
static void check_chain(chain *make, bool training, int maps, const tri_device_backend *backend,
                        tri_dtype dtype) {
    tri_device *device = op_device_open(backend, 1);
    tri_graph *graphs[2] = {build_chain(make, training, dtype), build_chain(make, training, dtype)};
    ok(tri_pass_fuse(graphs[1], &device->description, TRI_FUSE_BEFORE_AUTODIFF));
    ok(tri_pass_fuse(graphs[1], &device->description, TRI_FUSE_AFTER_AUTODIFF));
    assert_int_equal(count_op(graphs[1], &tri_op_map), maps);
    op_session *sessions[2];
    for (int k = 0; k < 2; k++) {
        sessions[k] = op_session_open(graphs[k], device, false);
        for (int i = 0; i < graphs[k]->input_count; i++)
            op_fill(sessions[k], graphs[k]->inputs[i].value, 7, -1, 1);
        for (int i = 0; i < graphs[k]->parameter_count; i++)
            op_fill(sessions[k], graphs[k]->parameters[i].value, 7, -1, 1);
        op_run_ok(sessions[k]);
    }
    for (int i = 0; i < graphs[0]->output_count; i++)
        same_bits(sessions, graphs[0]->outputs[i].value, graphs[1]->outputs[i].value, "output", i);
    for (int k = 0; k < 2; k++) {
        op_session_close(sessions[k]);
        op_graph_close(graphs[k]);
    }
    device->backend->close(device);
}

// Before autodiff, a map takes in no other for which the backward pass would keep more.
static void test_kept(void **state) {
    (void)state;
    tri_graph *trained = build_chain(sum_in_function, true, TRI_F32);
    tri_graph *longer = build_chain(six_functions, true, TRI_F32);
    ok(tri_pass_fuse(trained, NULL, TRI_FUSE_BEFORE_AUTODIFF));
    ok(tri_pass_fuse(longer, NULL, TRI_FUSE_BEFORE_AUTODIFF));
    assert_int_equal(count_op(trained, &tri_op_map), 2);
    assert_int_equal(count_op(longer, &tri_op_map), 1);
    op_graph_close(trained);
    op_graph_close(longer);
}

static void test_maps(void **state) {
    (void)state;
    static const struct {
        const char *name;
        chain *make;
        bool training;
        int maps; // after the fusion
    } cases[] = {
        {"functions", six_functions, false, 1},
        {"functions, trained", six_functions, true, 1},
        {"views", view_of_views, false, 1},
        {"pad of slice", pad_of_slice, false, 2},
        {"slice of pad", slice_of_pad, false, 1},
        {"sum that is spread", spread_sum, false, 1},
        {"exp that is spread", spread_exp, false, 2},
        {"cheap, read twice", cheap_twice, false, 2},
        {"costly, read twice", costly_twice, false, 3},
        {"compared", compared, false, 2},
        {"compared, read by maps", compared_maps, false, 3},
        {"read by another op", read_by_another, false, 2},
        {"output", named_output, false, 2},
        {"blocks", block_between, false, 2},
        {"what a gradient reads", sum_in_function, false, 1},
        {"inputs", long_sum, false, 2},
        {"reduced", reduced, false, 0},
        {"reduced and read", reduced_and_read, false, 1},
        {"64 bits", wide_integers, false, 2},
        {"32 bits", narrow_integers, false, 3},
        {"masks", masks, false, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        print_message("%s\n", cases[i].name);
        check_chain(cases[i].make, cases[i].training, cases[i].maps, &tri_device_ref, TRI_F64);
        check_chain(cases[i].make, cases[i].training, cases[i].maps, &tri_device_cpu, TRI_F32);
    }
}

// ---- maps in products

// Layers whose activations have gradients by their outputs, and a metric of another map.
static tri_graph *build_products(int64_t rows, int64_t width, int64_t inner,
                                 tri_precision precision) {
    tri_graph_options options = {.seed = 1, .training = true, .precision = precision};
    tri_graph *g = tri_graph_create(NULL, &options);
    tri_block(g, "test");
    tri_value in = tri_input(g, "inputs", TRI_F32, tri_shape_of(rows, width));
    tri_value other = tri_input(g, "other", TRI_F32, tri_shape_of(width, inner));
    tri_value scale = tri_input(g, "scale", TRI_F32, tri_shape_of(inner));
    tri_value side =
        tri_map(g, "x, s -> max(x * s + 1, 0) * 0.5 - tanh(x)", tri_matmul(g, in, other), scale);
    tri_metric(g, "side", tri_mean_loss(g, side));
    tri_value x = tri_sigmoid(g, tri_linear(g, "first", in, inner));
    x = tri_matmul(g, x, tri_parameter(g, "second", tri_shape_of(inner, width), (tri_init){0}));
    x = tri_linear(g, "third", tri_tanh(g, x), inner);
    // What reads a tensor beside the product, or whose gradient reads the product, stays.
    x = tri_map(g, "x, y -> x + y", x, side);
    x = tri_gelu(g, tri_linear(g, "fourth", x, width));
    x = tri_sigmoid(g, tri_linear(g, "last", x, 3));
    tri_loss(g, tri_mse_loss(g, x, tri_input(g, "target", TRI_F32, tri_shape_of(rows, 3))));
    ok(tri_pass_fuse(g, NULL, TRI_FUSE_BEFORE_AUTODIFF));
    ok(tri_pass_precision(g, precision));
    ok(tri_pass_autodiff(g));
    ok(tri_pass_fuse(g, NULL, TRI_FUSE_AFTER_AUTODIFF));
    return g;
}

static void compare_products(const tri_device_backend *backend, int threads, int64_t rows,
                             int64_t width, int64_t inner, tri_precision precision) {
    tri_device *device = op_device_open(backend, threads);
    tri_graph *graphs[2];
    for (int k = 0; k < 2; k++) graphs[k] = build_products(rows, width, inner, precision);
    int maps = count_op(graphs[0], &tri_op_map);
    ok(tri_pass_fuse(graphs[1], &device->description, TRI_FUSE_LAST));
    int merged = count_op(graphs[1], &tri_op_product_map);
    // On a CPU without products of BF16, one kernel would not round between product and map.
    bool rounds = precision == TRI_PRECISION_32_TRUE || __builtin_cpu_supports("avx512bf16");
    assert_int_equal(count_op(graphs[1], &tri_op_map), maps - merged);
    // Four of the forward pass, or those of them that no cast separates from their product.
    static const int expected[] = {
        [TRI_PRECISION_32_TRUE] = 4, [TRI_PRECISION_BF16_MIXED] = 3, [TRI_PRECISION_BF16_TRUE] = 3};
    assert_int_equal(merged, rounds ? expected[precision] : 0);
    compare_runs(graphs, device);
}

// The results have the same bits as before the fusion, whatever the shapes and threads.
static void test_products(void **state) {
    (void)state;
    static const struct {
        int64_t rows, width, inner;
    } shapes[] = {{2, 1, 1}, {3, 65, 7}, {40, 33, 130}, {200, 64, 320}, {7, 600, 513}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int precision = TRI_PRECISION_32_TRUE; precision <= TRI_PRECISION_BF16_TRUE;
             precision++) {
            if (precision == TRI_PRECISION_16_MIXED) continue;
            for (int threads = 1; threads <= 3; threads += 2)
                compare_products(&tri_device_cpu, threads, shapes[i].rows, shapes[i].width,
                                 shapes[i].inner, (tri_precision)precision);
        }
    compare_products(&tri_device_ref, 1, 5, 6, 7, TRI_PRECISION_32_TRUE);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products),
                                       cmocka_unit_test(test_device_is_asked),
                                       cmocka_unit_test(test_reference_is_not_taken),
                                       cmocka_unit_test(test_indices_are_kept),
                                       cmocka_unit_test(test_sums),
                                       cmocka_unit_test(test_maps),
                                       cmocka_unit_test(test_kept),
                                       cmocka_unit_test(test_relu_of_sum),
                                       cmocka_unit_test(test_pooling_in_batch_norm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
