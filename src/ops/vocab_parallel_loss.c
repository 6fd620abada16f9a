// Defines the ops for cross-entropy and accuracy where the tensor-parallel ranks divide the
// classes. Each rank has the scores of its slice of the classes. Between these ops all_reduce
// combines the ranks' results, which have for each row of scores: `max`, the largest score over all
// classes; and two `sums` over all classes: of exp(score - max), and of score - max of the label's
// class alone. The method is that of Shoeybi et al., "Megatron-LM", 2019, section 3.
#include "ops/rules.h"

static tri_status want_classes(const char *op, const tri_classes_attr *a,
                               const tri_op_signature *s) {
    int64_t here = s->in[0].dims[s->in[0].rank - 1];
    if (a->first >= 0 && a->first + here <= a->classes) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: %" PRId64 " scores from class %" PRId64 " on exceed %" PRId64 " classes",
                    op, here, a->first, a->classes);
}

// Checks that an input has one number for each row of the scores, in the type in which sums are
// kept.
static tri_status want_per_row(const char *op, const char *name, const tri_op_signature *s,
                               int input) {
    TRI_TRY(ops_want_shape(op, name, &s->in[input], ops_rows(s)));
    return ops_want_type(op, name, s->in_type[input], ops_accumulator_type(s->in_type[0]));
}

static tri_shape sums_shape(const tri_op_signature *s) {
    tri_shape shape = s->in[0];
    shape.dims[shape.rank - 1] = 2;
    return shape;
}

static tri_status row_max_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("row_max", "x", s->in_type[0]));
    TRI_TRY(ops_want_last_axis("row_max", s));
    s->out[0] = ops_rows(s);
    s->out_type[0] = ops_accumulator_type(s->in_type[0]);
    return TRI_OK;
}

static tri_status vocab_parallel_softmax_shape(const void *attr, tri_op_signature *s) {
    const char *op = "vocab_parallel_softmax";
    TRI_TRY(ops_want_float(op, "the scores", s->in_type[0]));
    TRI_TRY(ops_want_labels(op, &s->in[0], &s->in[1], s->in_type[1]));
    TRI_TRY(want_classes(op, attr, s));
    TRI_TRY(want_per_row(op, "max", s, 2));
    s->out[0] = sums_shape(s);
    s->out_type[0] = ops_accumulator_type(s->in_type[0]);
    return TRI_OK;
}

// Checks the inputs scores, labels, max and sums, which must fit each other.
static tri_status want_loss_inputs(const char *op, const void *attr, const tri_op_signature *s) {
    TRI_TRY(ops_want_float(op, "the scores", s->in_type[0]));
    TRI_TRY(ops_want_labels(op, &s->in[0], &s->in[1], s->in_type[1]));
    TRI_TRY(want_classes(op, attr, s));
    TRI_TRY(want_per_row(op, "max", s, 2));
    TRI_TRY(ops_want_shape(op, "sums", &s->in[3], sums_shape(s)));
    return ops_want_type(op, "sums", s->in_type[3], ops_accumulator_type(s->in_type[0]));
}

static tri_status vocab_parallel_cross_entropy_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(want_loss_inputs("vocab_parallel_cross_entropy", attr, s));
    ops_loss_output(s);
    return TRI_OK;
}

static tri_status vocab_parallel_cross_entropy_grad_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(want_loss_inputs("vocab_parallel_cross_entropy_grad", attr, s));
    TRI_TRY(ops_want_seed("vocab_parallel_cross_entropy_grad", s, 4));
    ops_like_first(s);
    return TRI_OK;
}

// Only the scores get a gradient; max and sums get none. They depend on the scores too, but the
// formula for the scores' gradient already contains this dependence.
static void vocab_parallel_cross_entropy_gradient(tri_graph *graph, const tri_node *node,
                                                  const tri_value *out_grads, const bool *wanted,
                                                  tri_value *in_grads) {
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    tri_value in[5] = {node->inputs[0], node->inputs[1], node->inputs[2], node->inputs[3],
                       out_grads[0]};
    in_grads[0] = tri_node_add(graph, &tri_op_vocab_parallel_cross_entropy_grad, in, 5, node->attr,
                               node->name);
}

static tri_status vocab_parallel_argmax_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("vocab_parallel_argmax", "x", s->in_type[0]));
    TRI_TRY(ops_want_last_axis("vocab_parallel_argmax", s));
    TRI_TRY(want_classes("vocab_parallel_argmax", attr, s));
    TRI_TRY(want_per_row("vocab_parallel_argmax", "max", s, 1));
    s->out[0] = s->in[1];
    s->out_type[0] = s->in_type[1];
    return TRI_OK;
}

static tri_status vocab_parallel_accuracy_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_wide("vocab_parallel_accuracy", "best", s->in_type[0]));
    TRI_TRY(ops_want_type("vocab_parallel_accuracy", "labels", s->in_type[1], TRI_I64));
    TRI_TRY(ops_want_shape("vocab_parallel_accuracy", "labels", &s->in[1], s->in[0]));
    ops_loss_output(s);
    return TRI_OK;
}

static tri_cost per_score(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 3);
}

static const tri_attr_field classes_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_classes_attr, first),
    OPS_FIELD(TRI_ATTR_INT, tri_classes_attr, classes),
    {0},
};

#define CLASSES_ROW                                                                                \
    .output_count = 1, .attr_bytes = sizeof(tri_classes_attr), .attr_fields = classes_fields,      \
    .cost = per_score

const tri_op tri_op_row_max = {
    .name = "row_max",
    .doc = "x [.., K] -> y [..]: the largest of the last axis",
    .input_count = 1,
    .output_count = 1,
    .precision = TRI_PRECISION_ANY,
    .shape = row_max_shape,
};

const tri_op tri_op_vocab_parallel_softmax = {
    CLASSES_ROW,
    .name = "vocab_parallel_softmax",
    .doc =
        "scores [.., K] of classes first to first + K - 1, labels [..], max [..] -> sums [.., 2]: "
        "the sum of exp(score - max), and score - max of the label if it is among them, else 0",
    .input_count = 3,
    .precision = TRI_PRECISION_ANY,
    .shape = vocab_parallel_softmax_shape,
};

static int64_t count_classes(const void *attr, const tri_op_signature *s) {
    return ((const tri_classes_attr *)attr)->classes;
}

static const tri_op_classes all_classes = {count_classes, "labels", "classes"};

const tri_op tri_op_vocab_parallel_cross_entropy = {
    CLASSES_ROW,
    .name = "vocab_parallel_cross_entropy",
    .doc =
        "scores of a slice of the classes, labels, max and sums over all of them -> F64 [2]: sum "
        "of log(sums[0]) - sums[1], number of labels; label -100 is left out of both",
    .input_count = 4,
    .flags = TRI_OP_LOSS,
    .labels = 2,
    .classes = &all_classes,
    .precision = TRI_PRECISION_ANY,
    .shape = vocab_parallel_cross_entropy_shape,
    .gradient = vocab_parallel_cross_entropy_gradient,
};

const tri_op tri_op_vocab_parallel_cross_entropy_grad = {
    CLASSES_ROW,
    .name = "vocab_parallel_cross_entropy_grad",
    .doc = "scores, labels, max, sums, seed -> dx: seed * (exp(score - max) / sums[0] - 1 at the "
           "label), 0 for label -100",
    .input_count = 5,
    .in_place = 1,
    .shape = vocab_parallel_cross_entropy_grad_shape,
};

const tri_op tri_op_vocab_parallel_argmax = {
    CLASSES_ROW,
    .name = "vocab_parallel_argmax",
    .doc =
        "scores of a slice of the classes, max over all of them -> y: minus the first class that "
        "has it, or minus the number of classes where none of the slice has; the largest y over "
        "all slices is minus the first class of all",
    .input_count = 2,
    .precision = TRI_PRECISION_ANY,
    .shape = vocab_parallel_argmax_shape,
};

const tri_op tri_op_vocab_parallel_accuracy = {
    CLASSES_ROW,
    .name = "vocab_parallel_accuracy",
    .doc =
        "y of vocab_parallel_argmax over all slices, labels -> F64 [2]: how many are the label's, "
        "number of labels; label -100 is left out of both",
    .input_count = 2,
    .precision = TRI_PRECISION_ANY,
    .shape = vocab_parallel_accuracy_shape,
};
