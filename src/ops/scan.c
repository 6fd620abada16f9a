// Defines the op scan, which computes running sums, products and extremes along one axis, and its
// gradient: their shape rules, gradient rule and cost.
#include "ops/rules.h"

static bool is_extreme(const tri_scan_attr *a) {
    return a->kind == TRI_SCAN_MAX || a->kind == TRI_SCAN_MIN;
}

static tri_status scan_shape(const void *attr, tri_op_signature *s) {
    const tri_scan_attr *a = attr;
    TRI_TRY(a->kind == TRI_SCAN_LOGSUMEXP ? ops_want_float("scan", "x", s->in_type[0])
                                          : ops_want_number("scan", "x", s->in_type[0]));
    TRI_TRY(ops_want_axis("scan", a->axis, &s->in[0]));
    if (a->kind < TRI_SCAN_SUM || a->kind > TRI_SCAN_LOGSUMEXP)
        return TRI_FAIL(TRI_BAD_INPUT, "scan: there is no kind %" PRId64, a->kind);
    if (a->reverse && a->kind != TRI_SCAN_SUM)
        return TRI_FAIL(TRI_BAD_INPUT, "scan: only a sum runs from the end");
    ops_like_first(s);
    if (!is_extreme(a)) s->out_type[0] = ops_sum_type(s->in_type[0]);
    s->out[1] = is_extreme(a) ? s->in[0] : tri_shape_of(0);
    s->out_type[1] = TRI_I64;
    return TRI_OK;
}

static tri_status scan_grad_shape(const void *attr, tri_op_signature *s) {
    const tri_scan_attr *a = attr;
    TRI_TRY(ops_want_one_type("scan_grad", s, 0, 3));
    TRI_TRY(ops_want_axis("scan_grad", a->axis, &s->in[0]));
    TRI_TRY(ops_want_shape("scan_grad", "y", &s->in[1], s->in[0]));
    TRI_TRY(ops_want_shape("scan_grad", "dy", &s->in[2], s->in[0]));
    if (a->kind != TRI_SCAN_PROD && a->kind != TRI_SCAN_LOGSUMEXP)
        return TRI_FAIL(TRI_BAD_INPUT, "scan_grad: there is no kind %" PRId64, a->kind);
    ops_like_first(s);
    return TRI_OK;
}

static void scan_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                          const bool *wanted, tri_value *in_grads) {
    tri_scan_attr a = *(const tri_scan_attr *)node->attr;
    tri_value dy = out_grads[0], none = {0};
    if (!wanted[0] || !tri_value_is(dy)) return;
    if (is_extreme(&a)) {
        tri_scatter_attr back = {.kind = TRI_SCATTER_ADD,
                                 .axis = a.axis,
                                 .shape = tri_value_shape(graph, node->inputs[0])};
        in_grads[0] =
            ops_node(graph, node, &tri_op_scatter, &back, node->outputs[1], dy, none, none);
    } else if (a.kind == TRI_SCAN_SUM) {
        a.reverse = !a.reverse;
        in_grads[0] = ops_node(graph, node, &tri_op_scan, &a, dy, none, none, none);
    } else {
        in_grads[0] = ops_node(graph, node, &tri_op_scan_grad, &a, node->inputs[0],
                               node->outputs[0], dy, none);
    }
}

static tri_cost scan_cost(const void *attr, const tri_op_signature *s) {
    bool logarithm = ((const tri_scan_attr *)attr)->kind == TRI_SCAN_LOGSUMEXP;
    return ops_cost_per_input(s, logarithm ? 20 : 2);
}

static const tri_attr_field scan_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_scan_attr, kind),
    OPS_FIELD(TRI_ATTR_INT, tri_scan_attr, axis),
    OPS_FIELD(TRI_ATTR_BOOL, tri_scan_attr, reverse),
    {0},
};

const tri_op tri_op_scan = {
    .name = "scan",
    .doc = "x -> y, index I64: along an axis, for each element the sum (kind 0), product (1), "
           "largest (2), smallest (3) or logarithm of the sum of exp (4) of all up to it; for 2 "
           "and 3 also which one that is, of equal ones the last; sums and products of integers "
           "are I64",
    .input_count = 1,
    .output_count = 2,
    .attr_bytes = sizeof(tri_scan_attr),
    .attr_fields = scan_fields,
    .shape = scan_shape,
    .gradient = scan_gradient,
    .cost = scan_cost,
};

const tri_op tri_op_scan_grad = {
    .name = "scan_grad",
    .doc = "x, y, dy -> dx of a running product (kind 1) or logarithm of sums (4)",
    .input_count = 3,
    .output_count = 1,
    .attr_bytes = sizeof(tri_scan_attr),
    .attr_fields = scan_fields,
    .shape = scan_grad_shape,
    .cost = scan_cost,
};
