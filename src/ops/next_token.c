// Defines the op that makes the labels of a language model: the label of each token is the token
// after it. This file has the op's shape rule, and how its labels are counted.
#include "ops/rules.h"

static tri_status next_token_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_rank("next_token", "ids [N, T]", &s->in[0], 2));
    TRI_TRY(ops_want_type("next_token", "ids", s->in_type[0], TRI_I64));
    ops_like_first(s);
    return TRI_OK;
}

static int64_t next_token_count(const tri_shape *shape, const int64_t *ids) {
    int64_t count = 0, tokens = shape->dims[1];
    for (int64_t n = 0; n < shape->dims[0]; n++)
        for (int64_t t = 1; t < tokens; t++) count += ids[n * tokens + t] != TRI_IGNORED_LABEL;
    return count;
}

const tri_op tri_op_next_token = {
    .name = "next_token",
    .doc = "ids I64 [N, T] -> labels: labels[n, t] = ids[n, t + 1], and -100 for the last",
    .input_count = 1,
    .output_count = 1,
    .in_place = 1,
    .shape = next_token_shape,
    .count_labels = next_token_count,
};
