// Defines the ops of soft labels, which give each class a number (mostly its probability): the
// cross-entropy with them, a loss; the class that has the largest; and soft labels that are made of
// labels, with which the loss smooths labels. This file has their shape rules and the gradient
// rule.
#include "ops/rules.h"

static tri_status want_soft_labels(const char *op, const tri_shape *shape) {
    if (shape->rank >= 2 && shape->dims[shape->rank - 1] > 0) return TRI_OK;
    char got[160];
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: soft labels [.., K] must have 2 axes or more, and a class, but are %s", op,
                    tri_shape_text(shape, got, sizeof got));
}

static tri_status want_smoothing(const char *op, const void *attr) {
    const tri_soft_labels_attr *a = attr;
    if (a->smoothing >= 0 && a->smoothing <= 1) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: the label smoothing must be from 0 to 1, but is %g", op,
                    a->smoothing);
}

static tri_status soft_nll_loss_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(want_smoothing("soft_nll_loss", attr));
    TRI_TRY(ops_want_float("soft_nll_loss", "the scores", s->in_type[0]));
    TRI_TRY(ops_want_type("soft_nll_loss", "soft labels", s->in_type[1], s->in_type[0]));
    TRI_TRY(ops_want_shape("soft_nll_loss", "soft labels", &s->in[1], s->in[0]));
    TRI_TRY(want_soft_labels("soft_nll_loss", &s->in[1]));
    ops_loss_output(s);
    return TRI_OK;
}

static tri_status soft_nll_loss_grad_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(want_smoothing("soft_nll_loss_grad", attr));
    TRI_TRY(ops_want_float("soft_nll_loss_grad", "soft labels", s->in_type[0]));
    TRI_TRY(want_soft_labels("soft_nll_loss_grad", &s->in[0]));
    TRI_TRY(ops_want_seed("soft_nll_loss_grad", s, 1));
    ops_like_first(s);
    return TRI_OK;
}

static void soft_nll_loss_gradient(tri_graph *graph, const tri_node *node,
                                   const tri_value *out_grads, const bool *wanted,
                                   tri_value *in_grads) {
    tri_value none = {0};
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    tri_value labels = ops_recompute(graph, node, node->inputs[1]);
    in_grads[0] = ops_node(graph, node, &tri_op_soft_nll_loss_grad, node->attr, labels,
                           out_grads[0], none, none);
}

static tri_status one_hot_shape(const void *attr, tri_op_signature *s) {
    const tri_one_hot_attr *a = attr;
    TRI_TRY(ops_want_type("one_hot", "labels", s->in_type[0], TRI_I64));
    TRI_TRY(ops_want_float("one_hot", "soft labels", (tri_dtype)a->dtype));
    if (a->classes < 1 || s->in[0].rank == TRI_MAX_RANK)
        return TRI_FAIL(TRI_BAD_INPUT, "one_hot: labels of %" PRId64 " classes, with %d axes",
                        a->classes, s->in[0].rank);
    s->out[0] = s->in[0];
    s->out[0].dims[s->out[0].rank++] = a->classes;
    s->out_type[0] = (tri_dtype)a->dtype;
    return TRI_OK;
}

static int64_t one_hot_classes(const void *attr, const tri_op_signature *s) {
    return ((const tri_one_hot_attr *)attr)->classes;
}

static const tri_op_classes one_hot_label_classes = {one_hot_classes, "labels", "classes"};

static tri_status top_class_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("top_class", "soft labels", s->in_type[0]));
    TRI_TRY(want_soft_labels("top_class", &s->in[0]));
    s->out[0] = ops_rows(s);
    s->out_type[0] = TRI_I64;
    return TRI_OK;
}

static const tri_attr_field soft_labels_fields[] = {
    OPS_FIELD(TRI_ATTR_FLOAT, tri_soft_labels_attr, smoothing),
    {0},
};

const tri_op tri_op_soft_nll_loss = {
    .name = "soft_nll_loss",
    .doc = "log-probabilities, soft labels t [.., K] -> F64 [2]: sum of -((1 - smoothing) * t + "
           "smoothing / K) * log-probability, number of rows; a row whose t are all 0 is left out "
           "of both",
    .input_count = 2,
    .output_count = 1,
    .flags = TRI_OP_LOSS,
    .labels = 2,
    .attr_bytes = sizeof(tri_soft_labels_attr),
    .attr_fields = soft_labels_fields,
    .shape = soft_nll_loss_shape,
    .gradient = soft_nll_loss_gradient,
};

const tri_op tri_op_soft_nll_loss_grad = {
    .name = "soft_nll_loss_grad",
    .doc = "soft labels t, seed -> dx: -seed * ((1 - smoothing) * t + smoothing / K), 0 in a row "
           "whose t are all 0",
    .input_count = 2,
    .output_count = 1,
    .attr_bytes = sizeof(tri_soft_labels_attr),
    .attr_fields = soft_labels_fields,
    .shape = soft_nll_loss_grad_shape,
};

static const tri_attr_field one_hot_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_one_hot_attr, classes),
    OPS_FIELD(TRI_ATTR_TYPE, tri_one_hot_attr, dtype),
    {0},
};

const tri_op tri_op_one_hot = {
    .name = "one_hot",
    .doc =
        "labels I64 [..] -> soft labels [.., K]: 1 for the label's class, 0 for others and in the "
        "row of a label -100",
    .input_count = 1,
    .output_count = 1,
    .flags = TRI_OP_RECOMPUTABLE,
    .keeps_labels = true,
    .classes = &one_hot_label_classes,
    .attr_bytes = sizeof(tri_one_hot_attr),
    .attr_fields = one_hot_fields,
    .shape = one_hot_shape,
};

const tri_op tri_op_top_class = {
    .name = "top_class",
    .doc = "soft labels [.., K] -> labels I64 [..]: the first class with the largest number, -100 "
           "for a row of zeros",
    .input_count = 1,
    .output_count = 1,
    .shape = top_class_shape,
};
