// Defines the op GELU, exact or by tanh: its shape rule, gradient rule and cost.
#include "ops/rules.h"

static tri_status gelu_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("gelu", "x", s->in_type[0]));
    ops_like_first(s);
    return TRI_OK;
}

static tri_status gelu_grad_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_one_type("gelu_grad", s, 0, 2));
    TRI_TRY(ops_want_shape("gelu_grad", "dy", &s->in[1], s->in[0]));
    ops_like_first(s);
    return TRI_OK;
}

static void gelu_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                          const bool *wanted, tri_value *in_grads) {
    tri_value none = {0};
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    in_grads[0] = ops_node(graph, node, &tri_op_gelu_grad, node->attr, node->inputs[0],
                           out_grads[0], none, none);
}

static tri_cost gelu_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 10);
}

static const tri_attr_field gelu_fields[] = {
    OPS_FIELD(TRI_ATTR_BOOL, tri_gelu_attr, tanh),
    {0},
};

const tri_op tri_op_gelu = {
    .name = "gelu",
    .doc = "x -> y: x / 2 * (1 + erf(x / sqrt(2))), or with tanh: x / 2 * (1 + tanh(sqrt(2 / pi) * "
           "(x + 0.044715 x^3))); arXiv 1606.08415",
    .input_count = 1,
    .output_count = 1,
    .flags = TRI_OP_RECOMPUTABLE,
    .in_place = 1,
    .precision = TRI_PRECISION_FOLLOW,
    .streams = 1,
    .axes = TRI_AXES_ANY,
    .attr_bytes = sizeof(tri_gelu_attr),
    .attr_fields = gelu_fields,
    .shape = gelu_shape,
    .gradient = gelu_gradient,
    .cost = gelu_cost,
};

const tri_op tri_op_gelu_grad = {
    .name = "gelu_grad",
    .doc = "x, dy -> dx: dy * derivative of gelu at x",
    .input_count = 2,
    .output_count = 1,
    .in_place = 2,
    .attr_bytes = sizeof(tri_gelu_attr),
    .attr_fields = gelu_fields,
    .shape = gelu_grad_shape,
    .cost = gelu_cost,
};
