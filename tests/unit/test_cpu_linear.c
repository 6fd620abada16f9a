// Compares a linear layer and its gradients on `cpu` with the reference device `ref`, over a grid
// of odd and round shapes, on every instruction set of this machine, in F32 and BF16. One to four
// threads must give the same bits. A form is a number that chooses the map
// that the layer computes, whether there is a bias, and the type of the results.
#include "device/cpu/cpu.h"
#include "device/cpu/internal.h"
#include "device/ref/ref.h"
#include "support/mapped_product.h"
#include "support/op_session.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct layer_shape {
    int64_t rows, in, out;
} layer_shape;

enum { LAYER_SOURCES = 4, LAYER_RESULTS = 4 };

// A linear layer, perhaps with a map of its output, and its gradients, on one device. Some forms
// have results in F32 although the inputs are BF16.
typedef struct layer {
    tri_graph *graph;
    tri_value sources[LAYER_SOURCES], results[LAYER_RESULTS];
    tri_device *device;
    op_session *session;
} layer;

static tri_value source(layer *l, int i, tri_dtype dtype, tri_shape shape) {
    char name[8];
    snprintf(name, sizeof name, "p%d", i);
    l->sources[i] =
        tri_parameter_of_role(l->graph, name, dtype, shape, (tri_init){0}, TRI_ROLE_TRAINED, 0);
    return l->sources[i];
}

static layer open_layer(const tri_device_backend *backend, int threads, tri_dtype dtype,
                        const layer_shape *s, int form) {
    layer l = {.graph = op_graph_open(TRI_F32)};
    tri_linear_attr a = {.axes = 1, .wide = form % 2};
    tri_linear_grad_attr grad = {
        .axes = 1, .shape = tri_shape_of(s->out, s->in), .has_bias = form % 2 == 0};
    tri_value x = source(&l, 0, dtype, tri_shape_of(s->rows, s->in));
    tri_value w = source(&l, 1, dtype, tri_shape_of(s->out, s->in));
    tri_value dy = source(&l, 2, dtype, tri_shape_of(s->rows, s->out));
    tri_value bias = source(&l, 3, dtype, tri_shape_of(s->out));
    if (form % 4 == 3) bias = (tri_value){0};
    l.results[0] =
        mapped_product(l.graph, &tri_op_linear, (tri_value[]){x, w, bias}, 3, &a, form % 3);
    l.results[1] =
        tri_node_add(l.graph, &tri_op_linear_grad_weight, (tri_value[]){x, dy}, 2, &grad, "layer");
    l.results[2] = tri_node_output(l.graph, l.results[1], 1);
    grad = (tri_linear_grad_attr){
        .axes = 1, .shape = tri_shape_of(s->rows, s->in), .wide = form % 5 == 1};
    l.results[3] =
        tri_node_add(l.graph, &tri_op_linear_grad_input, (tri_value[]){dy, w}, 2, &grad, "layer");
    const char *message = "";
    if (tri_graph_status(l.graph, &message) != TRI_OK) fail_msg("%s", message);
    l.device = op_device_open(backend, threads);
    l.session = op_session_open(l.graph, l.device, false);
    for (int i = 0; i < LAYER_SOURCES; i++) op_fill(l.session, l.sources[i], 7, -1, 1);
    op_run_ok(l.session);
    return l;
}

static void close_layer(layer *l) {
    op_session_close(l->session);
    l->device->backend->close(l->device);
    op_graph_close(l->graph);
}

static void compare(const layer *got, const layer *want, const char *what) {
    for (int r = 0; r < LAYER_RESULTS; r++) {
        int64_t count = op_count(want->session, want->results[r]);
        bool half = tri_value_get(want->graph, want->results[r])->dtype == TRI_BF16;
        double largest = 1e-3;
        for (int64_t i = 0; i < count; i++)
            largest = fmax(largest, fabs(op_get(want->session, want->results[r], i)));
        for (int64_t i = 0; i < count; i++) {
            double a = op_get(got->session, got->results[r], i);
            double b = op_get(want->session, want->results[r], i);
            if (fabs(a - b) <= largest * (1e-5 + (half ? 0x1p-7 : 0))) continue;
            fail_msg("%s: result %d differs at %lld: %.9g, ref %.9g (largest %.3g)", what, r,
                     (long long)i, a, b, largest);
        }
    }
}

static void compare_bits(const layer *a, const layer *b, const char *what) {
    for (int r = 0; r < LAYER_RESULTS; r++) {
        size_t bytes = (size_t)op_count(a->session, a->results[r]) *
                       tri_dtype_bytes(tri_value_get(a->graph, a->results[r])->dtype);
        if (memcmp(op_host(a->session, a->results[r]), op_host(b->session, b->results[r]), bytes))
            fail_msg("%s: result %d differs from one thread's", what, r);
    }
}

static void check_kernels(const layer *l, const char *what) {
    for (int i = 0; i < l->graph->node_count; i++) {
        const tri_node *node = &l->graph->nodes[i];
        const tri_kernel_def *def = tri_device_select(&l->device->description, l->graph, node);
        if (strncmp(node->op->name, "linear", strlen("linear")) != 0) continue;
        if (!strcmp(def->name, "product") || !strcmp(def->name, "bf16-product") ||
            !strcmp(def->name, "widened"))
            continue;
        fail_msg("%s: %s is computed by kernel '%s'", what, node->op->name, def->name);
    }
}

static void check_shape(const layer_shape *s, tri_dtype dtype, int form) {
    static const char *const levels[] = {"amx", "bf16", "avx512", "avx2", "base"};
    layer ref = open_layer(&tri_device_ref, 1, dtype, s, form);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        // With F32, the levels amx and bf16 run the same kernels as avx512.
        if (dtype == TRI_F32 && i < 2) continue;
        // With BF16, levels below bf16 convert the values to F32 and run the kernels of F32. So
        // only some forms are tested there.
        if (dtype == TRI_BF16 && i > 1 && form % 4 != 0) continue;
        int threads = 2 + (form + (int)i) % 3;
        char what[128];
        snprintf(what, sizeof what, "%s, %s, %lld rows, %lld in, %lld out, %d threads", levels[i],
                 tri_dtype_name(dtype), (long long)s->rows, (long long)s->in, (long long)s->out,
                 threads);
        setenv("TRIREME_CPU_ISA", levels[i], 1);
        layer one = open_layer(&tri_device_cpu, 1, dtype, s, form);
        layer many = open_layer(&tri_device_cpu, threads, dtype, s, form);
        check_kernels(&one, what);
        compare(&one, &ref, what);
        compare_bits(&many, &one, what);
        close_layer(&one);
        close_layer(&many);
    }
    close_layer(&ref);
}

static void test_grid(void **state) {
    static const int64_t sizes[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 63};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    int form = 0;
    for (int r = 0; r < SIZES; r++)
        for (int i = 0; i < SIZES; i++)
            for (int o = 0; o < SIZES; o++) {
                // Only a third of the shapes is tested, but all pairs of sizes of any two of rows,
                // in and out still occur.
                if ((r + i + o) % 3) continue;
                layer_shape s = {sizes[r], sizes[i], sizes[o]};
                check_shape(&s, form % 2 ? TRI_BF16 : TRI_F32, form / 2);
                form++;
            }
}

// Tests shapes that consist of several blocks along one side or more, with and without an
// incomplete last block. oneDNN 2.6 crashed on the first of these shapes.
static void test_large(void **state) {
    static const layer_shape shapes[] = {
        {64, 32, 3072},  {64, 16, 1152},  {64, 3072, 32},  {5, 1000, 300}, {1, 2049, 65},
        {129, 128, 128}, {128, 784, 512}, {200, 64, 192},  {257, 130, 70}, {2, 64, 4160},
        {33, 530, 576},  {192, 512, 64},  {96, 1376, 160}, {1030, 33, 64}, {2100, 17, 40},
        {7, 64, 1024},   {48, 1040, 64},  {16, 4096, 128}, {513, 513, 20},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_shape(&shapes[i], TRI_F32, (int)i);
        check_shape(&shapes[i], TRI_BF16, (int)i);
    }
}

// An infinity in one row of x must not make other rows of y infinite or NaN. That would happen if a
// kernel read the infinity as padding of another row, where it must read zeros.
static void test_infinite(void **state) {
    static const layer_shape s = {19, 45, 21};
    static const char *const levels[] = {"amx", "bf16", "avx2"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        setenv("TRIREME_CPU_ISA", levels[i], 1);
        for (int half = 0; half < 2; half++) {
            layer l = open_layer(&tri_device_cpu, 2, half ? TRI_BF16 : TRI_F32, &s, 0);
            op_set(l.session, l.sources[0], 3 * s.in + s.in - 1, INFINITY);
            op_run_ok(l.session);
            for (int64_t k = 0; k < s.rows * s.out; k++)
                assert_int_equal(isfinite(op_get(l.session, l.results[0], k)), k / s.out != 3);
            close_layer(&l);
        }
    }
}

static void test_unknown_level(void **state) {
    tri_device *device;
    setenv("TRIREME_CPU_ISA", "sse9", 1);
    assert_int_equal(tri_device_cpu.open(&(tri_device_config){.threads = 1}, &device),
                     TRI_BAD_INPUT);
    assert_non_null(strstr(tri_error_message(), "TRIREME_CPU_ISA is 'sse9'"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_grid), cmocka_unit_test(test_large),
                                       cmocka_unit_test(test_infinite),
                                       cmocka_unit_test(test_unknown_level)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
