#include "ops/rules.h"

static tri_status add_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_one_type("add", s, 0, 2));
    TRI_TRY(ops_want_shape("add", "b", &s->in[1], s->in[0]));
    ops_like_first(s);
    return TRI_OK;
}

static void add_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                         const bool *wanted, tri_value *in_grads) {
    for (int i = 0; i < 2; i++)
        if (wanted[i]) in_grads[i] = out_grads[0];
}

const tri_op tri_op_add = {
    .name = "add",
    .doc = "a, b -> a + b, of one shape",
    .input_count = 2,
    .output_count = 1,
    .in_place = 1,
    .shape = add_shape,
    .gradient = add_gradient,
};
