// Defines the op that copies a tensor into another layout, that is, another order of its elements
// in memory. The layout pass (pass/layout.c), a rewrite of the graph, adds it where two kernels
// want different layouts of the same tensor.
#include "ops/rules.h"

static tri_status reorder_shape(const void *attr, tri_op_signature *s) {
    ops_like_first(s);
    return TRI_OK;
}

static void reorder_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                             const bool *wanted, tri_value *in_grads) {
    if (wanted[0]) in_grads[0] = out_grads[0];
}

static tri_cost reorder_cost(const void *attr, const tri_op_signature *s) { return (tri_cost){0}; }

const tri_op tri_op_reorder = {
    .name = "reorder",
    .doc = "x -> y: the same tensor in the layout of the output; padding becomes 0",
    .input_count = 1,
    .output_count = 1,
    .precision = TRI_PRECISION_FOLLOW,
    .shape = reorder_shape,
    .gradient = reorder_gradient,
    .cost = reorder_cost,
};
