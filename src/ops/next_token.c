// Defines the op that makes the labels of a language model: the label of each token is the token
// after it. This file has the op's shape rule, and the rule by which the host counts its labels.
#include "ops/rules.h"

static tri_status next_token_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_rank("next_token", "ids [N, T]", &s->in[0], 2));
    TRI_TRY(ops_want_type("next_token", "ids", s->in_type[0], TRI_I64));
    ops_like_first(s);
    return TRI_OK;
}

static int64_t next_token_label(const void *attr, const tri_shape *shape, const int64_t *ids,
                                int64_t index) {
    return (index + 1) % shape->dims[1] ? ids[index + 1] : TRI_IGNORED_LABEL;
}

const tri_op tri_op_next_token = {
    .name = "next_token",
    .doc = "ids I64 [N, T] -> labels: labels[n, t] = ids[n, t + 1], and -100 for the last",
    .input_count = 1,
    .output_count = 1,
    .in_place = 1,
    .shape = next_token_shape,
    .label_at = next_token_label,
};
