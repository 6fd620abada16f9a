// Ops of a program's own: the check of their gradients in one call, what it finds, gradients in a
// graph, and what is refused.
#include "device/cpu/cpu.h"
#include "support/gradient_check.h"
#include "support/message.h"

#include <trireme/own_op.h>

// y = x · scale[column] + shift, of x [N, C] and scale [C].
static const char *scale_shape(const tri_shape *in, tri_shape *out, const double *settings) {
    if (in[0].rank != 2 || in[1].rank != 1 || in[1].dims[0] != in[0].dims[1])
        return "scale must be [C] of x [N, C]";
    out[0] = in[0];
    return NULL;
}

static void scale_compute(const tri_own_call *c) {
    for (int64_t i = 0; i < c->in[0].count; i++)
        tri_own_put(&c->out[0], i,
                    tri_own_get(&c->in[0], i) * tri_own_get(&c->in[1], i % c->in[1].count) +
                        c->settings[0]);
}

static void scale_gradient(const tri_own_call *c) {
    for (int64_t i = 0; i < c->in[0].count; i++) {
        int64_t column = i % c->in[1].count;
        double dy = tri_own_get(&c->out_grad[0], i);
        tri_own_put(&c->in_grad[0], i, dy * tri_own_get(&c->in[1], column));
        tri_own_put(&c->in_grad[1], column,
                    tri_own_get(&c->in_grad[1], column) + dy * tri_own_get(&c->in[0], i));
    }
}

static const tri_own_op scale = {.name = "scale",
                                 .inputs = 2,
                                 .settings = 1,
                                 .shape = scale_shape,
                                 .compute = scale_compute,
                                 .gradient = scale_gradient};

static const tri_shape shapes[] = {{2, {3, 4}}, {1, {4}}};

static void test_check(void **state) {
    tri_op_worst worst;
    assert_int_equal(tri_op_register(&scale), TRI_OK);
    assert_int_equal(tri_op_register(&scale), TRI_OK); // as by a function that is called again
    tri_op_check_options options = {.settings = &(double){0.5}, .low = -2, .high = 3};
    assert_int_equal(tri_op_check("scale", shapes, options, &worst), TRI_OK);
    assert_true(worst.error >= 0 && worst.error < 1e-8);
    assert_int_equal(tri_op_check("scale", shapes, options, NULL), TRI_OK);
}

static void wrong_gradient(const tri_own_call *c) {
    scale_gradient(c);
    tri_own_put(&c->in_grad[1], 2, 7);
}

static void incomplete(const tri_own_call *c) {
    for (int64_t i = 0; i + 1 < c->in[0].count; i++) tri_own_put(&c->out[0], i, 1);
}

static void greedy(const tri_own_call *c) {
    scale_compute(c);
    tri_own_put(&c->in[0], 0, 3);
}

static void counting(const tri_own_call *c) {
    static int calls;
    scale_compute(c);
    tri_own_put(&c->out[0], 0, calls++);
}

static void check_finds(tri_own_op op, const char *name, const char *parts, tri_op_worst *worst) {
    op.name = name;
    assert_int_equal(tri_op_register(&op), TRI_OK);
    tri_op_check_options options = {.settings = &(double){0.5}};
    assert_int_equal(tri_op_check(name, shapes, options, worst), TRI_BAD_INPUT);
    message_check(tri_error_message(), parts);
}

static void test_what_a_check_finds(void **state) {
    tri_own_op op = scale;
    tri_op_worst worst;
    op.gradient = wrong_gradient;
    check_finds(op, "wrong", "wrong|element 2|input 1|7", &worst);
    assert_true(worst.input == 1 && worst.element == 2 && worst.gradient == 7);
    op = scale;
    op.compute = incomplete;
    check_finds(op, "incomplete", "element 11|output 0|not written", NULL);
    op.compute = greedy;
    check_finds(op, "greedy", "compute|inputs", NULL);
    op.compute = counting;
    check_finds(op, "counting", "compute|second time", NULL);
    tri_op_check_options options = {.settings = &(double){0.5}};
    tri_shape others[] = {{2, {3, 4}}, {1, {5}}};
    assert_int_equal(tri_op_check("scale", others, options, NULL), TRI_BAD_INPUT);
    message_check(tri_error_message(), "scale|[C]|[3, 4]|[5]");
    assert_int_equal(tri_op_check("nobody", shapes, options, NULL), TRI_BAD_INPUT);
    message_check(tri_error_message(), "nobody|tri_op_register");
}

static void test_in_a_graph(void **state) {
    subject s = begin();
    tri_value in[] = {trained(&s, "x", tri_shape_of(3, 4)), trained(&s, "scale", tri_shape_of(4))};
    tri_value all[1], y = tri_op_apply(s.graph, "scale", in, &(double){0.25}, all);
    assert_int_equal(all[0].id, y.id);
    check(&s, distance(&s, tri_mul(s.graph, y, in[0])));
}

static void test_refusals(void **state) {
    static const struct {
        tri_own_op op;
        const char *parts;
    } cases[] = {
        {{.name = "two words", .inputs = 1, .compute = scale_compute}, "name|two words"},
        {{.name = "", .inputs = 1, .compute = scale_compute}, "name"},
        {{.name = NULL, .inputs = 1, .compute = scale_compute}, "name"},
        {{.name = "softmax", .inputs = 1, .compute = scale_compute}, "softmax|library"},
        {{.name = "none", .inputs = 0, .compute = scale_compute}, "none|inputs|0"},
        {{.name = "many", .inputs = 5, .compute = scale_compute}, "many|4|5"},
        {{.name = "blank", .inputs = 1}, "blank|compute"},
        {{.name = "whole", .inputs = 1, .integers = 1, .compute = scale_compute}, "whole|integers"},
        {{.name = "scale", .inputs = 1, .compute = scale_compute}, "scale|registered"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(tri_op_register(&cases[i].op), TRI_BAD_INPUT);
        message_check(tri_error_message(), cases[i].parts);
    }
    const struct {
        const char *name;
        tri_dtype dtype;
        int64_t columns;
        const double *settings;
        const char *parts;
    } uses[] = {
        {"unknown", TRI_F32, 4, &(double){1}, "unknown|tri_op_register"},
        {"scale", TRI_F32, 4, NULL, "scale|1 settings"},
        {"scale", TRI_F32, 5, &(double){1}, "scale|[C]|[3, 4]|[5]"},
        {"scale", TRI_I64, 4, &(double){1}, "scale|input 1|I64"},
        {"scale", TRI_F32, 0, &(double){1}, "scale|[C]|[3, 4]|[0]"},
    };
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const char *message = "";
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value in[] = {tri_input(g, "x", TRI_F32, tri_shape_of(3, 4)),
                          tri_input(g, "scale", uses[i].dtype, tri_shape_of(uses[i].columns))};
        tri_op_apply(g, uses[i].name, in, uses[i].settings, NULL);
        assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
        message_check(message, uses[i].parts);
        op_graph_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_what_a_check_finds),
        cmocka_unit_test(test_in_a_graph),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
