// Defines the op log_softmax over the last axis: its shape rule, gradient rule and cost.
#include "ops/rules.h"

static tri_status log_softmax_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("log_softmax", "x", s->in_type[0]));
    TRI_TRY(ops_want_last_axis("log_softmax", s));
    ops_like_first(s);
    return TRI_OK;
}

static tri_status log_softmax_grad_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_one_type("log_softmax_grad", s, 0, 2));
    TRI_TRY(ops_want_last_axis("log_softmax_grad", s));
    TRI_TRY(ops_want_shape("log_softmax_grad", "dy", &s->in[1], s->in[0]));
    ops_like_first(s);
    return TRI_OK;
}

static void log_softmax_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                                 const bool *wanted, tri_value *in_grads) {
    tri_value none = {0};
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    in_grads[0] = ops_node(graph, node, &tri_op_log_softmax_grad, NULL, node->outputs[0],
                           out_grads[0], none, none);
}

static tri_cost log_softmax_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 5);
}

const tri_op tri_op_log_softmax = {
    .name = "log_softmax",
    .doc = "x [.., K] -> y: x - max - log(sum of exp(x - max)), over the last axis",
    .input_count = 1,
    .output_count = 1,
    .in_place = 1,
    .shape = log_softmax_shape,
    .gradient = log_softmax_gradient,
    .cost = log_softmax_cost,
};

const tri_op tri_op_log_softmax_grad = {
    .name = "log_softmax_grad",
    .doc = "y, dy -> dx: dy - exp(y) * (sum of dy over the last axis)",
    .input_count = 2,
    .output_count = 1,
    .in_place = 2,
    .shape = log_softmax_grad_shape,
    .cost = log_softmax_cost,
};
