// Defines the ops sigmoid and hyperbolic tangent, and the ops of their gradients: their shape
// rules, gradient rules and costs. The gradients are computed from the output y, for example dx =
// dy · y · (1 − y), so that x need not be kept.
#include "ops/rules.h"

static tri_status sigmoid_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("sigmoid", "x", s->in_type[0]));
    ops_like_first(s);
    return TRI_OK;
}

static tri_status tanh_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("tanh", "x", s->in_type[0]));
    ops_like_first(s);
    return TRI_OK;
}

static tri_status grad_shape(const char *op, tri_op_signature *s) {
    TRI_TRY(ops_want_one_type(op, s, 0, 2));
    TRI_TRY(ops_want_shape(op, "dy", &s->in[1], s->in[0]));
    ops_like_first(s);
    return TRI_OK;
}

static tri_status sigmoid_grad_shape(const void *attr, tri_op_signature *s) {
    return grad_shape("sigmoid_grad", s);
}

static tri_status tanh_grad_shape(const void *attr, tri_op_signature *s) {
    return grad_shape("tanh_grad", s);
}

static void add_gradient(tri_graph *graph, const tri_node *node, const tri_op *op,
                         const tri_value *out_grads, const bool *wanted, tri_value *in_grads) {
    tri_value none = {0};
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    in_grads[0] = ops_node(graph, node, op, NULL, node->outputs[0], out_grads[0], none, none);
}

static void sigmoid_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                             const bool *wanted, tri_value *in_grads) {
    add_gradient(graph, node, &tri_op_sigmoid_grad, out_grads, wanted, in_grads);
}

static void tanh_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                          const bool *wanted, tri_value *in_grads) {
    add_gradient(graph, node, &tri_op_tanh_grad, out_grads, wanted, in_grads);
}

// Computes the cost. An exponential counts as about ten operations.
static tri_cost forward_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 10);
}

static tri_cost grad_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 3);
}

const tri_op tri_op_sigmoid = {
    .name = "sigmoid",
    .doc = "x -> y: 1 / (1 + exp(-x))",
    .input_count = 1,
    .output_count = 1,
    .in_place = 1,
    .precision = TRI_PRECISION_FOLLOW,
    .streams = 1,
    .axes = TRI_AXES_ANY,
    .shape = sigmoid_shape,
    .gradient = sigmoid_gradient,
    .cost = forward_cost,
};

const tri_op tri_op_sigmoid_grad = {
    .name = "sigmoid_grad",
    .doc = "y, dy -> dx: dy * y * (1 - y); y is the output of sigmoid",
    .input_count = 2,
    .output_count = 1,
    .in_place = 2,
    .shape = sigmoid_grad_shape,
    .cost = grad_cost,
};

const tri_op tri_op_tanh = {
    .name = "tanh",
    .doc = "x -> y: the hyperbolic tangent of x",
    .input_count = 1,
    .output_count = 1,
    .in_place = 1,
    .precision = TRI_PRECISION_FOLLOW,
    .streams = 1,
    .axes = TRI_AXES_ANY,
    .shape = tanh_shape,
    .gradient = tanh_gradient,
    .cost = forward_cost,
};

const tri_op tri_op_tanh_grad = {
    .name = "tanh_grad",
    .doc = "y, dy -> dx: dy * (1 - y^2); y is the output of tanh",
    .input_count = 2,
    .output_count = 1,
    .in_place = 2,
    .shape = tanh_grad_shape,
    .cost = grad_cost,
};
