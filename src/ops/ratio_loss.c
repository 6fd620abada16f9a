// Defines the op ratio_loss, which makes a loss of terms and of the numbers by whose sum it is
// divided, and two ops on labels that go with it: the weight of each label's class, and labels of
// which one more class is left out. This file has their shape rules and the gradient rule.
#include "ops/rules.h"

static tri_status ratio_loss_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_one_type("ratio_loss", s, 0, 2));
    ops_loss_output(s);
    return TRI_OK;
}

// Each term has the gradient `seed`; the counts are not trained.
static void ratio_loss_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                                const bool *wanted, tri_value *in_grads) {
    if (wanted[0] && tri_value_is(out_grads[0]))
        in_grads[0] = ops_spread_seed(graph, node, node->inputs[0], out_grads[0]);
}

const tri_op tri_op_ratio_loss = {
    .name = "ratio_loss",
    .doc = "terms, counts -> F64 [2]: sum of terms, sum of counts",
    .input_count = 2,
    .output_count = 1,
    .flags = TRI_OP_LOSS,
    .labels = 2,
    .sums_labels = true,
    .shape = ratio_loss_shape,
    .gradient = ratio_loss_gradient,
};

static tri_status label_weights_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_type("label_weights", "labels", s->in_type[0], TRI_I64));
    TRI_TRY(ops_want_float("label_weights", "weights", s->in_type[1]));
    TRI_TRY(ops_want_rank("label_weights", "weights [K]", &s->in[1], 1));
    s->out[0] = s->in[0];
    s->out_type[0] = s->in_type[1];
    return TRI_OK;
}

static int64_t label_weights_classes(const void *attr, const tri_op_signature *s) {
    return s->in[1].dims[0];
}

static const tri_op_classes label_weights_label_classes = {label_weights_classes, "labels",
                                                           "classes"};

const tri_op tri_op_label_weights = {
    .name = "label_weights",
    .doc = "labels I64 [..], weights [K] -> [..]: the weight of each label, 0 of a label -100",
    .input_count = 2,
    .output_count = 1,
    .keeps_labels = true,
    .label_weights = 2,
    .classes = &label_weights_label_classes,
    .shape = label_weights_shape,
};

static tri_status ignore_label_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_type("ignore_label", "labels", s->in_type[0], TRI_I64));
    ops_like_first(s);
    return TRI_OK;
}

static int64_t ignore_label_label(const void *attr, const tri_shape *shape, const int64_t *labels,
                                  int64_t index) {
    const tri_ignore_label_attr *a = attr;
    return labels[index] == a->label ? TRI_IGNORED_LABEL : labels[index];
}

static const tri_attr_field ignore_label_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_ignore_label_attr, label),
    {0},
};

const tri_op tri_op_ignore_label = {
    .name = "ignore_label",
    .doc = "labels I64 [..] -> labels: -100 in place of attr.label",
    .input_count = 1,
    .output_count = 1,
    .in_place = 1,
    .attr_bytes = sizeof(tri_ignore_label_attr),
    .attr_fields = ignore_label_fields,
    .shape = ignore_label_shape,
    .label_at = ignore_label_label,
};
