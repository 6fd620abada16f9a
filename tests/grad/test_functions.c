// Compares every row of TRI_FUNCTION_LIST with PyTorch, value and gradients (function_tables.h
// and function_pairs.h), and its gradients with finite differences; and checks expressions,
// broadcasting and reductions.
#include "device/cpu/cpu.h"
#include "grad/function_tables.h"
#include "support/torch_check.h"

#include "grad/function_pairs.h"
#include "grad/more_function_tables.h"
#include "grad/shape_tables.h"

#include <trireme/functions.h>

enum { MOST_INPUTS = 3, POINTS = sizeof torch_points / sizeof *torch_points };
#define COUNT(array) (sizeof(array) / sizeof *(array))

// The rows of the list, with the texts of their values and parameters.
static const struct row {
    const char *name, *values, *parameters, *expression;
} rows[] = {
#define X(name, declared, values, parameters, expression, doc)                                     \
    {#name, #values, #parameters, expression},
    TRI_FUNCTION_LIST(X) TRI_LOSS_LIST(X)
#undef X
};

static int commas(const char *text) {
    int count = 0;
    for (; *text; text++) count += *text == ',';
    return count;
}

static const torch_function *torch_of(const char *name) {
    for (size_t i = 0; i < COUNT(torch_functions); i++)
        if (!strcmp(torch_functions[i].name, name)) return &torch_functions[i];
    for (size_t i = 0; i < COUNT(torch_more_functions); i++)
        if (!strcmp(torch_more_functions[i].name, name)) return &torch_more_functions[i];
    for (size_t i = 0; i < COUNT(torch_pairs); i++)
        if (!strcmp(torch_pairs[i].name, name)) return &torch_pairs[i];
    fail_msg("no table has a row for %s", name);
    return NULL;
}

static tri_value add_map(tri_graph *g, const char *expression, const double *parameters,
                         const tri_value *in) {
    tri_map_attr attr = {0};
    if (tri_formula_parse(expression, parameters, &attr.formula) != TRI_OK)
        fail_msg("%s", tri_error_message());
    return tri_node_add(g, &tri_op_map, in, attr.formula.input_count, &attr, "");
}

static void near(const char *name, double got, double want) {
    bool same = isnan(want) ? isnan(got) : fabs(got - want) <= 1e-10 * (1 + fabs(want));
    if (!same) fail_msg("%s: got %.17g, PyTorch has %.17g", name, got, want);
}

static void near_projection(const char *name, op_session *session, tri_value value,
                            const double want[2]) {
    double cosine = 0, squares = 0;
    for (int64_t i = 0; tri_value_is(value) && i < op_count(session, value); i++) {
        double v = op_get(session, value, i);
        cosine += v * cos(1.7 * (double)i + 0.3);
        squares += v * v;
    }
    near(name, cosine, want[0]);
    near(name, squares, want[1]);
}

// Adds the gradients of all inputs of the node that made y, from dy.
static void add_gradients(tri_graph *g, tri_value y, tri_value dy, tri_value *gradients) {
    const tri_node *node = tri_value_node(g, y);
    tri_value out_grads[TRI_MAX_OUTPUTS] = {dy};
    bool wanted[TRI_MAX_INPUTS];
    for (int i = 0; i < TRI_MAX_INPUTS; i++) wanted[i] = true;
    tri_node copy = *node; // the graph's nodes may move while nodes are added
    node->op->gradient(g, &copy, out_grads, wanted, gradients);
}

static void compare_function(const struct row *row, const tri_device_backend *backend) {
    static const int64_t sizes[MOST_INPUTS][2] = {{3, 4}, {4, 0}, {3, 1}};
    const torch_function *torch = torch_of(row->name);
    int inputs = commas(row->values) + 1;
    tri_graph *g = op_graph_open(TRI_F64);
    tri_value in[MOST_INPUTS], gradients[TRI_MAX_INPUTS] = {{0}};
    for (int k = 0; k < inputs; k++) {
        tri_shape shape = tri_shape_of(sizes[k][0], sizes[k][1]);
        if (sizes[k][1] == 0) shape.rank = 1;
        in[k] = tri_input(g, tri_name(g, "in%d", k), TRI_F64, shape);
    }
    tri_value y = add_map(g, row->expression, torch->parameters, in);
    tri_value dy = tri_input(g, "dy", TRI_F64, tri_value_shape(g, y));
    add_gradients(g, y, dy, gradients);
    tri_device *device = op_device_open(backend, 1);
    op_session *session = op_session_open(g, device, false);
    for (int k = 0; k < inputs; k++) fill_wave(session, in[k], k + 1, torch->factor, torch->offset);
    fill_wave(session, dy, 9, 1, 0);
    op_run_ok(session);
    near_projection(row->name, session, y, torch->y);
    for (int k = 0; k < inputs; k++)
        near_projection(row->name, session, gradients[k], torch->dx[k]);
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

static void compare_points(const struct row *row) {
    const torch_function *torch = torch_of(row->name);
    if (!torch->has_points) return;
    tri_graph *g = op_graph_open(TRI_F64);
    tri_value gradients[TRI_MAX_INPUTS] = {{0}},
              x = tri_input(g, "x", TRI_F64, tri_shape_of(POINTS));
    tri_value y = add_map(g, row->expression, torch->parameters, &x);
    tri_value dy = tri_input(g, "dy", TRI_F64, tri_shape_of(POINTS));
    add_gradients(g, y, dy, gradients);
    tri_device *device = op_device_open(&tri_device_ref, 1);
    op_session *session = op_session_open(g, device, false);
    for (int i = 0; i < POINTS; i++) op_set(session, x, i, torch_points[i]);
    for (int i = 0; i < POINTS; i++) op_set(session, dy, i, 1);
    op_run_ok(session);
    for (int i = 0; i < POINTS; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s at %g", row->name, torch_points[i]);
        // Functions of NaN are NaN here, except comparisons. PyTorch's softshrink is 0, and it has
        // no one rule for slopes.
        bool is_nan = isnan(torch_points[i]) && isnan(op_get(session, y, i));
        if (!is_nan) near(name, op_get(session, y, i), torch->at_points[i]);
        if (isnan(torch_points[i])) continue;
        if (tri_value_is(gradients[0]))
            near(name, op_get(session, gradients[0], i), torch->slopes[i]);
        else
            assert_true(torch->slopes[i] == 0);
    }
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

static void near_edge(const torch_edge *edge, const char *what, double got, double want,
                      double allowed) {
    bool same = isnan(want)                ? isnan(got)
                : isinf(want) || want == 0 ? got == want
                                           : fabs(got / want - 1) <= allowed;
    if (!same)
        fail_msg("%s of %g, %g: %s: got %.9g, PyTorch has %.9g", edge->name, edge->in[0],
                 edge->in[1], what, got, want);
}

// Functions at their limits: numbers whose square is too large or too small for F32, infinity, the
// signs of 0, and the ends of where a function is defined. Where PyTorch has no slope, any will do.
static void compare_edge(const torch_edge *edge, const tri_device_backend *backend, tri_dtype dtype,
                         double allowed) {
    size_t row = 0;
    while (strcmp(rows[row].name, edge->name) != 0) row++;
    int inputs = commas(rows[row].values) + 1;
    tri_graph *g = op_graph_open(dtype);
    tri_value in[2], gradients[TRI_MAX_INPUTS] = {{0}};
    for (int k = 0; k < inputs; k++)
        in[k] = tri_input(g, tri_name(g, "in%d", k), dtype, tri_shape_of(1));
    tri_value y = add_map(g, rows[row].expression, NULL, in);
    tri_value dy = tri_input(g, "dy", dtype, tri_shape_of(1));
    add_gradients(g, y, dy, gradients);
    tri_device *device = op_device_open(backend, 1);
    op_session *session = op_session_open(g, device, false);
    for (int k = 0; k < inputs; k++) op_set(session, in[k], 0, edge->in[k]);
    op_set(session, dy, 0, 1);
    op_run_ok(session);
    double value = op_get(session, y, 0);
    near_edge(edge, "value", value, edge->y, allowed);
    if (edge->y == 0 && signbit(value) != signbit(edge->y))
        fail_msg("%s of %g, %g: 0 has the other sign", edge->name, edge->in[0], edge->in[1]);
    for (int k = 0; k < inputs; k++)
        if (!isnan(edge->slopes[k]))
            near_edge(edge, "slope", op_get(session, gradients[k], 0), edge->slopes[k], allowed);
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

static void test_edges(void **state) {
    for (size_t i = 0; i < COUNT(torch_edges); i++) {
        compare_edge(&torch_edges[i], &tri_device_ref, TRI_F64, 1e-12);
        compare_edge(&torch_edges[i], &tri_device_cpu, TRI_F32, 1e-5);
    }
}

static void test_functions(void **state) {
    for (size_t i = 0; i < COUNT(rows); i++) {
        compare_function(&rows[i], &tri_device_ref);
        compare_points(&rows[i]);
    }
}

// Finite differences where the functions are smooth: mostly at random numbers from 1.1 to 1.9.
static void test_differences(void **state) {
    for (size_t i = 0; i < COUNT(rows); i++) {
        static const char *const names[MOST_INPUTS] = {"a", "b", "c"};
        tri_shape shapes[MOST_INPUTS] = {tri_shape_of(2, 1, 3), tri_shape_of(4, 1),
                                         tri_shape_of(1)};
        const torch_function *torch = torch_of(rows[i].name);
        tri_value in[MOST_INPUTS];
        double slopes = 0;
        subject s = begin();
        for (int k = 0; k <= commas(rows[i].values); k++) {
            slopes += torch->dx[k][1];
            bool is_constant = torch->dx[k][1] == 0; // such as the condition of `where`
            in[k] = is_constant ? tri_input(s.graph, names[k], TRI_F64, shapes[k])
                                : trained(&s, names[k], shapes[k]);
        }
        if (slopes == 0) {
            op_graph_close(s.graph);
            continue;
        }
        tri_value y = add_map(s.graph, rows[i].expression, torch->parameters, in);
        bool of_unit = torch->factor < 1; // defined between 0 and 1 only
        check_in(&s, distance(&s, y), of_unit ? 0.2 : 1.1, of_unit ? 0.8 : 1.9);
    }
}

// Expressions of many values, and several at once, of which one may have no reader: the derivative
// has more inputs than a formula has room for.
static void test_several(void **state) {
    static const struct {
        const char *text;
        int inputs, outputs;
    } cases[] = {
        {"a, b, c, d, e, f, g, h -> a * b + sin(c) * d - e * f * g + 3 * h", 8, 1},
        {"a, b, c, d, e, f, g, h -> a + b - 2 * c + d + e + f - g + h", 8, 1},
        {"a, b, c, d, e, f, g, h -> a * b, exp(c) * d + e, f * g - a, h + 2 * a", 8, 4},
        {"a, b, c, d, e -> a * b, c, d * a, tanh(e) * b", 5, 4},
        {"x, y -> x * cos(y), x * sin(y)", 2, 2},
        {"x -> exp(x), 3 * x, x", 1, 3},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int unread = -1; unread < (cases[i].inputs <= 2 ? 2 : 0); unread++) {
            subject s = begin();
            tri_value in[8], y[4], sum = {0};
            for (int k = 0; k < cases[i].inputs; k++)
                in[k] = trained(&s, tri_name(s.graph, "x%d", k),
                                k == 1 ? tri_shape_of(3) : tri_shape_of(2, 3));
            tri_map_several(s.graph, cases[i].text, in, cases[i].inputs, y, cases[i].outputs);
            for (int k = 0; k < cases[i].outputs; k++) {
                if (k == unread) continue;
                tri_value part = tri_mul_scalar(s.graph, y[k], 1 + 0.5 * k);
                sum = tri_value_is(sum) ? tri_add(s.graph, sum, part) : part;
            }
            check(&s, distance(&s, sum));
        }
    OP_REFUSED("2 expressions|only one", tri_shape_of(3), tri_map(g, "x -> x, 2 * x", x));
    tri_value y[4];
    OP_REFUSED("2 expressions|3 values are wanted", tri_shape_of(3),
               tri_map_several(g, "x -> x, 2 * x", &x, 1, y, 3));
}

static tri_value sum_of(tri_graph *g, tri_reduction kind, int64_t axes, tri_value x) {
    return tri_node_add(g, &tri_op_reduce, &x, 1, &(tri_reduce_attr){.kind = kind, .axes = axes},
                        "");
}

static void test_reductions(void **state) {
    for (int kind = TRI_REDUCTION_SUM; kind <= TRI_REDUCTION_LOGSUMEXP; kind++)
        for (int64_t axes = 0; axes < 8; axes++) {
            subject s = begin();
            tri_value x = trained(&s, "x", tri_shape_of(3, 1, 4));
            check(&s, distance(&s, sum_of(s.graph, (tri_reduction)kind, axes, x)));
        }
    subject sums = begin(); // broadcasts as all functions of elements
    tri_value wide = trained(&sums, "a", tri_shape_of(3, 2)),
              row = trained(&sums, "b", tri_shape_of(2));
    check(&sums, distance(&sums, tri_pow_scalar(sums.graph, tri_add(sums.graph, wide, row), 2)));
    subject s = begin(); // a mean without its axis, a variance, and extremes that are equal
    tri_value x = trained(&s, "x", tri_shape_of(2, 5));
    tri_value mean = tri_mean(s.graph, x, (int[]){-1}, 1, true);
    tri_value square = tri_map(s.graph, "x, mean -> (x - mean) ^ 2", x, mean);
    check(&s, distance(&s, tri_mean(s.graph, square, (int[]){1}, 1, false)));
}

// A loss is the sum of its terms and their number.
static void test_losses(void **state) {
    subject s = begin();
    tri_value p = trained(&s, "p", tri_shape_of(3, 2)), t = trained(&s, "t", tri_shape_of(3, 2));
    check_open(&s, tri_huber_loss(s.graph, p, t, 0.5), -1, 1);
    op_graph_close(s.graph);
    tri_graph *g = op_graph_open(TRI_F64);
    tri_value x = tri_input(g, "x", TRI_F64, tri_shape_of(2, 3)), loss = tri_l1_loss(g, x, x);
    loss = tri_mean_loss(g, x);
    tri_device *device = op_device_open(&tri_device_ref, 1);
    op_session *session = op_session_open(g, device, false);
    for (int i = 0; i < 6; i++) op_set(session, x, i, i);
    op_run_ok(session);
    assert_true(op_get(session, loss, 0) == 15 && op_get(session, loss, 1) == 6);
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

// What each row of torch_shapes is here: the function of x.
static tri_value shaped(tri_graph *g, const char *name, tri_value x) {
#define CASE(text, value)                                                                          \
    if (!strcmp(name, text)) return value;
    CASE("permute", tri_permute(g, x, (int[]){2, 0, 3, 1}))
    CASE("transpose", tri_transpose(g, x, -1, 1))
    CASE("slice", tri_slice(g, x, 1, 1, 4, 0))
    CASE("slice from the end", tri_slice(g, x, -1, -3, -1, 1))
    CASE("slice in steps", tri_slice(g, x, 1, 1, 0, 2))
    CASE("slice in steps past the end", tri_slice(g, x, 0, 0, 0, 3))
    CASE("select", tri_select(g, x, 1, -2))
    CASE("flip", tri_flip(g, x, 1))
    CASE("pad", tri_pad(g, x, 1, 2, 3))
    CASE("pad negative", tri_pad(g, x, 1, -1, 2))
    CASE("roll", tri_roll(g, x, 1, 2))
    CASE("roll back", tri_roll(g, x, 0, -7))
    CASE("expand", tri_expand(g, x, tri_shape_of(2, 3, 4, 2)))
    CASE("repeat", tri_repeat(g, x, 1, 3))
    CASE("repeat_interleave", tri_repeat_interleave(g, x, 1, 3))
    CASE("stack", tri_stack(g, (tri_value[]){x, tri_mul_scalar(g, x, 2)}, 2, 1))
    CASE("chunk", tri_chunk(g, x, -1, 3, 1))
    CASE("glu", tri_glu(g, x, 1))
    CASE("pixel_shuffle", tri_pixel_shuffle(g, x, 2))
    CASE("pixel_unshuffle", tri_pixel_unshuffle(g, x, 3))
    CASE("squeeze and unsqueeze", tri_unsqueeze(g, tri_squeeze(g, x, 1), -1))
    CASE("sum", tri_sum(g, x, (int[]){0, -1}, 2, false))
    CASE("mean", tri_mean(g, x, (int[]){2}, 1, true))
    CASE("amax", tri_amax(g, x, (int[]){1, 2}, 2, false))
    CASE("amin", tri_amin(g, x, (int[]){0}, 1, false))
    CASE("variance", tri_mean(g, tri_square(g, tri_sub(g, x, tri_mean(g, x, (int[]){1}, 1, true))),
                              (int[]){1}, 1, false))
    CASE("var", tri_var(g, x, (int[]){0, 2}, 2, 1, false))
    CASE("std", tri_std(g, x, (int[]){-1}, 1, 1, true))
    CASE("std of all", tri_std(g, x, NULL, 0, 0, false))
    CASE("logsumexp", tri_logsumexp(g, x, (int[]){0, 2}, 2, false))
    CASE("logsumexp of large ones",
         tri_logsumexp(g, tri_mul_scalar(g, x, 1e4), (int[]){1}, 1, true))
    CASE("norm", tri_norm(g, x, (int[]){1}, 1, false))
    CASE("normalize", tri_normalize(g, x, 0, 0))
    CASE("normalize small", tri_normalize(g, x, -1, 100))
    CASE("cosine_similarity",
         tri_cosine_similarity(g, x, tri_add_scalar(g, tri_flip(g, x, 2), 1), 1, 0))
    CASE("softmax", tri_softmax(g, x, -1))
    CASE("softmax over rows", tri_softmax(g, x, 1))
    CASE("softmax over the first axis", tri_softmax(g, x, 0))
    CASE("softmax of one element", tri_softmax(g, x, 1))
    CASE("log_softmax", tri_log_softmax(g, x))
    CASE("log_softmax over rows", tri_log_softmax_along(g, x, -2))
#undef CASE
    fail_msg("there is no case for %s", name);
    return x;
}

static void test_shapes(void **state) {
    for (size_t i = 0; i < COUNT(torch_shapes); i++) {
        torch_check(&torch_shapes[i], shaped, &tri_device_ref, TRI_F64, 1e-10);
        torch_check(&torch_shapes[i], shaped, &tri_device_cpu, TRI_F32, 1e-4);
    }
}

static void test_too_few_for_a_variance(void **state) {
    tri_graph *g = op_graph_open(TRI_F64);
    const char *message = "";
    tri_var(g, tri_input(g, "x", TRI_F64, tri_shape_of(3, 1)), (int[]){1}, 1, 1, false);
    assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
    assert_non_null(strstr(message, "correction of 1"));
    op_graph_close(g);
}

// A view reads elements other than the one that is written, so it must not write over its input.
static void test_views_keep_their_input(void **state) {
    tri_graph *g = op_graph_open(TRI_F64);
    tri_value x = tri_input(g, "x", TRI_F64, tri_shape_of(5));
    tri_value y = tri_flip(g, tri_square(g, x), 0);
    tri_device *device = op_device_open(&tri_device_ref, 1);
    op_session *session = op_session_open(g, device, true);
    for (int i = 0; i < 5; i++) op_set(session, x, i, i);
    op_run_ok(session);
    for (int i = 0; i < 5; i++) assert_true(op_get(session, y, i) == (4 - i) * (4 - i));
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

// Of two outputs the first may be written over the input of which the second is a copy, as in the
// derivative of b - a.
static void test_outputs_over_an_input(void **state) {
    tri_map_attr attr = {0};
    int uses[TRI_FORMULA_INPUTS];
    bool given[TRI_FORMULA_OUTPUTS] = {true}, wanted[TRI_FORMULA_INPUTS] = {true, true};
    bool differs[TRI_FORMULA_INPUTS];
    tri_formula difference;
    assert_int_equal(tri_formula_parse("a, b -> b - a", NULL, &difference), TRI_OK);
    assert_int_equal(tri_formula_derive(&difference, given, wanted, &attr.formula, uses, differs),
                     TRI_OK);
    assert_true(attr.formula.input_count == 1 && attr.formula.output_count == 2);
    const tri_device_backend *backends[] = {&tri_device_ref, &tri_device_cpu};
    for (int i = 0; i < 2; i++) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(300)), dy = tri_neg(g, x);
        tri_value da = tri_node_add(g, &tri_op_map, &dy, 1, &attr, "");
        tri_device *device = op_device_open(backends[i], 1);
        op_session *session = op_session_open(g, device, true);
        for (int k = 0; k < 300; k++) op_set(session, x, k, k);
        op_run_ok(session);
        tri_value db = tri_node_output(g, da, 1);
        for (int k = 0; k < 300; k++)
            assert_true(op_get(session, da, k) == k && op_get(session, db, k) == -k);
        op_session_close(session);
        device->backend->close(device);
        op_graph_close(g);
    }
}

// What the gradient of a function of one input reads beside that of its output: the output where
// this is enough, so that the input need not be kept, else the input. Each of those that the device
// cpu has compiled is recognised by its formula.
static void test_what_gradients_read(void **state) {
    static const struct {
        const char *text;
        bool reads_output, is_compiled;
    } cases[] = {
        {"sigmoid(x)", true, true},
        {"tanh(x)", true, true},
        {"exp(x)", true, false},
        {"relu(x)", true, true},
        {"leaky_relu(x, 0.3)", true, true},
        {"leaky_relu(x, -0.3)", false, true},
        {"x * normal_cdf(x)", false, true},
        {"x * sigmoid(x * (1.595769121605730712 + 0.0713548162726002488 * (x * x)))", false, true},
        {"2 * tanh(3 * x)", false, false},
        {"x * sigmoid(x)", false, false}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value x = tri_parameter(g, "x", tri_shape_of(7), (tri_init){0});
        tri_value y = tri_map(g, cases[i].text, x);
        tri_loss(g, tri_mean_loss(g, y));
        assert_int_equal(tri_pass_autodiff(g), TRI_OK);
        const tri_node *node = tri_value_node(g, tri_gradient_of(g, 0));
        assert_true(node->op == &tri_op_map && !tri_value_is(node->inputs[2]));
        assert_int_equal(node->inputs[1].id, cases[i].reads_output ? y.id : x.id);
        tri_device *device = op_device_open(&tri_device_cpu, 1);
        const tri_kernel_def *kernel = tri_device_select(&device->description, g, node);
        assert_int_equal(strcmp(kernel->name, "compiled") == 0, cases[i].is_compiled);
        device->backend->close(device);
        op_graph_close(g);
    }
}

// Formulas that take the same steps have the same bytes, whatever the order in which they were
// made; a text may have several outputs.
static void test_one_order(void **state) {
    static const char *const pairs[][2] = {
        {"a, b -> exp(a) * b + (a + b) * 2", "a, b -> 2 * (b + a) + b * exp(a)"},
        {"a, b -> (a * b + 3) * (a * b + 4)", "a, b -> (4 + b * a) * (a * b + 3)"},
        {"dy, x -> dy * (sigmoid(x) + x * (sigmoid(x) * (1 - sigmoid(x))))",
         "x * sigmoid(x)"}, // its derivative
        {"a, b, dy -> dy * exp(b), dy * (a * exp(b))", "a, b -> a * exp(b)"},
    };
    for (size_t i = 0; i < COUNT(pairs); i++) {
        tri_formula first, second, made;
        int uses[TRI_FORMULA_INPUTS];
        bool given[TRI_FORMULA_OUTPUTS] = {true}, differs[TRI_FORMULA_INPUTS];
        bool wanted[TRI_FORMULA_INPUTS] = {true, true};
        assert_int_equal(tri_formula_parse(pairs[i][0], NULL, &first), TRI_OK);
        assert_int_equal(tri_formula_parse(pairs[i][1], NULL, &second), TRI_OK);
        made = second;
        if (i >= 2)
            assert_int_equal(tri_formula_derive(&second, given, wanted, &made, uses, differs),
                             TRI_OK);
        if (memcmp(&first, &made, sizeof made) != 0) {
            tri_formula_print(&first, stdout);
            printf("\n");
            tri_formula_print(&made, stdout);
            fail_msg(" are two formulas");
        }
    }
}

static double value_at(const tri_formula *f, double first, double second) {
    double values[UINT8_MAX + 1] = {0};
    values[TRI_OPERAND_INPUT] = first;
    values[TRI_OPERAND_INPUT + 1] = second;
    memcpy(&values[TRI_OPERAND_CONSTANT], f->constants, sizeof f->constants);
    for (int i = 0; i < f->step_count; i++) {
        const tri_formula_step *t = &f->steps[i];
        values[i] =
            tri_step_value((tri_step_kind)t->kind, values[t->a], values[t->b], values[t->c]);
    }
    return values[f->outputs[0]];
}

// Each expression and the value that it has at x = 3, y = -2; or words of the message with which it
// is refused.
static void test_expressions(void **state) {
    static const struct {
        const char *text;
        double value;
        const char *refused;
    } cases[] = {
        {"x, y -> x + y * 2", -1, NULL},
        {"x, y -> -x ^ 2 + y", -11, NULL},
        {"x, y -> 2 ^ -y ^ 1 * x", 12, NULL},
        {"x, y -> (x - y) / 5 * 2e1", 20, NULL},
        {"x, y -> x > y ? y < x ? 7 : 8 : 9", 7, NULL},
        {"x, y -> x >= 3 && y != 2 || 0", 1, NULL},
        {"x, y -> !(x <= y) + min(x, y) + max(x, y)", 2, NULL},
        {"x, y, k = -0.5 -> k * x * y", 3, NULL},
        {"x, y, k = -1 / 2, d = x - y, s = d * d -> k * s + d", -7.5, NULL},
        {"x, y -> pi * (x == y) + floor(x / y) - sign(y)", -1, NULL},
        {"x, y -> 1 - 1 * x + y", -4, NULL},
        {"", 0, "missing"},
        {"x * y", 0, "name several inputs first"},
        {"x, y -> x", 0, "not used"},
        {"x, x -> x", 0, "twice"},
        {"-> 1", 0, "a name is missing"},
        {"x -> foo(x)", 0, "no such function"},
        {"x -> exp(x, x)", 0, "another number"},
        {"x -> (x", 0, ") is missing"},
        {"x -> x ? 1", 0, ": is missing"},
        {"x -> x 2", 0, "end here"},
        {"x -> 1..2 * x", 0, "no number"},
        {"3", 0, "no input"},
        {"x -> x, x, x, x, x", 0, "too many expressions"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        tri_formula f;
        tri_status status = tri_formula_parse(cases[i].text, NULL, &f);
        if (cases[i].refused) {
            assert_int_equal(status, TRI_BAD_INPUT);
            if (!strstr(tri_error_message(), cases[i].refused))
                fail_msg("\"%s\": %s", cases[i].text, tri_error_message());
            continue;
        }
        assert_int_equal(status, TRI_OK);
        double got = value_at(&f, 3, -2);
        if (fabs(got - cases[i].value) > 1e-12)
            fail_msg("\"%s\" is %g, not %g", cases[i].text, got, cases[i].value);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_too_few_for_a_variance),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_views_keep_their_input),
        cmocka_unit_test(test_outputs_over_an_input),
        cmocka_unit_test(test_what_gradients_read),
        cmocka_unit_test(test_one_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
