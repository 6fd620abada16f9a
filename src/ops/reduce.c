// Defines the op reduce: sums and extremes over any axes of a tensor, with its shape rule and
// gradient rule. The reduced axes keep the size 1, so that the result fits the input again.
#include "ops/rules.h"

static tri_status reduce_shape(const void *attr, tri_op_signature *s) {
    const tri_reduce_attr *a = attr;
    TRI_TRY(ops_want_float("reduce", "x", s->in_type[0]));
    if (a->kind < TRI_REDUCTION_SUM || a->kind > TRI_REDUCTION_MIN)
        return TRI_FAIL(TRI_BAD_INPUT, "reduce: there is no reduction %" PRId64, a->kind);
    if (a->axes < 0 || a->axes >> s->in[0].rank)
        return TRI_FAIL(TRI_BAD_INPUT, "reduce: x has %d axes", s->in[0].rank);
    ops_like_first(s);
    for (int i = 0; i < s->in[0].rank; i++) {
        if (!(a->axes >> i & 1)) continue;
        if (s->in[0].dims[i] == 0 && a->kind != TRI_REDUCTION_SUM)
            return TRI_FAIL(TRI_BAD_INPUT, "reduce: axis %d is empty, it has no extreme", i);
        s->out[0].dims[i] = 1;
    }
    return TRI_OK;
}

// Adds a node of map with this expression.
static tri_value add_map(tri_graph *graph, const tri_node *node, const char *expression,
                         tri_shape shape, tri_value a, tri_value b, tri_value c) {
    tri_map_attr attr = {.expands = true, .shape = shape};
    if (tri_formula_parse(expression, NULL, &attr.formula) != TRI_OK)
        tri_graph_fail(graph, "%s", tri_error_message());
    tri_value in[] = {a, b, c};
    return tri_node_add(graph, &tri_op_map, in, attr.formula.input_count, &attr, node->name);
}

static void reduce_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                            const bool *wanted, tri_value *in_grads) {
    const tri_reduce_attr *a = node->attr;
    tri_value x = node->inputs[0], y = node->outputs[0], none = {0};
    tri_shape shape = tri_value_shape(graph, x);
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    if (a->kind == TRI_REDUCTION_SUM) {
        in_grads[0] = add_map(graph, node, "dy", shape, out_grads[0], none, none);
        return;
    }
    // Equal extremes share the gradient, as in PyTorch's amax.
    tri_value equal = add_map(graph, node, "x, y -> x == y", shape, x, y, none);
    tri_reduce_attr sum = {.kind = TRI_REDUCTION_SUM, .axes = a->axes};
    tri_value count = ops_node(graph, node, &tri_op_reduce, &sum, equal, none, none, none);
    tri_value share = add_map(graph, node, "dy, count -> dy / count", tri_value_shape(graph, y),
                              out_grads[0], count, none);
    in_grads[0] = add_map(graph, node, "x, y, dy -> x == y ? dy : 0", shape, x, y, share);
}

static const tri_attr_field reduce_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_reduce_attr, kind),
    OPS_FIELD(TRI_ATTR_INT, tri_reduce_attr, axes),
    {0},
};

static tri_cost reduce_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 1);
}

static bool reduce_slice(int input, int dim, const tri_op_signature *full, void *attr,
                         tri_op_slices *slices) {
    return !(((const tri_reduce_attr *)attr)->axes >> dim & 1);
}

const tri_op tri_op_reduce = {
    .name = "reduce",
    .doc = "x -> y: the sum (kind 0), the largest (1) or the smallest (2) over the axes whose bits "
           "are set; these keep the size 1",
    .input_count = 1,
    .output_count = 1,
    .streams = 1,
    .axes = TRI_AXES_ANY,
    .slice = reduce_slice,
    .attr_bytes = sizeof(tri_reduce_attr),
    .attr_fields = reduce_fields,
    .shape = reduce_shape,
    .gradient = reduce_gradient,
    .cost = reduce_cost,
};
