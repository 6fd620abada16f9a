// Tests the pass chunk_loss, which rewrites a graph so that a layer of scores and its cross-entropy
// are computed chunk by chunk of rows. It has to rewrite only layers that are suitable and large
// enough. On the CPU and on the reference device `ref`, the loss and all gradients must have the
// same bits with and without the pass, except where chunks change the order of sums. Finite
// differences check the gradients too.
#include "base/philox.h"
#include "device/cpu/cpu.h"
#include "device/cpu/internal.h"
#include "device/null/null.h"
#include "support/gradient_check.h"
#include "tensor/half.h"

// The model of one case (make_graph). `norm`: a norm is before the layer of scores. `reads_scores`:
// besides the loss, another node reads the scores. `is_frozen`: the weight of the layer of scores
// is not trained.
typedef struct chunk_case {
    int64_t samples, tokens, inputs, classes;
    tri_dtype dtype;
    bool bias, training, norm, bf16;
    bool reads_scores, is_frozen;
} chunk_case;

static tri_value add(tri_graph *g, const tri_op *op, tri_value a, tri_value b) {
    return tri_node_add(g, op, (tri_value[]){a, b}, op->input_count < 2 ? 1 : 2, NULL, "");
}

// Builds a model of two linear layers. The first one is followed by a norm if the case asks for it.
// The second one ("head") makes the scores of the classes; the loss is their cross-entropy.
static tri_graph *make_graph(const chunk_case *c) {
    tri_graph *g = op_graph_open(c->dtype);
    const char *message = "";
    g->options.training = c->training;
    tri_shape x = tri_shape_of(c->samples, c->tokens, c->inputs);
    tri_value labels = tri_input(g, "labels", TRI_I64, tri_shape_of(c->samples, c->tokens));
    tri_value in[3] = {
        tri_input(g, "x", c->dtype, x),
        tri_parameter(g, "first", tri_shape_of(c->inputs, c->inputs), (tri_init){0})};
    in[0] = tri_node_add(g, &tri_op_linear, in, 2, &(tri_linear_attr){.axes = 1}, "first");
    if (c->norm) in[0] = tri_rms_norm(g, "norm", in[0], 1e-5);
    in[1] = tri_parameter(g, "weight", tri_shape_of(c->classes, c->inputs), (tri_init){0});
    if (c->bias) in[2] = tri_parameter(g, "bias", tri_shape_of(c->classes), (tri_init){0});
    tri_linear_attr attr = {.axes = 1};
    tri_value scores = tri_node_add(g, &tri_op_linear, in, 3, &attr, "head");
    tri_value loss = tri_cross_entropy(g, scores, labels);
    if (c->reads_scores) tri_metric(g, "other", add(g, &tri_op_nll_loss, scores, labels));
    tri_loss(g, loss);
    if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s", message);
    const char *frozen = "weight";
    tri_parameter_group group = {.key = "groups", .match = {&frozen, 1}, .frozen = true};
    if (c->is_frozen) assert_int_equal(tri_graph_group(g, &group, 1), TRI_OK);
    assert_int_equal(
        tri_pass_precision(g, c->bf16 ? TRI_PRECISION_BF16_MIXED : TRI_PRECISION_32_TRUE), TRI_OK);
    if (c->training) assert_int_equal(tri_pass_autodiff(g), TRI_OK);
    return g;
}

static int count_op(const tri_graph *g, const tri_op *op) {
    int count = 0;
    for (int i = 0; i < g->node_count; i++) count += g->nodes[i].op == op;
    return count;
}

static void chunk(tri_graph *g, const tri_device_description *device) {
    if (tri_pass_chunk_loss(g, device) != TRI_OK) fail_msg("%s", tri_error_message());
}

// Runs the pass and returns how many linear layers it joined with the loss that reads them.
static int joined_layers(const chunk_case *c, const tri_device_description *device) {
    tri_graph *g = make_graph(c);
    int whole = count_op(g, &tri_op_cross_entropy);
    chunk(g, device);
    const tri_op *op =
        c->training ? &tri_op_linear_cross_entropy_grad : &tri_op_linear_cross_entropy;
    int count = count_op(g, op);
    assert_int_equal(count_op(g, &tri_op_cross_entropy), whole - count);
    if (count > 0) {
        assert_int_equal(count_op(g, &tri_op_cross_entropy_grad), 0);
        assert_int_equal(count_op(g, &tri_op_accuracy), 0);
        // The pass leaves the layer "first" as it is, so its weight's gradient has a node in
        // training.
        assert_int_equal(count_op(g, &tri_op_linear_grad_weight), c->training);
    }
    op_graph_close(g);
    return count;
}

// 16 MiB of scores, in two chunks.
static const chunk_case large = {
    .samples = 4, .tokens = 256, .inputs = 16, .classes = 4096, .training = true};

static void test_takes(void **state) {
    chunk_case c = large;
    assert_int_equal(joined_layers(&c, NULL), 1);
    c.bias = c.norm = true;
    assert_int_equal(joined_layers(&c, NULL), 1);
    c.training = false;
    assert_int_equal(joined_layers(&c, NULL), 1);
}

static void test_leaves(void **state) {
    chunk_case c = large;
    c.tokens = 128; // 512 rows are one chunk
    c.classes = 8192;
    assert_int_equal(joined_layers(&c, NULL), 0);
    c = large;
    c.classes = 2047; // the scores take a little less than 8 MiB, the least that the pass divides
    assert_int_equal(joined_layers(&c, NULL), 0);
    c = large;
    c.reads_scores = true;
    assert_int_equal(joined_layers(&c, NULL), 0);
    c.training = false;
    assert_int_equal(joined_layers(&c, NULL), 0);
    c = large;
    c.is_frozen = true;
    assert_int_equal(joined_layers(&c, NULL), 0);
}

// If two losses read the scores, the pass leaves the layer and its losses as they are.
static void test_leaves_two_losses(void **state) {
    tri_graph *g = op_graph_open(TRI_F32);
    g->options.training = true;
    tri_value labels = tri_input(g, "labels", TRI_I64, tri_shape_of(4, 256));
    tri_value in[] = {
        tri_parameter(g, "x", tri_shape_of(4, 256, 16), (tri_init){0}),
        tri_parameter(g, "weight", tri_shape_of(4096, 16), (tri_init){0}),
    };
    tri_value scores =
        tri_node_add(g, &tri_op_linear, in, 2, &(tri_linear_attr){.axes = 1}, "head");
    tri_value other = tri_input(g, "others", TRI_I64, tri_shape_of(4, 256));
    tri_loss(g, tri_add(g, tri_cross_entropy(g, scores, labels),
                        tri_weighted(g, tri_cross_entropy(g, scores, other), 0.5)));
    assert_int_equal(tri_pass_autodiff(g), TRI_OK);
    chunk(g, NULL);
    assert_int_equal(count_op(g, &tri_op_linear_cross_entropy_grad), 0);
    assert_int_equal(count_op(g, &tri_op_cross_entropy_grad), 2);
    op_graph_close(g);
}

// The pass joins the layer and its loss only on a device whose kernel keeps no more scores in
// memory than those of one chunk of rows.
static void test_devices(void **state) {
    static const struct {
        const tri_device_backend *backend;
        int joined_layers;
    } rows[] = {{&tri_device_cpu, 1}, {&tri_device_ref, 0}, {&tri_device_null, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_device *device = op_device_open(rows[i].backend, 1);
        assert_int_equal(joined_layers(&large, &device->description), rows[i].joined_layers);
        device->backend->close(device);
    }
}

static void test_chunk_rows(void **state) {
    static const int64_t rows[][2] = {{1, 1},      {512, 512},  {513, 320},  {1000, 512},
                                      {1024, 512}, {1025, 384}, {1536, 512}, {1 << 20, 512}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(tri_loss_chunk(rows[i][0]), rows[i][1]);
}

// Most tests below compare results with and without chunks, bit by bit.

static void fill(op_session *session, const tri_graph *g, int64_t classes) {
    for (int i = 1; i < g->value_count; i++) {
        const tri_value_info *info = &g->values[i];
        tri_value value = {(uint32_t)i};
        if (info->kind == TRI_VALUE_RESULT || info->kind == TRI_VALUE_NONE) continue;
        if (tri_dtype_is_float(info->dtype)) {
            op_fill(session, value, 5 + (uint64_t)info->kind, -1, 1);
            continue;
        }
        int64_t *labels = op_host(session, value);
        for (int64_t k = 0; k < op_count(session, value); k++) {
            uint32_t word = tri_philox_at(9, 0, 0, (uint64_t)k);
            labels[k] = word % 7 == 0 ? TRI_IGNORED_LABEL : word / 7 % classes;
        }
    }
    if (tri_value_is(g->scalars[TRI_SCALAR_SEED]))
        op_set(session, g->scalars[TRI_SCALAR_SEED], 0, 0.01);
}

typedef struct side {
    tri_graph *graph;
    tri_device *device;
    op_session *session;
} side;

// Runs the case, with the layer in chunks or whole.
static side run_case(const chunk_case *c, const tri_device_backend *backend, int threads,
                     bool chunks) {
    side s = {.graph = make_graph(c), .device = op_device_open(backend, threads)};
    if (chunks) chunk(s.graph, NULL);
    assert_int_equal(count_op(s.graph, &tri_op_cross_entropy), !chunks);
    s.session = op_session_open(s.graph, s.device, false);
    fill(s.session, s.graph, c->classes);
    op_run_ok(s.session);
    return s;
}

static void close_side(side *s) {
    op_session_close(s->session);
    s->device->backend->close(s->device);
    op_graph_close(s->graph);
}

// Compares values bit by bit or, if `limit` is above 0, relative to the largest element.
static void check_value(const chunk_case *c, const side *one, tri_value a, const side *two,
                        tri_value b, double limit, const char *what) {
    int64_t count = op_count(one->session, a);
    double largest = 0;
    assert_int_equal(op_count(two->session, b), count);
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(op_get(two->session, b, i)));
    for (int64_t i = 0; i < count; i++) {
        double x = op_get(one->session, a, i), y = op_get(two->session, b, i);
        bool same = limit > 0 ? fabs(x - y) <= limit * largest : !memcmp(&x, &y, sizeof x);
        if (!same)
            fail_msg("%lld rows of %lld by %lld, %s: %s: element %lld is %.17g in chunks, %.17g "
                     "whole",
                     (long long)(c->samples * c->tokens), (long long)c->inputs,
                     (long long)c->classes, tri_dtype_name(c->dtype), what, (long long)i, x, y);
    }
}

// Compares losses, metrics and all gradients with and without chunks. They must have equal bits,
// except for the gradient of the layer's weight, which may differ by `limit`.
static void check_case(const chunk_case *c, const tri_device_backend *backend, int threads,
                       double limit) {
    side one = run_case(c, backend, threads, true), two = run_case(c, backend, threads, false);
    for (int i = 0; i < one.graph->metric_count; i++)
        if (tri_value_is(one.graph->metrics[i].value))
            check_value(c, &one, one.graph->metrics[i].value, &two, two.graph->metrics[i].value, 0,
                        one.graph->metrics[i].name);
    assert_int_equal(one.graph->gradient_count, two.graph->gradient_count);
    for (int i = 0; i < one.graph->gradient_count; i++) {
        const char *name = one.graph->parameters[one.graph->gradients[i].parameter].name;
        check_value(c, &one, one.graph->gradients[i].value, &two, two.graph->gradients[i].value,
                    strcmp(name, "weight") == 0 ? limit : 0, name);
    }
    close_side(&one);
    close_side(&two);
}

static void check_bits(const chunk_case *c, const tri_device_backend *backend, int threads) {
    check_case(c, backend, threads, 0);
}

// Compares results with and without chunks for several numbers of rows. 1024 rows are two full
// chunks (of at most 512 rows); with the other numbers the last chunk is smaller, and 513 is the
// smallest number of rows that needs two chunks. The layout of the weight in memory is blocked in
// some cases and plain in others. Each number of rows has one thread in one type and three in the
// other.
static void check_sizes(const tri_device_backend *backend, bool bf16) {
    static const int64_t tokens[] = {1024, 513, 577, 1100, 1537};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        chunk_case c = {.samples = 1,
                        .tokens = tokens[i],
                        .inputs = i % 2 ? 80 : 96,
                        .classes = i % 2 ? 8257 : 8256,
                        .bf16 = bf16,
                        .bias = i % 3 == 0,
                        .norm = i % 3 == 1};
        for (int training = 0; training < 2; training++) {
            c.training = training;
            check_bits(&c, backend, (i + bf16) % 2 ? 3 : 1);
        }
    }
}

static void test_bits(void **state) {
    check_sizes(&tri_device_cpu, false);
    check_sizes(&tri_device_cpu, true);
}

static void test_bits_of_isas(void **state) {
    static const char *const isas[] = {"base", "avx2", "avx512", "bf16"};
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        chunk_case c = large;
        c.inputs = i == 0 ? 24 : 80; // without vectors products are slow
        c.classes = 4160;
        setenv("TRIREME_CPU_ISA", isas[i], 1);
        check_bits(&c, &tri_device_cpu, 2);
        c.bf16 = !strcmp(isas[i], "bf16");
        if (c.bf16) c.tokens = 513; // the last chunk is shorter than the others
        check_bits(&c, &tri_device_cpu, 2);
        unsetenv("TRIREME_CPU_ISA");
    }
}

// A product of F32 sums the weight's gradient block by block of rows. If these blocks differ from
// the chunks of the loss, the gradient is summed in another order with chunks than without. All
// other results keep their bits.
static void test_other_order(void **state) {
    chunk_case c = {.samples = 1, .tokens = 640, .inputs = 48, .classes = 4160, .training = true};
    check_case(&c, &tri_device_cpu, 1, 1e-6);
}

static void test_bits_of_ref(void **state) {
    chunk_case c = {.samples = 2,
                    .tokens = 300,
                    .inputs = 3,
                    .classes = 4000,
                    .bias = true,
                    .norm = true,
                    .training = true};
    check_bits(&c, &tri_device_ref, 1);
    c.training = false;
    check_bits(&c, &tri_device_ref, 1);
}

// Compares the gradients of a linear_cross_entropy node with finite differences of its loss, on
// `ref` in F64.
static void test_gradients(void **state) {
    for (int bias = 0; bias < 2; bias++) {
        subject s = begin();
        tri_graph *g = s.graph;
        tri_shape x = tri_shape_of(2, 3, 4);
        tri_value in[5] = {trained(&s, "x", x), trained(&s, "weight", tri_shape_of(5, 4)),
                           tri_input(g, "labels", TRI_I64, tri_shape_of(2, 3)),
                           tri_scalar(g, TRI_SCALAR_SEED)};
        if (bias) in[4] = trained(&s, "bias", tri_shape_of(5));
        tri_block(g, "head");
        g->phase = TRI_PHASE_BACKWARD;
        tri_value dx = tri_node_add(g, &tri_op_linear_cross_entropy_grad, in, 5, NULL, "");
        for (int i = 0; i < 2 + bias; i++) tri_gradient_add(g, i, tri_node_output(g, dx, i));
        tri_device *device = op_device_open(&tri_device_ref, 1);
        op_session *session = op_session_open(g, device, false);
        fill_sources(session, g, -1, 1);
        for (int i = 0; i < g->parameter_count; i++)
            check_parameter(session, g, i, tri_node_output(g, dx, 3));
        op_session_close(session);
        device->backend->close(device);
        op_graph_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes),        cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_devices),      cmocka_unit_test(test_leaves_two_losses),
        cmocka_unit_test(test_chunk_rows),   cmocka_unit_test(test_bits),
        cmocka_unit_test(test_bits_of_isas), cmocka_unit_test(test_bits_of_ref),
        cmocka_unit_test(test_gradients),    cmocka_unit_test(test_other_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
