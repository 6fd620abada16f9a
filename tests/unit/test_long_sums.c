// Sums of many terms on `cpu`, and some on an emulated GPU: in F32, too, their error may not grow
// with the number of terms, and their bits may not depend on the number of threads. All terms are
// alike, so that the rounding errors of a sum that adds one term after the other have one sign. The
// device ref adds in F64.
//
// Convolutions are not tested: oneDNN computes most of them, in an order of its own.
#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"
#include "device/ref/ref.h"
#include "support/op_session.h"
#include "support/test_gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LONG = 1 << 18, SOURCES = 8 };

// A graph with one op, of which results `first` to `last` are compared.
typedef struct long_case {
    tri_graph *graph;
    tri_value sources[SOURCES], result;
    int source_count, first, last;
} long_case;

static tri_value number(long_case *c, tri_shape shape) {
    const char name[] = {'p', (char)('0' + c->source_count), '\0'};
    return c->sources[c->source_count++] = tri_parameter_of_role(
               c->graph, name, TRI_F32, shape, (tri_init){0}, TRI_ROLE_TRAINED, 0);
}

// Indices, tokens or labels: all are 0.
static tri_value zeros(long_case *c, tri_shape shape) {
    return tri_input(c->graph, "zeros", TRI_I64, shape);
}

static void add(long_case *c, const tri_op *op, const tri_value *inputs, int count,
                const void *attr) {
    c->result = tri_node_add(c->graph, op, inputs, count, attr, "long");
}

static void linear_of(long_case *c, int64_t rows, int64_t out) {
    tri_linear_grad_attr a = {.axes = 1, .shape = tri_shape_of(out, 2), .has_bias = true};
    tri_value x = number(c, tri_shape_of(rows, 2)), dy = number(c, tri_shape_of(rows, out));
    add(c, &tri_op_linear_grad_weight, (tri_value[]){x, dy}, 2, &a);
    c->first = c->last = 1;
}
static void build_linear(long_case *c) { linear_of(c, LONG, 3); }
static void build_linear_wide(long_case *c) { linear_of(c, LONG / 4 + 3, 70); }

static void build_head(long_case *c) {
    tri_value x = number(c, tri_shape_of(LONG + 5, 2)), weight = number(c, tri_shape_of(3, 2)),
              labels = zeros(c, tri_shape_of(LONG + 5)), seed = number(c, tri_shape_of(1)),
              bias = number(c, tri_shape_of(3));
    add(c, &tri_op_linear_cross_entropy_grad, (tri_value[]){x, weight, labels, seed, bias}, 5,
        NULL);
    c->first = c->last = 2;
}

static void reduce_by(long_case *c, tri_reduction kind, tri_shape shape, int64_t axes) {
    tri_reduce_attr a = {.kind = kind, .axes = axes};
    tri_value x = number(c, shape);
    add(c, &tri_op_reduce, &x, 1, &a);
}
static void reduce_of(long_case *c, tri_shape shape, int64_t axes) {
    reduce_by(c, TRI_REDUCTION_SUM, shape, axes);
}
static void build_rows(long_case *c) { reduce_of(c, tri_shape_of(64, LONG / 8 + 7), 2); }
static void build_all(long_case *c) { reduce_of(c, tri_shape_of(8, LONG + 1), 3); }
static void build_columns(long_case *c) { reduce_of(c, tri_shape_of(64, LONG / 16, 2), 2); }
static void build_first(long_case *c) { reduce_of(c, tri_shape_of(LONG, 2), 1); }
static void build_wide(long_case *c) { reduce_of(c, tri_shape_of(LONG / 8, 64), 1); }
static void build_repeats(long_case *c) { reduce_of(c, tri_shape_of(LONG, 2, 2), 5); }

static void build_exponentials(long_case *c) {
    reduce_by(c, TRI_REDUCTION_LOGSUMEXP, tri_shape_of(3, LONG), 2);
}
static void build_exponential_columns(long_case *c) {
    reduce_by(c, TRI_REDUCTION_LOGSUMEXP, tri_shape_of(LONG, 3), 1);
}

static void map_of(long_case *c, tri_shape shape, int64_t axes) {
    tri_map_reduce_attr a = {.map = {.expands = true, .shape = shape},
                             .reduce = {.kind = TRI_REDUCTION_SUM, .axes = axes}};
    assert_int_equal(tri_formula_parse("x, y -> x * y", NULL, &a.map.formula), TRI_OK);
    add(c, &tri_op_map_reduce, (tri_value[]){number(c, shape), number(c, shape)}, 2, &a);
}
static void build_map_rows(long_case *c) { map_of(c, tri_shape_of(64, LONG / 8 + 7), 2); }
static void build_map_columns(long_case *c) { map_of(c, tri_shape_of(64, LONG / 16, 2), 2); }
static void build_map_odd(long_case *c) { map_of(c, tri_shape_of(LONG / 4, 33), 1); }
static void build_map_wide(long_case *c) { map_of(c, tri_shape_of(LONG / 32, 600), 1); }

static void build_layer_norm(long_case *c) {
    tri_norm_attr a = {.eps = 1e-5};
    tri_value x = number(c, tri_shape_of(LONG, 3)), dy = number(c, tri_shape_of(LONG, 3)),
              mean = number(c, tri_shape_of(LONG)), inv = number(c, tri_shape_of(LONG)),
              weight = number(c, tri_shape_of(3));
    add(c, &tri_op_layer_norm_grad, (tri_value[]){x, dy, mean, inv, weight}, 5, &a);
    c->first = c->last = 2;
}
static void build_long_rows(long_case *c) {
    tri_norm_attr a = {.eps = 1e-5};
    tri_value x = number(c, tri_shape_of(1, 4 * LONG)), weight = number(c, tri_shape_of(4 * LONG));
    add(c, &tri_op_rms_norm, (tri_value[]){x, weight}, 2, &a);
    c->last = 1;
}
static void build_group_norm(long_case *c) {
    tri_group_norm_attr a = {.norm.eps = 1e-5, .groups = 2};
    tri_shape shape = tri_shape_of(1, 2, LONG, 2);
    tri_value x = number(c, shape), dy = number(c, shape), mean = number(c, tri_shape_of(1, 2)),
              inv = number(c, tri_shape_of(1, 2)), weight = number(c, tri_shape_of(2));
    add(c, &tri_op_group_norm_grad, (tri_value[]){x, dy, mean, inv, weight}, 5, &a);
    c->first = c->last = 2;
}
static void build_batch_norm(long_case *c) {
    tri_batch_norm_attr a = {.eps = 1e-5};
    tri_shape shape = tri_shape_of(1, 16, LONG, 1), channels = tri_shape_of(16);
    tri_value x = number(c, shape), dy = number(c, shape), mean = number(c, channels),
              inv = number(c, channels), weight = number(c, channels);
    add(c, &tri_op_batch_norm_grad, (tri_value[]){x, x, dy, weight, mean, inv}, 6, &a);
    c->first = c->last = 2;
}
static void build_embedding(long_case *c) {
    tri_embedding_grad_attr a = {.shape = tri_shape_of(2, 3)};
    tri_value ids = zeros(c, tri_shape_of(LONG)), dy = number(c, tri_shape_of(LONG, 3));
    add(c, &tri_op_embedding_grad_weight, (tri_value[]){ids, dy}, 2, &a);
}
static void scatter_of(long_case *c, tri_shape indices) {
    tri_scatter_attr a = {.kind = TRI_SCATTER_ADD, .shape = tri_shape_of(2, 3)};
    tri_value source = number(c, tri_shape_of(LONG, 3)), base = number(c, tri_shape_of(2, 3));
    add(c, &tri_op_scatter, (tri_value[]){zeros(c, indices), source, base}, 3, &a);
}
static void build_scatter(long_case *c) { scatter_of(c, tri_shape_of(LONG, 3)); }
static void build_index_add(long_case *c) { scatter_of(c, tri_shape_of(LONG, 1)); }

static void build_avg_pool(long_case *c) {
    tri_value x = number(c, tri_shape_of(1, 16, LONG / 256, 256));
    tri_avg_pool2d_attr a = {.out = {1, 1}};
    add(c, &tri_op_avg_pool2d, &x, 1, &a);
}
static void build_matmul(long_case *c) {
    tri_matmul_attr a = {0};
    tri_value x = number(c, tri_shape_of(2, LONG)), y = number(c, tri_shape_of(LONG, 3));
    add(c, &tri_op_matmul, (tri_value[]){x, y}, 2, &a);
}

static const struct {
    const char *name;
    void (*build)(long_case *c);
    double tolerance; // 0: that of most. A product and a pool have blocks that are added in F32.
    bool on_gpu;      // the kernel of the device cuda is our own, and adds as well
} cases[] = {
    {"linear", build_linear, 0, false},
    {"linear, wide", build_linear_wide, 0, false},
    {"linear with its loss", build_head, 0, false},
    {"exponentials", build_exponentials, 0, true},
    {"columns of exponentials", build_exponential_columns, 0, true},
    {"rows", build_rows, 0, true},
    {"all", build_all, 0, true},
    {"columns", build_columns, 0, true},
    {"first axis", build_first, 0, true},
    {"wide rows", build_wide, 0, true},
    {"repeats", build_repeats, 0, false},
    {"map, rows", build_map_rows, 0, false},
    {"map, columns", build_map_columns, 0, false},
    {"map, odd rows", build_map_odd, 0, false},
    {"map, wide rows", build_map_wide, 0, false},
    {"layer norm", build_layer_norm, 0, false},
    {"long rows", build_long_rows, 0, false},
    {"group norm", build_group_norm, 0, false},
    {"batch norm", build_batch_norm, 0, false},
    {"embedding", build_embedding, 0, false},
    {"scatter", build_scatter, 0, false},
    {"index add", build_index_add, 0, false},
    {"average pool", build_avg_pool, 3e-5, false},
    {"matmul", build_matmul, 3e-5, false},
};
enum { CASES = sizeof cases / sizeof *cases };

typedef struct long_side {
    long_case c;
    tri_device *device;
    op_session *session;
} long_side;

static long_side open_side(const tri_device_backend *backend, int i, int threads) {
    long_side side = {.c.graph = op_graph_open(TRI_F32)};
    cases[i].build(&side.c);
    const char *message = "";
    if (tri_graph_status(side.c.graph, &message) != TRI_OK) fail_msg("%s", message);
    side.device = op_device_open(backend, threads);
    side.session = op_session_open(side.c.graph, side.device, false);
    for (int k = 0; k < side.c.source_count; k++)
        op_fill(side.session, side.c.sources[k], 7, 0.1, 0.1);
    op_run_ok(side.session);
    return side;
}

static void close_side(long_side *side) {
    op_session_close(side->session);
    side->device->backend->close(side->device);
    op_graph_close(side->c.graph);
}

static double tolerance_of(int i) { return cases[i].tolerance > 0 ? cases[i].tolerance : 1e-6; }

static void compare(const long_side *got, const long_side *want, double tolerance,
                    const char *what) {
    for (int k = want->c.first; k <= want->c.last; k++) {
        tri_value a = tri_node_output(got->c.graph, got->c.result, k);
        tri_value b = tri_node_output(want->c.graph, want->c.result, k);
        for (int64_t i = 0; i < op_count(want->session, b); i++) {
            double is = op_get(got->session, a, i), should = op_get(want->session, b, i);
            if (!(fabs(is - should) <= tolerance * fabs(should)))
                fail_msg("%s: output %d is %.9g, not %.9g: an error of %.2g", what, k, is, should,
                         fabs(is / should - 1));
        }
    }
}

static void test_long(void **state) {
    static const char *const levels[] = {"avx512", "avx2", "base"};
    for (int i = 0; i < CASES; i++) {
        char what[64];
        long_side ref = open_side(&tri_device_ref, i, 1);
        for (int level = 0; level < 3; level++) {
            setenv("TRIREME_CPU_ISA", levels[level], 1);
            snprintf(what, sizeof what, "%s, %s", cases[i].name, levels[level]);
            long_side one = open_side(&tri_device_cpu, i, 1), three;
            compare(&one, &ref, tolerance_of(i), what);
            three = open_side(&tri_device_cpu, i, 3);
            compare(&three, &one, 0, what);
            close_side(&three);
            close_side(&one);
        }
        if (cases[i].on_gpu) {
            long_side gpu = open_side(&tri_device_cuda, i, 1);
            snprintf(what, sizeof what, "%s, cuda", cases[i].name);
            compare(&gpu, &ref, 3e-6, what);
            close_side(&gpu);
        }
        close_side(&ref);
    }
}

static tri_value reduced(tri_graph *g, tri_reduction kind, int64_t axes, tri_value x) {
    return tri_node_add(g, &tri_op_reduce, &x, 1, &(tri_reduce_attr){.kind = kind, .axes = axes},
                        "");
}

// Reduces rows of x [height, width], and columns of its transpose, on the device cpu.
static void near_reduced(tri_reduction kind, const double *x, int height, int width,
                         const double *want) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value wide = tri_input(g, "x", TRI_F32, tri_shape_of(height, width)),
              tall = tri_input(g, "t", TRI_F32, tri_shape_of(width, height)),
              of_rows = reduced(g, kind, 2, wide), of_columns = reduced(g, kind, 1, tall);
    tri_device *device = op_device_open(&tri_device_cpu, 2);
    op_session *session = op_session_open(g, device, false);
    for (int64_t i = 0; i < height * width; i++) {
        op_set(session, wide, i, x[i]);
        op_set(session, tall, i % width * height + i / width, x[i]);
    }
    op_run_ok(session);
    for (int i = 0; i < height; i++) {
        double got[] = {op_get(session, of_rows, i), op_get(session, of_columns, i)};
        for (int k = 0; k < 2; k++)
            if (isnan(want[i])   ? !isnan(got[k])
                : isinf(want[i]) ? got[k] != want[i]
                                 : fabs(got[k] / want[i] - 1) > 1e-6)
                fail_msg("kind %d, row %d: %.9g, not %.9g", kind, i, got[k], want[i]);
    }
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

static void test_logarithms_of_infinities(void **state) {
    const double x[] = {-INFINITY, -INFINITY, INFINITY, 1, INFINITY, -INFINITY,
                        -INFINITY, 2,         NAN,      1, 3e38,     3e38,
                        -3e38,     -1e38,     500,      0, 0.5,      0.5};
    const double want[] = {-INFINITY, INFINITY, INFINITY, 2, NAN, 3e38, -1e38, 500, 0.5 + log(2)};
    near_reduced(TRI_REDUCTION_LOGSUMEXP, x, sizeof want / sizeof *want, 2, want);
}

// Of numbers whose mean is a million times their distance from it.
static void test_distances_from_a_large_mean(void **state) {
    enum { ROWS = 3, COLUMNS = 10007 };
    double *x = malloc(ROWS * COLUMNS * sizeof *x), want[ROWS] = {0};
    for (int i = 0; i < ROWS; i++) {
        double mean = 0;
        for (int k = 0; k < COLUMNS; k++) {
            x[i * COLUMNS + k] = (i + 1) * 0x1p18 + (k * 7 + i) % 16 * 0.0625;
            mean += x[i * COLUMNS + k] / COLUMNS;
        }
        for (int k = 0; k < COLUMNS; k++)
            want[i] += (x[i * COLUMNS + k] - mean) * (x[i * COLUMNS + k] - mean);
    }
    near_reduced(TRI_REDUCTION_SQUARES, x, ROWS, COLUMNS, want);
    free(x);
}

int main(void) {
    test_gpu_choose();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long),
                                       cmocka_unit_test(test_logarithms_of_infinities),
                                       cmocka_unit_test(test_distances_from_a_large_mean)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
