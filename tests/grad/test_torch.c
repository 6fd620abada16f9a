// What `ref` makes of ops and optimizers, against PyTorch (torch_tables.h).
#include "base/philox.h"
#include "device/ref/ref.h"
#include "grad/torch_tables.h"
#include "support/op_session.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

// One op with its inputs as graph inputs, on ref.
typedef struct bench {
    tri_graph *graph;
    tri_device *device;
    op_session *session;
    tri_value in[TRI_MAX_INPUTS], y;
} bench;

static bench bench_open(tri_dtype dtype, const tri_op *op, const tri_shape *shapes, int count,
                        const void *attr) {
    const char *message = "";
    bench b = {.graph = op_graph_open(dtype)};
    for (int i = 0; i < count; i++) {
        char name[16];
        bool labels = shapes[i].rank == 1 && i == 1 && !(op->flags & TRI_OP_UPDATE) && count == 2;
        bool step = i == 2 && (op->flags & TRI_OP_UPDATE);
        snprintf(name, sizeof name, "in%d", i);
        b.in[i] = tri_input(b.graph, name, labels ? TRI_I64 : step ? TRI_F64 : dtype, shapes[i]);
    }
    b.y = tri_node_add(b.graph, op, b.in, count, attr, "");
    if (tri_graph_status(b.graph, &message) != TRI_OK) fail_msg("%s", message);
    b.device = op_device_open(&tri_device_ref, 1);
    b.session = op_session_open(b.graph, b.device, false);
    return b;
}

static void bench_close(bench *b) {
    op_session_close(b->session);
    b->device->backend->close(b->device);
    op_graph_close(b->graph);
}

static double wave(double k, int64_t i) {
    double x = (double)i;
    return sin(0.9 * x + 0.013 * x * x + k);
}

static void fill_wave(bench *b, int input, double k) {
    for (int64_t i = 0; i < op_count(b->session, b->in[input]); i++)
        op_set(b->session, b->in[input], i, wave(k, i));
}

static void near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
        fail_msg("got %.17g, PyTorch has %.17g", got, want);
}

static void near_projection(const bench *b, tri_value value, const double want[2]) {
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
        bench b = bench_open(TRI_F64, &tri_op_conv2d, shapes, 3, &attr);
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
        bench b = bench_open(TRI_F64, &tri_op_max_pool2d, &shape, 1, &attr);
        fill_wave(&b, 0, 1);
        op_run_ok(b.session);
        near_projection(&b, b.y, c->y);
        bench_close(&b);
    }
}

// Training, then the running statistics of one micro-batch of 3 samples, as moving_average makes
// them from sums and a scale of 1/3, and evaluation with them.
static void test_batch_norm(void **state) {
    tri_batch_norm_attr attr = {.eps = 1e-5};
    tri_shape x = tri_shape_of(3, 2, 4, 5), c = tri_shape_of(2);
    bench b = bench_open(TRI_F64, &tri_op_batch_norm, (tri_shape[]){x, c, c}, 3, &attr);
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
    bench b = bench_open(TRI_F64, &tri_op_moving_average, (tri_shape[]){c, c, step}, 3, &attr);
    double *scalars = op_host(b.session, b.in[2]);
    scalars[TRI_STEP_STATISTIC_SCALE] = 0.25;
    op_set(b.session, b.in[0], 0, 2);
    op_set(b.session, b.in[1], 0, 12);
    op_run_ok(b.session);
    near(op_get(b.session, b.in[0], 0), 0.9 * 2 + 0.1 * 3, 1e-15);
    scalars[TRI_STEP_SKIP] = 1;
    double before = op_get(b.session, b.in[0], 0);
    op_run_ok(b.session);
    assert_true(op_get(b.session, b.in[0], 0) == before);
    bench_close(&b);
}

static void fill_labels(bench *b) {
    static const int64_t labels[] = {0, 1, 2, TRI_IGNORED_LABEL, 3, 0};
    memcpy(op_host(b->session, b->in[1]), labels, sizeof labels);
}

static void check_class_loss(const tri_op *op, double sum) {
    tri_shape shapes[] = {tri_shape_of(6, 4), tri_shape_of(6)};
    bench b = bench_open(TRI_F64, op, shapes, 2, NULL);
    for (int64_t i = 0; i < 24; i++) op_set(b.session, b.in[0], i, 3 * wave(1, i));
    fill_labels(&b);
    op_run_ok(b.session);
    near(op_get(b.session, b.y, 0), sum, 1e-12);
    assert_true(op_get(b.session, b.y, 1) == 5);
    bench_close(&b);
}

static void check_distance_loss(const tri_op *op, double sum, double count) {
    tri_shape shapes[] = {tri_shape_of(6, 4), tri_shape_of(6, 4)};
    bench b = bench_open(TRI_F64, op, shapes, 2, NULL);
    fill_wave(&b, 0, 1);
    fill_wave(&b, 1, 2);
    op_run_ok(b.session);
    near(op_get(b.session, b.y, 0), sum, 1e-12);
    assert_true(op_get(b.session, b.y, 1) == count);
    bench_close(&b);
}

static void test_losses(void **state) {
    tri_shape shape = tri_shape_of(6, 4);
    bench b = bench_open(TRI_F64, &tri_op_log_softmax, &shape, 1, NULL);
    for (int64_t i = 0; i < 24; i++) op_set(b.session, b.in[0], i, 3 * wave(1, i));
    op_run_ok(b.session);
    near_projection(&b, b.y, torch_log_softmax);
    bench_close(&b);
    check_class_loss(&tri_op_nll_loss, torch_nll);
    check_class_loss(&tri_op_cross_entropy, torch_cross_entropy);
    check_distance_loss(&tri_op_mse_loss, torch_mse, 24);
    check_distance_loss(&tri_op_relative_l2_loss, torch_relative_l2, 6);
}

// Scores of thousands must neither overflow nor lose the small ones.
static void test_large_scores(void **state) {
    tri_shape shapes[] = {tri_shape_of(1, 3), tri_shape_of(1)};
    bench b = bench_open(TRI_F32, &tri_op_cross_entropy, shapes, 2, NULL);
    op_set(b.session, b.in[0], 0, 5000);
    op_set(b.session, b.in[0], 1, -5000);
    op_set(b.session, b.in[0], 2, 5000);
    op_run_ok(b.session);
    near(op_get(b.session, b.y, 0), log(2), 1e-12);
    bench_close(&b);
}

// Equal scores: the first of the largest is the prediction.
static void test_accuracy(void **state) {
    tri_shape shapes[] = {tri_shape_of(6, 4), tri_shape_of(6)};
    bench b = bench_open(TRI_F32, &tri_op_accuracy, shapes, 2, NULL);
    fill_labels(&b);
    op_run_ok(b.session); // all 0: class 0 is predicted, samples 0 and 5 have it
    assert_true(op_get(b.session, b.y, 0) == 2 && op_get(b.session, b.y, 1) == 5);
    op_set(b.session, b.in[0], 1 * 4 + 1, 1);
    op_set(b.session, b.in[0], 5 * 4 + 3, 1);
    op_run_ok(b.session);
    assert_true(op_get(b.session, b.y, 0) == 2 && op_get(b.session, b.y, 1) == 5);
    bench_close(&b);
}

static void check_update(const torch_update *u, tri_dtype dtype, double tolerance) {
    const tri_op *op = tri_op_find(u->op);
    tri_shape p = tri_shape_of(5), step = tri_shape_of(TRI_STEP_SCALAR_COUNT);
    tri_shape shapes[] = {p, p, step, p, p};
    int count = strcmp(u->op, "sgd") != 0 ? 5 : u->attr.sgd.momentum != 0 ? 4 : 3;
    bench b = bench_open(dtype, op, shapes, count, &u->attr);
    double *scalars = op_host(b.session, b.in[2]);
    scalars[TRI_STEP_LR] = u->lr;
    scalars[TRI_STEP_GRADIENT_SCALE] = 0.125;
    fill_wave(&b, 0, 1);
    if (count == 4) fill_wave(&b, 3, 5); // the first update must not look at the buffer
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
        check_update(&torch_updates[i], TRI_F64, 1e-13);
        check_update(&torch_updates[i], TRI_F32, 1e-6);
    }
}

// An element's number depends on key, step, the sample's place in the step and its place in the
// sample: not on how a step is cut into micro-batches.
static void test_dropout_position(void **state) {
    tri_dropout_attr attr = {.p = 0.4, .key = 99};
    for (int64_t first = 0; first < 6; first += 2) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value in[] = {tri_input(g, "x", TRI_F32, tri_shape_of(2, 3, 4)), tri_position(g)};
        tri_value y = tri_node_add(g, &tri_op_dropout, in, 2, &attr, "");
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
        cmocka_unit_test(test_batch_norm),       cmocka_unit_test(test_moving_average),
        cmocka_unit_test(test_losses),           cmocka_unit_test(test_large_scores),
        cmocka_unit_test(test_accuracy),         cmocka_unit_test(test_updates),
        cmocka_unit_test(test_dropout_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
