// Defines the op relative_l2_loss, a loss: the sum over samples of norm(prediction - target) /
// norm(target). Also defines the op for its gradient. Here are their shape rules, gradient rule and
// cost.
#include "ops/rules.h"

static tri_status samples(const char *op, const tri_op_signature *s) {
    if (s->in[0].rank < 1)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: prediction must have samples as its first axis", op);
    return ops_want_target(op, s);
}

static tri_status relative_l2_loss_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(samples("relative_l2_loss", s));
    ops_loss_output(s);
    return TRI_OK;
}

static tri_status relative_l2_loss_grad_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(samples("relative_l2_loss_grad", s));
    TRI_TRY(ops_want_seed("relative_l2_loss_grad", s, 2));
    ops_like_first(s);
    return TRI_OK;
}

static void relative_l2_loss_gradient(tri_graph *graph, const tri_node *node,
                                      const tri_value *out_grads, const bool *wanted,
                                      tri_value *in_grads) {
    tri_value none = {0};
    if (!tri_value_is(out_grads[0])) return;
    if (wanted[1])
        tri_graph_fail(graph, "relative_l2_loss: the target has no gradient; it must be data");
    if (wanted[0])
        in_grads[0] = ops_node(graph, node, &tri_op_relative_l2_loss_grad, NULL, node->inputs[0],
                               node->inputs[1], out_grads[0], none);
}

static int64_t relative_l2_loss_count(const tri_op_signature *s) { return s->in[0].dims[0]; }

static tri_cost relative_l2_loss_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 5);
}

const tri_op tri_op_relative_l2_loss = {
    .name = "relative_l2_loss",
    .doc =
        "prediction [N, ...], target -> F64 [2]: sum over samples of norm(prediction - target) / "
        "norm(target), number of samples",
    .input_count = 2,
    .output_count = 1,
    .flags = TRI_OP_LOSS,
    .count = relative_l2_loss_count,
    .shape = relative_l2_loss_shape,
    .gradient = relative_l2_loss_gradient,
    .cost = relative_l2_loss_cost,
};

const tri_op tri_op_relative_l2_loss_grad = {
    .name = "relative_l2_loss_grad",
    .doc = "prediction, target, seed -> d prediction: seed * (prediction - target) / "
           "(norm(prediction - target) * norm(target)) per sample, 0 where they are equal",
    .input_count = 3,
    .output_count = 1,
    .shape = relative_l2_loss_grad_shape,
    .cost = relative_l2_loss_cost,
};
