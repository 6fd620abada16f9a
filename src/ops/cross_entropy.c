// Defines the op cross-entropy of scores and labels, a loss: its shape rule, gradient rule and
// cost.
#include "ops/rules.h"

static tri_status cross_entropy_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("cross_entropy", "the scores", s->in_type[0]));
    TRI_TRY(ops_want_labels("cross_entropy", &s->in[0], &s->in[1], s->in_type[1]));
    ops_loss_output(s);
    return TRI_OK;
}

static tri_status cross_entropy_grad_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("cross_entropy_grad", "the scores", s->in_type[0]));
    TRI_TRY(ops_want_labels("cross_entropy_grad", &s->in[0], &s->in[1], s->in_type[1]));
    TRI_TRY(ops_want_seed("cross_entropy_grad", s, 2));
    ops_like_first(s);
    return TRI_OK;
}

static void cross_entropy_gradient(tri_graph *graph, const tri_node *node,
                                   const tri_value *out_grads, const bool *wanted,
                                   tri_value *in_grads) {
    tri_value none = {0};
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    in_grads[0] = ops_node(graph, node, &tri_op_cross_entropy_grad, NULL, node->inputs[0],
                           node->inputs[1], out_grads[0], none);
}

static tri_cost cross_entropy_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 5);
}

const tri_op tri_op_cross_entropy = {
    .name = "cross_entropy",
    .doc =
        "logits [.., K], labels [..] -> F64 [2]: sum of -log_softmax(logits) at the label, number "
        "of labels; label -100 is left out of both",
    .input_count = 2,
    .output_count = 1,
    .flags = TRI_OP_LOSS,
    .labels = 2,
    .classes = &ops_label_classes,
    .precision = TRI_PRECISION_ANY,
    .shape = cross_entropy_shape,
    .gradient = cross_entropy_gradient,
    .cost = cross_entropy_cost,
};

const tri_op tri_op_cross_entropy_grad = {
    .name = "cross_entropy_grad",
    .doc =
        "logits, labels, seed -> dx: seed * (softmax(logits) - 1 at the label), 0 for label -100",
    .input_count = 3,
    .output_count = 1,
    // With a large vocabulary the scores are the largest tensor, so dx overwrites them.
    .in_place = 1,
    .shape = cross_entropy_grad_shape,
    .cost = cross_entropy_cost,
};
