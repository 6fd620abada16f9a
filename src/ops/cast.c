// Defines the op that converts a tensor into another type: its shape rule and gradient rule. The
// pass for mixed precision (pass/precision.c), a rewrite of the graph, adds this op.
#include "ops/rules.h"

#include "tensor/half.h"

static tri_status cast_shape(const void *attr, tri_op_signature *s) {
    const tri_cast_attr *a = attr;
    TRI_TRY(ops_want_number("cast", "x", s->in_type[0]));
    TRI_TRY(ops_want_number("cast", "y", (tri_dtype)a->dtype));
    s->out[0] = s->in[0];
    s->out_type[0] = (tri_dtype)a->dtype;
    return TRI_OK;
}

static void cast_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                          const bool *wanted, tri_value *in_grads) {
    tri_dtype from = tri_value_get(graph, node->inputs[0])->dtype;
    if (!tri_dtype_is_float(from)) return; // an integer has no gradient
    if (wanted[0]) in_grads[0] = ops_gradient_as(graph, node, node->inputs[0], out_grads[0]);
}

static const tri_attr_field cast_fields[] = {
    OPS_FIELD(TRI_ATTR_TYPE, tri_cast_attr, dtype),
    {0},
};

const tri_op tri_op_cast = {
    .name = "cast",
    .doc =
        "x -> y: the same numbers in the type `dtype`; a floating one rounds to nearest, ties to "
        "even, an integer towards 0",
    .input_count = 1,
    .output_count = 1,
    .streams = 1,
    .axes = TRI_AXES_ANY,
    .attr_bytes = sizeof(tri_cast_attr),
    .attr_fields = cast_fields,
    .shape = cast_shape,
    .gradient = cast_gradient,
};
