// Defines the op interpolate, which resizes one axis: its shape rules, gradient rule and cost. Of
// images, one node resizes the width and one the height.
#include "ops/interpolate_axis.h"

#include "ops/rules.h"

static tri_status want_axis(const char *op, const tri_interpolate_attr *a, const tri_shape *x) {
    if (a->axis < 0 || a->axis >= x->rank)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: x has no axis %" PRId64, op, a->axis);
    if (a->size < 1 || a->size > TRI_MAX_WINDOW || x->dims[a->axis] < 1 ||
        x->dims[a->axis] > TRI_MAX_WINDOW)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: cannot make %" PRId64 " elements of %" PRId64 "; both must be 1 to %d",
                        op, a->size, x->dims[a->axis], TRI_MAX_WINDOW);
    bool smooth = a->kind == INTERPOLATE_LINEAR || a->kind == INTERPOLATE_CUBIC;
    if (a->kind < 0 || a->kind >= INTERPOLATE_KINDS || !(a->factor >= 0 && a->factor < 1e9) ||
        (!smooth && (a->align_corners || a->antialias)))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: there is no kind %" PRId64 " with align_corners %d, antialias %d and "
                        "factor %g",
                        op, a->kind, a->align_corners, a->antialias, a->factor);
    return TRI_OK;
}

static tri_status interpolate_shape(const void *attr, tri_op_signature *s) {
    const tri_interpolate_attr *a = attr;
    TRI_TRY(ops_want_float("interpolate", "x", s->in_type[0]));
    TRI_TRY(want_axis("interpolate", a, &s->in[0]));
    ops_like_first(s);
    s->out[0].dims[a->axis] = a->size;
    return TRI_OK;
}

static tri_status interpolate_grad_shape(const void *attr, tri_op_signature *s) {
    const char *op = "interpolate_grad";
    const tri_interpolate_attr *a = attr;
    TRI_TRY(ops_want_float(op, "dy", s->in_type[0]));
    TRI_TRY(want_axis(op, a, &a->x_shape));
    tri_shape y = a->x_shape;
    y.dims[a->axis] = a->size;
    TRI_TRY(ops_want_shape(op, "dy", &s->in[0], y));
    s->out[0] = a->x_shape;
    s->out_type[0] = s->in_type[0];
    return TRI_OK;
}

static void interpolate_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                                 const bool *wanted, tri_value *in_grads) {
    tri_interpolate_attr grad = *(const tri_interpolate_attr *)node->attr;
    tri_value none = {0};
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    grad.x_shape = tri_value_shape(graph, node->inputs[0]);
    in_grads[0] =
        ops_node(graph, node, &tri_op_interpolate_grad, &grad, out_grads[0], none, none, none);
}

// Two flops for each element that counts.
static double interpolate_flops(const tri_interpolate_attr *a, const tri_shape *x,
                                const tri_shape *y) {
    static const double terms[] = {1, 1, 2, 4};
    double shrinks = (double)x->dims[a->axis] / (double)a->size;
    return 2 * terms[a->kind] * (a->antialias && shrinks > 1 ? shrinks : 1) *
           (double)tri_shape_count(y);
}

static tri_cost interpolate_cost(const void *attr, const tri_op_signature *s) {
    return (tri_cost){.flops = interpolate_flops(attr, &s->in[0], &s->out[0])};
}

static tri_cost interpolate_grad_cost(const void *attr, const tri_op_signature *s) {
    return (tri_cost){.flops = interpolate_flops(attr, &s->out[0], &s->in[0])};
}

interpolate_axis ops_interpolate_axis(const tri_interpolate_attr *a, const tri_shape *x) {
    return (interpolate_axis){x->dims[a->axis], a->size,      a->kind,
                              a->align_corners, a->antialias, a->factor};
}

static const tri_attr_field interpolate_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_interpolate_attr, axis),
    OPS_FIELD(TRI_ATTR_INT, tri_interpolate_attr, size),
    OPS_FIELD(TRI_ATTR_INT, tri_interpolate_attr, kind),
    OPS_FIELD(TRI_ATTR_BOOL, tri_interpolate_attr, align_corners),
    OPS_FIELD(TRI_ATTR_BOOL, tri_interpolate_attr, antialias),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_interpolate_attr, factor),
    {0},
};

const tri_op tri_op_interpolate = {
    .name = "interpolate",
    .doc =
        "x -> y with `size` elements along an axis, PyTorch's interpolate along one axis: each the "
        "nearest element of x (kind 0, exact 1), or a sum of those around its place (linear 2, "
        "cubic 3)",
    .input_count = 1,
    .output_count = 1,
    .precision = TRI_PRECISION_FOLLOW,
    .attr_bytes = sizeof(tri_interpolate_attr),
    .attr_fields = interpolate_fields,
    .shape = interpolate_shape,
    .gradient = interpolate_gradient,
    .cost = interpolate_cost,
};

const tri_op tri_op_interpolate_grad = {
    .name = "interpolate_grad",
    .doc = "dy -> dx: for each element of x the sum of what was computed from it, each times its "
           "share",
    .input_count = 1,
    .output_count = 1,
    .attr_bytes = sizeof(tri_interpolate_attr),
    .attr_fields = interpolate_fields,
    .shape = interpolate_grad_shape,
    .cost = interpolate_grad_cost,
};
