// Defines the op that adds a bias to the last axis: its shape rule, gradient rule and cost. Usually
// the op linear adds the bias itself. Tensor parallelism needs this op to add the bias after a sum
// over ranks.
#include "ops/rules.h"

static tri_status add_bias_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_one_type("add_bias", s, 0, 2));
    TRI_TRY(ops_want_last_axis("add_bias", s));
    TRI_TRY(ops_want_shape("add_bias", "bias", &s->in[1], ops_last_axis(s)));
    ops_like_first(s);
    return TRI_OK;
}

static tri_status add_bias_grad_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("add_bias_grad", "dy", s->in_type[0]));
    TRI_TRY(ops_want_last_axis("add_bias_grad", s));
    s->out[0] = ops_last_axis(s);
    s->out_type[0] = ops_accumulator_type(s->in_type[0]);
    return TRI_OK;
}

static void add_bias_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                              const bool *wanted, tri_value *in_grads) {
    tri_value none = {0};
    if (!tri_value_is(out_grads[0])) return;
    in_grads[0] = out_grads[0];
    if (wanted[1])
        in_grads[1] =
            ops_node(graph, node, &tri_op_add_bias_grad, NULL, out_grads[0], none, none, none);
}

static tri_cost add_bias_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 1);
}

static bool add_bias_slice(int input, int dim, const tri_op_signature *full, void *attr,
                           tri_op_slices *slices) {
    slices->in[1] = dim == full->in[0].rank - 1 ? 0 : -1;
    return true;
}

const tri_op tri_op_add_bias = {
    .name = "add_bias",
    .doc = "x [.., F], bias [F] -> y: x + bias, in every row",
    .input_count = 2,
    .output_count = 1,
    .in_place = 1,
    .precision = TRI_PRECISION_BIAS,
    .streams = 1,
    .axes = TRI_AXES_ANY,
    .slice = add_bias_slice,
    .shape = add_bias_shape,
    .gradient = add_bias_gradient,
    .cost = add_bias_cost,
};

const tri_op tri_op_add_bias_grad = {
    .name = "add_bias_grad",
    .doc = "dy [.., F] -> dbias [F]: the sum of all rows",
    .input_count = 1,
    .output_count = 1,
    .shape = add_bias_grad_shape,
    .cost = add_bias_cost,
};
