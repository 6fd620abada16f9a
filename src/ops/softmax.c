// Defines the ops softmax and log_softmax over any axis: their shape rules, gradient rules and
// costs.
#include "ops/rules.h"

static tri_status axis_rule(const char *op, const void *attr, tri_op_signature *s) {
    int64_t behind = ((const tri_softmax_attr *)attr)->behind;
    const tri_shape *x = &s->in[0];
    char got[160];
    if (behind < 0 || behind >= x->rank)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: x %s has no axis with %" PRId64 " behind it to sum over", op,
                        tri_shape_text(x, got, sizeof got), behind);
    ops_like_first(s);
    return TRI_OK;
}

// Checks what only softmax over the last axis has.
static tri_status last_rule(const char *op, const void *attr, const tri_op_signature *s) {
    const tri_softmax_attr *a = attr;
    const tri_shape *x = &s->in[0];
    char got[160];
    if ((a->causal || a->empty) && a->behind != 0)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: causal and empty rows need the last axis", op);
    if (a->causal && (x->rank < 2 || x->dims[x->rank - 1] < x->dims[x->rank - 2]))
        return TRI_FAIL(TRI_BAD_INPUT, "%s: causal rows need at least as many columns, but x is %s",
                        op, tri_shape_text(x, got, sizeof got));
    return TRI_OK;
}

static tri_status grad_rule(const char *op, const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_one_type(op, s, 0, 2));
    TRI_TRY(axis_rule(op, attr, s));
    return ops_want_shape(op, "dy", &s->in[1], s->in[0]);
}

static tri_status softmax_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("softmax", "x", s->in_type[0]));
    TRI_TRY(axis_rule("softmax", attr, s));
    return last_rule("softmax", attr, s);
}

static tri_status log_softmax_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("log_softmax", "x", s->in_type[0]));
    return axis_rule("log_softmax", attr, s);
}

static tri_status softmax_grad_shape(const void *attr, tri_op_signature *s) {
    return grad_rule("softmax_grad", attr, s);
}

static tri_status log_softmax_grad_shape(const void *attr, tri_op_signature *s) {
    return grad_rule("log_softmax_grad", attr, s);
}

static void softmax_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                             const bool *wanted, tri_value *in_grads) {
    const tri_op *op =
        node->op == &tri_op_softmax ? &tri_op_softmax_grad : &tri_op_log_softmax_grad;
    tri_value none = {0};
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    in_grads[0] = ops_node(graph, node, op, node->attr, node->outputs[0], out_grads[0], none, none);
}

static tri_cost forward_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 12); // of which the exponential counts 10
}

static tri_cost softmax_grad_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 4);
}

static const tri_attr_field softmax_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_softmax_attr, behind),
    {0},
};

static const tri_attr_field softmax_row_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_softmax_attr, behind),
    OPS_FIELD(TRI_ATTR_BOOL, tri_softmax_attr, causal),
    OPS_FIELD(TRI_ATTR_BOOL, tri_softmax_attr, empty),
    {0},
};

// Ranks share the rows, not a row. Which columns a causal row has depends on its number.
static bool softmax_slice(int input, int dim, const tri_op_signature *full, void *attr,
                          tri_op_slices *slices) {
    const tri_softmax_attr *a = attr;
    int axis = full->in[0].rank - 1 - (int)a->behind;
    return dim != axis && !(a->causal && dim == axis - 1);
}

const tri_op tri_op_softmax = {
    .name = "softmax",
    .doc = "x -> y: exp(x - max) / (sum of exp(x - max)), over the axis that has `behind` axes "
           "behind it; causal: row t of [.., T, S] has only elements 0 to t + S - T; empty: rows "
           "of -infinity become 0",
    .input_count = 1,
    .output_count = 1,
    .in_place = 1,
    .streams = 1,
    .axes = TRI_AXES_ANY,
    .slice = softmax_slice,
    .attr_bytes = sizeof(tri_softmax_attr),
    .attr_fields = softmax_row_fields,
    .shape = softmax_shape,
    .gradient = softmax_gradient,
    .cost = forward_cost,
};

const tri_op tri_op_softmax_grad = {
    .name = "softmax_grad",
    .doc = "y, dy -> dx: y * (dy - sum of y * dy over the axis)",
    .input_count = 2,
    .output_count = 1,
    .in_place = 2,
    .attr_bytes = sizeof(tri_softmax_attr),
    .attr_fields = softmax_fields,
    .shape = softmax_grad_shape,
    .cost = softmax_grad_cost,
};

const tri_op tri_op_log_softmax = {
    .name = "log_softmax",
    .doc = "x -> y: x - max - log(sum of exp(x - max)), over the axis that has `behind` axes "
           "behind it",
    .input_count = 1,
    .output_count = 1,
    .in_place = 1,
    .streams = 1,
    .axes = TRI_AXES_ANY,
    .slice = softmax_slice,
    .attr_bytes = sizeof(tri_softmax_attr),
    .attr_fields = softmax_fields,
    .shape = log_softmax_shape,
    .gradient = softmax_gradient,
    .cost = forward_cost,
};

const tri_op tri_op_log_softmax_grad = {
    .name = "log_softmax_grad",
    .doc = "y, dy -> dx: dy - exp(y) * (sum of dy over the axis)",
    .input_count = 2,
    .output_count = 1,
    .in_place = 2,
    .attr_bytes = sizeof(tri_softmax_attr),
    .attr_fields = softmax_fields,
    .shape = log_softmax_grad_shape,
    .cost = forward_cost,
};
