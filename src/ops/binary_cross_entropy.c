// Defines the op binary cross-entropy of logits, a loss: its shape rule, gradient rule and cost.
#include "ops/rules.h"

static tri_status binary_cross_entropy_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_target("binary_cross_entropy", s));
    ops_loss_output(s);
    return TRI_OK;
}

static tri_status binary_cross_entropy_grad_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_target("binary_cross_entropy_grad", s));
    TRI_TRY(ops_want_seed("binary_cross_entropy_grad", s, 2));
    ops_like_first(s);
    return TRI_OK;
}

static void binary_cross_entropy_gradient(tri_graph *graph, const tri_node *node,
                                          const tri_value *out_grads, const bool *wanted,
                                          tri_value *in_grads) {
    tri_value none = {0};
    if (!tri_value_is(out_grads[0])) return;
    if (wanted[1])
        tri_graph_fail(graph, "binary_cross_entropy: the target has no gradient; it must be data");
    if (wanted[0])
        in_grads[0] = ops_node(graph, node, &tri_op_binary_cross_entropy_grad, NULL,
                               node->inputs[0], node->inputs[1], out_grads[0], none);
}

static int64_t binary_cross_entropy_count(const tri_op_signature *s) {
    return tri_shape_count(&s->in[0]);
}

// Computes the cost. An exponential and a logarithm count as about ten operations each.
static tri_cost binary_cross_entropy_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 24);
}

static tri_cost binary_cross_entropy_grad_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 12);
}

const tri_op tri_op_binary_cross_entropy = {
    .name = "binary_cross_entropy",
    .doc = "logits, target -> F64 [2]: sum of max(x, 0) - x * target + log(1 + exp(-|x|)), number "
           "of elements",
    .input_count = 2,
    .output_count = 1,
    .flags = TRI_OP_LOSS,
    .count = binary_cross_entropy_count,
    .shape = binary_cross_entropy_shape,
    .gradient = binary_cross_entropy_gradient,
    .cost = binary_cross_entropy_cost,
};

const tri_op tri_op_binary_cross_entropy_grad = {
    .name = "binary_cross_entropy_grad",
    .doc = "logits, target, seed -> d logits: seed * (1 / (1 + exp(-x)) - target)",
    .input_count = 3,
    .output_count = 1,
    .shape = binary_cross_entropy_grad_shape,
    .cost = binary_cross_entropy_grad_cost,
};
