#include "ops/rules.h"

static tri_status next_token_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_rank("next_token", "ids [N, T]", &s->in[0], 2));
    TRI_TRY(ops_want_type("next_token", "ids", s->in_type[0], TRI_I64));
    ops_like_first(s);
    return TRI_OK;
}

const tri_op tri_op_next_token = {
    .name = "next_token",
    .doc = "ids I64 [N, T] -> labels: labels[n, t] = ids[n, t + 1], and -100 for the last",
    .input_count = 1,
    .output_count = 1,
    .in_place = 1,
    .shape = next_token_shape,
};
