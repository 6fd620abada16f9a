// Defines the op mean squared error, a loss: its shape rule, gradient rule and cost.
#include "ops/rules.h"

static tri_status mse_loss_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_target("mse_loss", s));
    ops_loss_output(s);
    return TRI_OK;
}

static tri_status mse_loss_grad_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_target("mse_loss_grad", s));
    TRI_TRY(ops_want_seed("mse_loss_grad", s, 2));
    ops_like_first(s);
    return TRI_OK;
}

// The gradient op computes the gradient of its first input. For the gradient of the target,
// prediction and target are exchanged, which does not change the loss.
static void mse_loss_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                              const bool *wanted, tri_value *in_grads) {
    tri_value none = {0};
    if (!tri_value_is(out_grads[0])) return;
    for (int i = 0; i < 2; i++)
        if (wanted[i])
            in_grads[i] = ops_node(graph, node, &tri_op_mse_loss_grad, NULL, node->inputs[i],
                                   node->inputs[1 - i], out_grads[0], none);
}

static int64_t mse_loss_count(const tri_op_signature *s) { return tri_shape_count(&s->in[0]); }

static tri_cost mse_loss_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 3);
}

const tri_op tri_op_mse_loss = {
    .name = "mse_loss",
    .doc = "prediction, target -> F64 [2]: sum of (prediction - target)^2, number of elements",
    .input_count = 2,
    .output_count = 1,
    .flags = TRI_OP_LOSS,
    .count = mse_loss_count,
    .shape = mse_loss_shape,
    .gradient = mse_loss_gradient,
    .cost = mse_loss_cost,
};

const tri_op tri_op_mse_loss_grad = {
    .name = "mse_loss_grad",
    .doc = "prediction, target, seed -> d prediction: 2 * seed * (prediction - target)",
    .input_count = 3,
    .output_count = 1,
    .shape = mse_loss_grad_shape,
    .cost = mse_loss_cost,
};
