// Defines the op reduce: sums, products, extremes and others over any axes of a tensor, with its
// shape rule and gradient rule. The reduced axes keep the size 1, so that the result fits the input
// again.
#include "ops/rules.h"

static tri_status reduce_shape(const void *attr, tri_op_signature *s) {
    const tri_reduce_attr *a = attr;
    TRI_TRY(ops_want_number("reduce", "x", s->in_type[0]));
    if (a->kind < TRI_REDUCTION_SUM || a->kind > TRI_REDUCTION_LOGSUMEXP)
        return TRI_FAIL(TRI_BAD_INPUT, "reduce: there is no reduction %" PRId64, a->kind);
    if (a->kind > TRI_REDUCTION_PROD) TRI_TRY(ops_want_float("reduce", "x", s->in_type[0]));
    if (a->axes < 0 || a->axes >> s->in[0].rank)
        return TRI_FAIL(TRI_BAD_INPUT, "reduce: x has %d axes", s->in[0].rank);
    ops_like_first(s);
    if (a->kind == TRI_REDUCTION_SUM || a->kind == TRI_REDUCTION_PROD)
        s->out_type[0] = ops_sum_type(s->in_type[0]);
    for (int i = 0; i < s->in[0].rank; i++)
        if (a->axes >> i & 1) s->out[0].dims[i] = 1;
    return TRI_OK;
}

// Of a product: the product of all other factors. Of those that are 0, one alone has a gradient.
static tri_value product_gradient(tri_graph *graph, const tri_node *node, tri_value dy) {
    tri_value x = node->inputs[0], none = {0};
    tri_shape shape = tri_value_shape(graph, x);
    tri_reduce_attr attr = *(const tri_reduce_attr *)node->attr;
    tri_value others = ops_map(graph, node, "x == 0 ? 1 : x", shape, x, none, none);
    others = ops_node(graph, node, &tri_op_reduce, &attr, others, none, none, none);
    tri_value zeros = ops_map(graph, node, "x == 0", shape, x, none, none);
    attr.kind = TRI_REDUCTION_SUM;
    zeros = ops_node(graph, node, &tri_op_reduce, &attr, zeros, none, none, none);
    tri_shape small = tri_value_shape(graph, zeros);
    tri_value whole = ops_map(graph, node, "others, zeros, dy -> zeros == 0 ? others * dy : 0",
                              small, others, zeros, dy);
    tri_value alone = ops_map(graph, node, "others, zeros, dy -> zeros == 1 ? others * dy : 0",
                              small, others, zeros, dy);
    return ops_map(graph, node, "x, whole, alone -> x == 0 ? alone : whole / x", shape, x, whole,
                   alone);
}

// Of the sum of squared distances from the mean: twice the distance. That the mean moves too adds
// nothing, because the distances add up to 0.
static tri_value squares_gradient(tri_graph *graph, const tri_node *node, tri_value dy) {
    tri_value x = node->inputs[0], none = {0};
    tri_reduce_attr sum = {TRI_REDUCTION_SUM, ((const tri_reduce_attr *)node->attr)->axes};
    tri_value total = ops_node(graph, node, &tri_op_reduce, &sum, x, none, none, none);
    tri_shape whole = tri_value_shape(graph, x), small = tri_value_shape(graph, total);
    int64_t results = tri_shape_count(&small);
    double terms = (double)tri_shape_count(&whole) / (double)(results ? results : 1);
    const char *formula = tri_name(graph, "x, sum, dy -> 2 * dy * (x - sum / %.17g)", terms);
    return ops_map(graph, node, formula, whole, x, total, dy);
}

static void reduce_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                            const bool *wanted, tri_value *in_grads) {
    const tri_reduce_attr *a = node->attr;
    tri_value x = node->inputs[0], y = node->outputs[0], none = {0};
    tri_shape shape = tri_value_shape(graph, x);
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    if (a->kind == TRI_REDUCTION_SUM) {
        in_grads[0] = ops_map(graph, node, "dy", shape, out_grads[0], none, none);
        return;
    }
    if (a->kind == TRI_REDUCTION_PROD) {
        in_grads[0] = product_gradient(graph, node, out_grads[0]);
        return;
    }
    if (a->kind == TRI_REDUCTION_SQUARES) {
        in_grads[0] = squares_gradient(graph, node, out_grads[0]);
        return;
    }
    if (a->kind == TRI_REDUCTION_LOGSUMEXP) {
        in_grads[0] =
            ops_map(graph, node, "x, y, dy -> exp(x - y) * dy", shape, x, y, out_grads[0]);
        return;
    }
    // Equal extremes share the gradient, as in PyTorch's amax.
    tri_value equal = ops_map(graph, node, "x, y -> x == y", shape, x, y, none);
    tri_reduce_attr sum = {.kind = TRI_REDUCTION_SUM, .axes = a->axes};
    tri_value count = ops_node(graph, node, &tri_op_reduce, &sum, equal, none, none, none);
    tri_value share = ops_map(graph, node, "dy, count -> dy / count", tri_value_shape(graph, y),
                              out_grads[0], count, none);
    in_grads[0] = ops_map(graph, node, "x, y, dy -> x == y ? dy : 0", shape, x, y, share);
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
    .doc =
        "x -> y: the sum (kind 0), the largest (1), the smallest (2), the product (3), the sum of "
        "the squared distances from the mean (4) or the logarithm of the sum of exp(x) (5) over "
        "the axes whose bits are set; these keep the size 1; sums and products of integers are I64",
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
