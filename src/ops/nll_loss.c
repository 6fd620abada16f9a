// Defines the op negative log-likelihood of labels, a loss: its shape rule and gradient rule.
#include "ops/rules.h"

static tri_status nll_loss_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("nll_loss", "the scores", s->in_type[0]));
    TRI_TRY(ops_want_labels("nll_loss", &s->in[0], &s->in[1], s->in_type[1]));
    ops_loss_output(s);
    return TRI_OK;
}

static tri_status nll_loss_grad_shape(const void *attr, tri_op_signature *s) {
    const tri_nll_loss_grad_attr *a = attr;
    TRI_TRY(ops_want_labels("nll_loss_grad", &a->shape, &s->in[0], s->in_type[0]));
    TRI_TRY(ops_want_seed("nll_loss_grad", s, 1));
    TRI_TRY(ops_want_float("nll_loss_grad", "dx", (tri_dtype)a->dtype));
    s->out[0] = a->shape;
    s->out_type[0] = (tri_dtype)a->dtype;
    return TRI_OK;
}

static void nll_loss_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                              const bool *wanted, tri_value *in_grads) {
    const tri_value_info *scores = tri_value_get(graph, node->inputs[0]);
    tri_nll_loss_grad_attr grad = {.shape = scores->shape, .dtype = scores->dtype};
    tri_value none = {0};
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    in_grads[0] = ops_node(graph, node, &tri_op_nll_loss_grad, &grad, node->inputs[1], out_grads[0],
                           none, none);
}

static const tri_attr_field nll_loss_grad_fields[] = {
    OPS_FIELD(TRI_ATTR_TYPE, tri_nll_loss_grad_attr, dtype),
    {0},
};

const tri_op tri_op_nll_loss = {
    .name = "nll_loss",
    .doc =
        "log-probabilities [.., K], labels [..] -> F64 [2]: sum of -log-probability of the label, "
        "number of labels; label -100 is left out of both",
    .input_count = 2,
    .output_count = 1,
    .flags = TRI_OP_LOSS,
    .labels = 2,
    .classes = &ops_label_classes,
    .shape = nll_loss_shape,
    .gradient = nll_loss_gradient,
};

const tri_op tri_op_nll_loss_grad = {
    .name = "nll_loss_grad",
    .doc = "labels, seed -> dx [.., K]: -seed at each label, else 0",
    .input_count = 2,
    .output_count = 1,
    .attr_bytes = sizeof(tri_nll_loss_grad_attr),
    .attr_fields = nll_loss_grad_fields,
    .shape = nll_loss_grad_shape,
};
