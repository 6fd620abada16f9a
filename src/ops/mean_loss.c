// Defines the op mean_loss, which makes a loss of the terms of its elements, that a formula has
// computed: its shape rule and gradient rule.
#include "ops/rules.h"

static tri_status mean_loss_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("mean_loss", "x", s->in_type[0]));
    ops_loss_output(s);
    return TRI_OK;
}

static void mean_loss_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                               const bool *wanted, tri_value *in_grads) {
    if (wanted[0] && tri_value_is(out_grads[0]))
        in_grads[0] = ops_spread_seed(graph, node, node->inputs[0], out_grads[0]);
}

static int64_t mean_loss_count(const tri_op_signature *s) { return tri_shape_count(&s->in[0]); }

static tri_cost mean_loss_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 1);
}

const tri_op tri_op_mean_loss = {
    .name = "mean_loss",
    .doc = "x -> F64 [2]: sum of x, number of elements",
    .input_count = 1,
    .output_count = 1,
    .flags = TRI_OP_LOSS,
    .count = mean_loss_count,
    .shape = mean_loss_shape,
    .gradient = mean_loss_gradient,
    .cost = mean_loss_cost,
};
