// Defines the op that gives the same elements another shape, as a view: its shape rule and gradient
// rule.
#include "ops/rules.h"

static tri_status reshape_shape(const void *attr, tri_op_signature *s) {
    const tri_reshape_attr *a = attr;
    char from[160], to[160];
    int64_t count = tri_shape_count(&a->shape);
    if (count < 0 || count != tri_shape_count(&s->in[0]))
        return TRI_FAIL(TRI_BAD_INPUT, "reshape: %s does not hold as many elements as %s",
                        tri_shape_text(&a->shape, to, sizeof to),
                        tri_shape_text(&s->in[0], from, sizeof from));
    s->out[0] = a->shape;
    s->out_type[0] = s->in_type[0];
    return TRI_OK;
}

static void reshape_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                             const bool *wanted, tri_value *in_grads) {
    tri_reshape_attr back = {.shape = tri_value_shape(graph, node->inputs[0])};
    tri_value none = {0};
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    in_grads[0] = ops_node(graph, node, &tri_op_reshape, &back, out_grads[0], none, none, none);
}

const tri_op tri_op_reshape = {
    .name = "reshape",
    .doc = "x -> y: the same elements in row-major order, in another shape",
    .input_count = 1,
    .output_count = 1,
    .flags = TRI_OP_VIEW,
    .precision = TRI_PRECISION_FOLLOW,
    .attr_bytes = sizeof(tri_reshape_attr),
    .shape = reshape_shape,
    .gradient = reshape_gradient,
};
