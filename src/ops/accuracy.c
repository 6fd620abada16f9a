// Defines the op accuracy, a metric: in how many rows of scores the label's score is the largest.
// This file has the op's shape rule; kernels, which compute it, are in src/device.
#include "ops/rules.h"

static tri_status accuracy_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("accuracy", "the scores", s->in_type[0]));
    TRI_TRY(ops_want_labels("accuracy", &s->in[0], &s->in[1], s->in_type[1]));
    ops_loss_output(s);
    return TRI_OK;
}

const tri_op tri_op_accuracy = {
    .name = "accuracy",
    .doc =
        "scores [.., K], labels [..] -> F64 [2]: samples whose first largest score is the label's, "
        "number of labels; label -100 is left out of both",
    .input_count = 2,
    .output_count = 1,
    .precision = TRI_PRECISION_ANY,
    .shape = accuracy_shape,
};
