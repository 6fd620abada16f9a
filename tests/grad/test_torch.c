// Compares ops and optimizers of the reference device `ref` with PyTorch. torch_tables.h has
// PyTorch's results. Of a tensor it has two numbers: the sum over all elements with different
// factors, and the sum of squares. Inputs are waves (the function `wave`), which
// make_torch_tables.py computes by the same formula.
#include "base/philox.h"
#include "device/ref/ref.h"
#include "grad/torch_tables.h"
#include "nn/optimizer.h"
#include "support/op_session.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/nn.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

// A graph with a single op, whose inputs are the graph's inputs, and what runs it on `ref`.
typedef struct op_bench {
    tri_graph *graph;
    tri_device *device;
    op_session *session;
    tri_value in[TRI_MAX_INPUTS], y;
} op_bench;

static tri_dtype input_type(const tri_op *op, int input, tri_dtype dtype) {
    bool classes =
        (op->flags & TRI_OP_LOSS && op != &tri_op_mse_loss && op != &tri_op_relative_l2_loss &&
         op != &tri_op_binary_cross_entropy && op != &tri_op_soft_nll_loss) ||
        op == &tri_op_accuracy;
    if (input == 1 && classes) return TRI_I64;
    if (input == 0 && (op == &tri_op_embedding || op == &tri_op_next_token)) return TRI_I64;
    return input == 2 && (op->flags & TRI_OP_UPDATE) ? TRI_F64 : dtype;
}

static op_bench bench_open(tri_dtype dtype, const tri_op *op, const tri_shape *shapes, int count,
                           const void *attr) {
    const char *message = "";
    op_bench b = {.graph = op_graph_open(dtype)};
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", i);
        b.in[i] = tri_input(b.graph, name, input_type(op, i, dtype), shapes[i]);
    }
    b.y = tri_node_add(b.graph, op, b.in, count, attr, "");
    if (tri_graph_status(b.graph, &message) != TRI_OK) fail_msg("%s", message);
    b.device = op_device_open(&tri_device_ref, 1);
    b.session = op_session_open(b.graph, b.device, false);
    return b;
}

static void bench_close(op_bench *b) {
    op_session_close(b->session);
    b->device->backend->close(b->device);
    op_graph_close(b->graph);
}

static double wave(double k, int64_t i) {
    double x = (double)i;
    return sin(0.9 * x + 0.013 * x * x + k);
}

static void fill_wave(op_bench *b, int input, double k) {
    for (int64_t i = 0; i < op_count(b->session, b->in[input]); i++)
        op_set(b->session, b->in[input], i, wave(k, i));
}

static void near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
        fail_msg("got %.17g, PyTorch has %.17g", got, want);
}

static void near_projection(const op_bench *b, tri_value value, const double want[2]) {
    double cosine = 0, squares = 0;
    for (int64_t i = 0; i < op_count(b->session, value); i++) {
        double v = op_get(b->session, value, i);
        cosine += v * cos(1.7 * (double)i + 0.3);
        squares += v * v;
    }
    near(cosine, want[0], 1e-10);
    near(squares, want[1], 1e-10);
}

static tri_shape four(const int64_t *d) { return tri_shape_of(d[0], d[1], d[2], d[3]); }

static void test_conv2d(void **state) {
    for (size_t i = 0; i < COUNT(torch_convs); i++) {
        const torch_conv *c = &torch_convs[i];
        tri_conv2d_attr attr = {.groups = c->groups};
        memcpy(attr.stride, c->stride, sizeof attr.stride);
        memcpy(attr.padding, c->padding, sizeof attr.padding);
        memcpy(attr.dilation, c->dilation, sizeof attr.dilation);
        tri_shape weight =
            tri_shape_of(c->features, c->x[1] / c->groups, c->kernel[0], c->kernel[1]);
        tri_shape shapes[] = {four(c->x), weight, tri_shape_of(c->features)};
        op_bench b = bench_open(TRI_F64, &tri_op_conv2d, shapes, 3, &attr);
        for (int k = 0; k < 3; k++) fill_wave(&b, k, k + 1);
        op_run_ok(b.session);
        near_projection(&b, b.y, c->y);
        bench_close(&b);
    }
}

static void test_max_pool2d(void **state) {
    for (size_t i = 0; i < COUNT(torch_pools); i++) {
        const torch_pool *c = &torch_pools[i];
        tri_max_pool2d_attr attr = {0};
        memcpy(attr.kernel, c->kernel, sizeof attr.kernel);
        memcpy(attr.stride, c->stride, sizeof attr.stride);
        memcpy(attr.padding, c->padding, sizeof attr.padding);
        tri_shape shape = four(c->x);
        op_bench b = bench_open(TRI_F64, &tri_op_max_pool2d, &shape, 1, &attr);
        fill_wave(&b, 0, 1);
        op_run_ok(b.session);
        near_projection(&b, b.y, c->y);
        bench_close(&b);
    }
}

static void test_avg_pool2d(void **state) {
    for (size_t i = 0; i < COUNT(torch_avg_pools); i++) {
        const torch_avg_pool *c = &torch_avg_pools[i];
        tri_shape shape = four(c->x);
        op_bench b = bench_open(TRI_F64, &tri_op_avg_pool2d, &shape, 1, &c->attr);
        fill_wave(&b, 0, 1);
        op_run_ok(b.session);
        near_projection(&b, b.y, c->y);
        bench_close(&b);
    }
}

// Compares batch norm with PyTorch: y in training; the running statistics after one micro-batch of
// 3 samples, where the op's sums over samples are divided by 3, as the op moving_average does; and
// y in evaluation with these statistics.
static void test_batch_norm(void **state) {
    tri_batch_norm_attr attr = {.eps = 1e-5};
    tri_shape x = tri_shape_of(3, 2, 4, 5), c = tri_shape_of(2);
    op_bench b = bench_open(TRI_F64, &tri_op_batch_norm, (tri_shape[]){x, c, c}, 3, &attr);
    for (int k = 0; k < 3; k++) fill_wave(&b, k, k + 1);
    op_run_ok(b.session);
    near_projection(&b, b.y, torch_bn_y);
    for (int64_t i = 0; i < 2; i++) {
        double mean = op_get(b.session, tri_node_output(b.graph, b.y, 3), i) / 3;
        double var = op_get(b.session, tri_node_output(b.graph, b.y, 4), i) / 3;
        near(0.1 * mean, torch_bn_mean[i], 1e-12);
        near(0.9 + 0.1 * var, torch_bn_var[i], 1e-12);
    }
    bench_close(&b);
    b = bench_open(TRI_F64, &tri_op_batch_norm_inference, (tri_shape[]){x, c, c, c, c}, 5, &attr);
    fill_wave(&b, 0, 4);
    fill_wave(&b, 1, 2);
    fill_wave(&b, 2, 3);
    for (int64_t i = 0; i < 2; i++) {
        op_set(b.session, b.in[3], i, torch_bn_mean[i]);
        op_set(b.session, b.in[4], i, torch_bn_var[i]);
    }
    op_run_ok(b.session);
    near_projection(&b, b.y, torch_bn_eval);
    bench_close(&b);
}

static void test_moving_average(void **state) {
    tri_shape c = tri_shape_of(2), step = tri_shape_of(TRI_STEP_SCALAR_COUNT);
    tri_moving_average_attr attr = {.momentum = 0.1};
    op_bench b = bench_open(TRI_F64, &tri_op_moving_average, (tri_shape[]){c, c, step}, 3, &attr);
    double *scalars = op_host(b.session, b.in[2]);
    scalars[TRI_STEP_STATISTIC_SCALE] = 0.25;
    op_set(b.session, b.in[0], 0, 2);
    op_set(b.session, b.in[1], 0, 12);
    op_run_ok(b.session);
    near(op_get(b.session, b.in[0], 0), 0.9 * 2 + 0.1 * 3, 1e-15);
    bench_close(&b);
    // Without a momentum, as PyTorch with momentum=None: the mean over all updates.
    attr.momentum = 0;
    b = bench_open(TRI_F64, &tri_op_moving_average, (tri_shape[]){c, c, step}, 3, &attr);
    scalars = op_host(b.session, b.in[2]);
    scalars[TRI_STEP_STATISTIC_SCALE] = 0.25;
    op_set(b.session, b.in[0], 0, 100);
    const double sums[] = {12, -8, 20};
    for (int k = 0; k < 3; k++) {
        scalars[TRI_STEP_UPDATE] = k + 1;
        op_set(b.session, b.in[1], 0, sums[k]);
        op_run_ok(b.session);
    }
    near(op_get(b.session, b.in[0], 0), (3.0 - 2 + 5) / 3, 1e-14);
    scalars[TRI_STEP_SKIP] = 1;
    double before = op_get(b.session, b.in[0], 0);
    op_run_ok(b.session);
    assert_true(op_get(b.session, b.in[0], 0) == before);
    bench_close(&b);
}

static void test_average_weights(void **state) {
    (void)state;
    tri_shape c = tri_shape_of(2), step = tri_shape_of(TRI_STEP_SCALAR_COUNT);
    op_bench b = bench_open(TRI_F64, &tri_op_average_weights, (tri_shape[]){c, c, step}, 3, NULL);
    double *scalars = op_host(b.session, b.in[2]);
    const struct {
        double weight, param, average;
    } steps[] = {{0, 7, INFINITY}, {1, 2, 2}, {0.25, 6, 3}, {0, 9, 3}};
    op_set(b.session, b.in[0], 0, INFINITY);
    scalars[TRI_STEP_SKIP] = 1; // a skipped step is averaged as well
    for (int i = 0; i < 4; i++) {
        scalars[TRI_STEP_AVERAGE] = steps[i].weight;
        op_set(b.session, b.in[1], 0, steps[i].param);
        op_run_ok(b.session);
        assert_true(op_get(b.session, b.in[0], 0) == steps[i].average);
    }
    bench_close(&b);
}

static void fill_labels(op_bench *b) {
    static const int64_t labels[] = {0, 1, 2, TRI_IGNORED_LABEL, 3, 0};
    memcpy(op_host(b->session, b->in[1]), labels, sizeof labels);
}

static void check_class_loss(const tri_op *op, tri_shape labels, double sum) {
    tri_shape shapes[] = {labels, labels};
    shapes[0].dims[shapes[0].rank++] = 4;
    op_bench b = bench_open(TRI_F64, op, shapes, 2, NULL);
    for (int64_t i = 0; i < 24; i++) op_set(b.session, b.in[0], i, 3 * wave(1, i));
    fill_labels(&b);
    op_run_ok(b.session);
    near(op_get(b.session, b.y, 0), sum, 1e-12);
    assert_true(op_get(b.session, b.y, 1) == 5);
    bench_close(&b);
}

static void check_distance_loss(const tri_op *op, double sum, double count) {
    tri_shape shapes[] = {tri_shape_of(6, 4), tri_shape_of(6, 4)};
    op_bench b = bench_open(TRI_F64, op, shapes, 2, NULL);
    fill_wave(&b, 0, 1);
    fill_wave(&b, 1, 2);
    op_run_ok(b.session);
    near(op_get(b.session, b.y, 0), sum, 1e-12);
    assert_true(op_get(b.session, b.y, 1) == count);
    bench_close(&b);
}

// Compares the loss with PyTorch's, and checks logits so large that e^x would overflow.
static void test_binary_cross_entropy(void **state) {
    tri_shape shapes[] = {tri_shape_of(6, 4), tri_shape_of(6, 4)};
    op_bench b = bench_open(TRI_F64, &tri_op_binary_cross_entropy, shapes, 2, NULL);
    fill_wave(&b, 1, 2);
    for (int64_t i = 0; i < 24; i++) op_set(b.session, b.in[0], i, 3 * wave(1, i));
    op_run_ok(b.session);
    near(op_get(b.session, b.y, 0), torch_binary_cross_entropy, 1e-12);
    assert_true(op_get(b.session, b.y, 1) == 24);
    for (int64_t i = 0; i < 24; i++) op_set(b.session, b.in[0], i, i % 2 ? 5000 : -5000);
    for (int64_t i = 0; i < 24; i++) op_set(b.session, b.in[1], i, 1);
    op_run_ok(b.session);
    near(op_get(b.session, b.y, 0), 12 * 5000.0, 1e-12);
    bench_close(&b);
}

// Compares the cross-entropy with soft labels, and what label smoothing makes of it, and its
// gradient, with PyTorch's. A row of zeros is left out.
static void test_soft_labels(void **state) {
    static const double smoothing[] = {0, 0.1};
    static const double sums[] = {torch_soft_cross_entropy, torch_smooth_cross_entropy};
    for (int i = 0; i < 2; i++) {
        tri_graph *g = op_graph_open(TRI_F64);
        tri_value x = tri_input(g, "x", TRI_F64, tri_shape_of(7, 4)),
                  t = tri_input(g, "t", TRI_F64, tri_shape_of(7, 4));
        tri_value loss = tri_soft_cross_entropy(g, x, t, smoothing[i]);
        tri_device *device = op_device_open(&tri_device_ref, 1);
        op_session *session = op_session_open(g, device, false);
        for (int64_t k = 0; k < 28; k++) {
            op_set(session, x, k, 3 * wave(1, k));
            op_set(session, t, k, k < 24 ? torch_soft_labels[k] : 0);
        }
        op_run_ok(session);
        near(op_get(session, loss, 0), sums[i], 1e-12);
        assert_true(op_get(session, loss, 1) == 6);
        op_session_close(session);
        device->backend->close(device);
        op_graph_close(g);
    }
}

// Compares the cross-entropy of labels of which a part is spread over all classes, also that of
// log-probabilities, and its gradient. A label of -100 is left out.
static void test_smoothed_labels(void **state) {
    static const int64_t labels[] = {0, 1, 2, TRI_IGNORED_LABEL, 3, 0};
    for (int is_nll = 0; is_nll < 2; is_nll++) {
        op_bench b = {.graph = op_graph_open(TRI_F64)};
        tri_graph *g = b.graph;
        g->options.label_smoothing = 0.1;
        tri_value x = tri_input(g, "x", TRI_F64, tri_shape_of(6, 4)),
                  t = tri_input(g, "t", TRI_I64, tri_shape_of(6)), y = tri_log_softmax(g, x);
        b.y = is_nll ? tri_nll_loss(g, y, t) : tri_cross_entropy(g, x, t);
        const tri_node *loss = tri_value_node(g, b.y);
        assert_ptr_equal(loss->op, &tri_op_soft_nll_loss);
        tri_value seed = tri_scalar(g, TRI_SCALAR_SEED);
        tri_value dy = tri_node_add(g, &tri_op_soft_nll_loss_grad,
                                    (tri_value[]){loss->inputs[1], seed}, 2, loss->attr, "");
        tri_value dx = tri_node_add(g, &tri_op_log_softmax_grad, (tri_value[]){y, dy}, 2, NULL, "");
        b.device = op_device_open(&tri_device_ref, 1);
        b.session = op_session_open(g, b.device, false);
        for (int64_t i = 0; i < 24; i++) op_set(b.session, x, i, 3 * wave(1, i));
        memcpy(op_host(b.session, t), labels, sizeof labels);
        op_set(b.session, seed, 0, 1);
        op_run_ok(b.session);
        near(op_get(b.session, b.y, 0), torch_smooth_labels, 1e-12);
        assert_true(op_get(b.session, b.y, 1) == 5);
        near_projection(&b, dx, torch_smooth_labels_grad);
        bench_close(&b);
    }
}

static void test_losses(void **state) {
    tri_shape shape = tri_shape_of(6, 4);
    op_bench b = bench_open(TRI_F64, &tri_op_log_softmax, &shape, 1, NULL);
    for (int64_t i = 0; i < 24; i++) op_set(b.session, b.in[0], i, 3 * wave(1, i));
    op_run_ok(b.session);
    near_projection(&b, b.y, torch_log_softmax);
    bench_close(&b);
    check_class_loss(&tri_op_nll_loss, tri_shape_of(6), torch_nll);
    check_class_loss(&tri_op_cross_entropy, tri_shape_of(6), torch_cross_entropy);
    check_class_loss(&tri_op_cross_entropy, tri_shape_of(2, 3), torch_cross_entropy_tokens);
    check_distance_loss(&tri_op_mse_loss, torch_mse, 24);
    check_distance_loss(&tri_op_relative_l2_loss, torch_relative_l2, 6);
}

// Tests scores of 5000 and -5000, whose exponentials overflow or become 0. The loss must be exact.
static void test_large_scores(void **state) {
    tri_shape shapes[] = {tri_shape_of(1, 3), tri_shape_of(1)};
    op_bench b = bench_open(TRI_F32, &tri_op_cross_entropy, shapes, 2, NULL);
    op_set(b.session, b.in[0], 0, 5000);
    op_set(b.session, b.in[0], 1, -5000);
    op_set(b.session, b.in[0], 2, 5000);
    op_run_ok(b.session);
    near(op_get(b.session, b.y, 0), log(2), 1e-12);
    bench_close(&b);
}

// If several scores are the largest, the first of them is the prediction.
static void test_accuracy(void **state) {
    tri_shape shapes[] = {tri_shape_of(6, 4), tri_shape_of(6)};
    op_bench b = bench_open(TRI_F32, &tri_op_accuracy, shapes, 2, NULL);
    fill_labels(&b);
    // All scores are 0, so class 0 is predicted, which is the label of samples 0 and 5.
    op_run_ok(b.session);
    assert_true(op_get(b.session, b.y, 0) == 2 && op_get(b.session, b.y, 1) == 5);
    op_set(b.session, b.in[0], 1 * 4 + 1, 1);
    op_set(b.session, b.in[0], 5 * 4 + 3, 1);
    op_run_ok(b.session);
    assert_true(op_get(b.session, b.y, 0) == 2 && op_get(b.session, b.y, 1) == 5);
    bench_close(&b);
}

static void test_tokens(void **state) {
    static const int64_t ids[] = {0, 4, 2, 4, 4, 1};
    static const int64_t next[] = {4, 2, TRI_IGNORED_LABEL, 4, 1, TRI_IGNORED_LABEL};
    tri_shape shapes[] = {tri_shape_of(2, 3), tri_shape_of(5, 3)};
    op_bench b = bench_open(TRI_F64, &tri_op_embedding, shapes, 2, NULL);
    memcpy(op_host(b.session, b.in[0]), ids, sizeof ids);
    fill_wave(&b, 1, 2);
    op_run_ok(b.session);
    near_projection(&b, b.y, torch_embedding);
    bench_close(&b);
    b = bench_open(TRI_F64, &tri_op_next_token, shapes, 1, NULL);
    memcpy(op_host(b.session, b.in[0]), ids, sizeof ids);
    op_run_ok(b.session);
    assert_memory_equal(op_host(b.session, b.y), next, sizeof next);
    bench_close(&b);
}

// Runs the op on fixed inputs: element i of input k is wave(k + 1, i). The first input is
// multiplied by `factor`.
static op_bench run_waves(const tri_op *op, const tri_shape *shapes, int count, const void *attr,
                          double factor) {
    op_bench b = bench_open(TRI_F64, op, shapes, count, attr);
    for (int k = 0; k < count; k++) fill_wave(&b, k, k + 1);
    for (int64_t i = 0; i < op_count(b.session, b.in[0]); i++)
        op_set(b.session, b.in[0], i, factor * wave(1, i));
    op_run_ok(b.session);
    return b;
}

static void check_waves(const tri_op *op, tri_shape first, tri_shape others, int count,
                        const void *attr, double factor, const double want[2]) {
    op_bench b = run_waves(op, (tri_shape[]){first, others, others}, count, attr, factor);
    near_projection(&b, b.y, want);
    bench_close(&b);
}

static void test_layers(void **state) {
    static const tri_norm_attr norm = {.eps = 1e-3};
    static const tri_rotary_attr rotary = {.theta = 100, .first = 2};
    static const tri_rotary_attr slower = {.theta = 100, .first = 2, .scaling = {8, 1, 4, 24}};
    tri_shape x = tri_shape_of(3, 2, 8), w = tri_shape_of(8);
    check_waves(&tri_op_rms_norm, x, w, 2, &norm, 1, torch_rms_norm);
    check_waves(&tri_op_layer_norm, x, w, 3, &norm, 1, torch_layer_norm);
    check_waves(&tri_op_layer_norm, x, w, 1, &norm, 1, torch_layer_norm_plain);
    check_waves(&tri_op_rotary, tri_shape_of(2, 5, 3, 8), w, 1, &rotary, 1, torch_rotary);
    check_waves(&tri_op_rotary, tri_shape_of(2, 5, 3, 8), w, 1, &slower, 1, torch_rotary_scaled);
    check_waves(&tri_op_concat, tri_shape_of(2, 3, 4), tri_shape_of(2, 1, 4), 3,
                &(tri_concat_attr){.dim = 1}, 1, torch_concat);
}

static void test_attention(void **state) {
    for (size_t i = 0; i < COUNT(torch_attentions); i++) {
        const torch_attention *c = &torch_attentions[i];
        tri_attention_attr attr = {.scale = c->scale, .causal = c->causal};
        tri_shape shapes[] = {four(c->q), four(c->k), four(c->k)};
        op_bench b = run_waves(&tri_op_attention, shapes, 3, &attr, 2);
        near_projection(&b, b.y, c->y);
        near_projection(&b, tri_node_output(b.graph, b.y, 1), c->log_sum_exp);
        bench_close(&b);
    }
}

// Updates a parameter four times; first, last: what PyTorch makes of it by the first and the last.
typedef struct updates {
    const tri_op *op;
    const void *attr;
    int states;
    double lr;
    const double *first, *last;
} updates;

static void check_updates(const updates *u, tri_dtype dtype, double tolerance) {
    tri_shape p = tri_shape_of(5), step = tri_shape_of(TRI_STEP_SCALAR_COUNT);
    tri_shape shapes[] = {p, p, step, p, p, p};
    op_bench b = bench_open(dtype, u->op, shapes, 3 + u->states, u->attr);
    double *scalars = op_host(b.session, b.in[2]);
    scalars[TRI_STEP_LR] = u->lr;
    scalars[TRI_STEP_GRADIENT_SCALE] = 0.125;
    fill_wave(&b, 0, 1);
    // sgd's first update must not read its momentum buffer
    if (u->op == &tri_op_sgd && u->states) fill_wave(&b, 3, 5);
    for (int t = 1; t <= 4; t++) {
        for (int64_t i = 0; i < 5; i++) op_set(b.session, b.in[1], i, 8 * wave(10 + t, i));
        scalars[TRI_STEP_UPDATE] = t;
        op_run_ok(b.session);
        const double *want = t == 1 ? u->first : t == 4 ? u->last : NULL;
        for (int64_t i = 0; want && i < 5; i++)
            near(op_get(b.session, b.in[0], i), want[i], tolerance);
    }
    double before = op_get(b.session, b.in[0], 2);
    scalars[TRI_STEP_SKIP] = 1;
    op_run_ok(b.session);
    assert_true(op_get(b.session, b.in[0], 2) == before);
    bench_close(&b);
}

static void test_updates(void **state) {
    for (size_t i = 0; i < COUNT(torch_updates); i++) {
        const torch_update *c = &torch_updates[i];
        bool is_sgd = !strcmp(c->op, "sgd");
        updates u = {tri_op_find(c->op), &c->attr, is_sgd ? c->attr.sgd.momentum != 0 : 2, c->lr,
                     c->first,           c->last};
        check_updates(&u, TRI_F64, 1e-13);
        check_updates(&u, TRI_F32, 1e-6);
    }
}

// Optimizers by the options that a recipe has.
static void test_named_updates(void **state) {
    for (size_t i = 0; i < COUNT(torch_named_updates); i++) {
        const torch_named_update *c = &torch_named_updates[i];
        tri_arena *arena = tri_arena_create(NULL, "options");
        tri_tree *tree;
        tri_optimizer_options options;
        tri_optimizer optimizer;
        assert_int_equal(tri_yaml_parse_value(arena, c->options, "options", &tree), TRI_OK);
        assert_int_equal(tri_option_decode(arena, &tri_optimizer_table, tree, &options), TRI_OK);
        assert_int_equal(tri_optimizer_make(arena, &options, &optimizer), TRI_OK);
        updates u = {optimizer.op, &optimizer.attrs[0], optimizer.op_states, options.lr, c->first,
                     c->last};
        check_updates(&u, TRI_F64, 1e-13);
        // rmsprop's centered variance is a difference of nearly equal numbers.
        check_updates(&u, TRI_F32, options.centered ? 1e-4 : 2e-6);
        tri_arena_destroy(arena);
    }
}

// Whether dropout keeps an element depends on the key, the step, the sample's position in the step
// and the element's index in the sample, not on how the step is cut into micro-batches.
static void test_dropout_position(void **state) {
    tri_shape shape = tri_shape_of(2, 3, 4);
    tri_map_attr attr = tri_map_of_dropout(&shape, 0.4, 99);
    for (int64_t first = 0; first < 6; first += 2) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value in[] = {tri_input(g, "x", TRI_F32, shape), tri_position(g)};
        tri_value y = tri_node_add(g, &tri_op_map, in, 2, &attr, "");
        tri_device *device = op_device_open(&tri_device_ref, 1);
        op_session *session = op_session_open(g, device, first == 2);
        int64_t *position = op_host(session, in[1]);
        position[0] = ((int64_t)1 << 33) + 7;
        position[1] = first;
        for (int64_t i = 0; i < 24; i++) op_set(session, in[0], i, 3);
        op_run_ok(session);
        for (int64_t i = 0; i < 24; i++) {
            uint32_t word = tri_philox_at(99, ((uint64_t)1 << 33) + 7, (uint32_t)(first + i / 12),
                                          (uint64_t)(i % 12));
            bool kept = (double)word >= 0.4 * 4294967296.0 - 1;
            near(op_get(session, y, i), kept ? 5 : 0, 1e-6);
        }
        op_session_close(session);
        device->backend->close(device);
        op_graph_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv2d),           cmocka_unit_test(test_max_pool2d),
        cmocka_unit_test(test_avg_pool2d),       cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_moving_average),   cmocka_unit_test(test_average_weights),
        cmocka_unit_test(test_losses),           cmocka_unit_test(test_binary_cross_entropy),
        cmocka_unit_test(test_soft_labels),      cmocka_unit_test(test_smoothed_labels),
        cmocka_unit_test(test_large_scores),     cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_updates),          cmocka_unit_test(test_named_updates),
        cmocka_unit_test(test_dropout_position), cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_layers),           cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
