// Defines the op max pooling in two dimensions, with ReLU and dropout if they are fused into it:
// its shape rules, gradient rule and cost.
#include "ops/rules.h"

tri_status ops_max_pool_shape(const char *op, const tri_max_pool2d_attr *a, const tri_shape *x,
                              tri_shape *y) {
    TRI_TRY(ops_want_rank(op, "x [N, C, H, W]", x, 4));
    bool large = a->kernel[0] > TRI_POOL_NO_GRADIENT || a->kernel[1] > TRI_POOL_NO_GRADIENT;
    if (large || (a->kernel[0] > 0 && a->kernel[1] > 0 &&
                  a->kernel[0] * a->kernel[1] > TRI_POOL_NO_GRADIENT))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: a kernel of %" PRId64 " x %" PRId64 " has more than %d positions", op,
                        a->kernel[0], a->kernel[1], TRI_POOL_NO_GRADIENT);
    *y = *x;
    for (int i = 0; i < 2; i++) {
        if (a->kernel[i] < 1 || a->stride[i] < 1)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: kernel and stride must be at least 1, not %" PRId64
                            " and %" PRId64,
                            op, a->kernel[i], a->stride[i]);
        if (a->padding[i] < 0 || a->padding[i] > a->kernel[i] / 2)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: padding must be 0 to half the kernel of %" PRId64 ", not %" PRId64,
                            op, a->kernel[i], a->padding[i]);
        y->dims[2 + i] = ops_window(x->dims[2 + i], a->kernel[i], a->stride[i], a->padding[i], 1);
        if (y->dims[2 + i] < 1)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: a kernel of %" PRId64 " does not fit into %" PRId64
                            " with padding %" PRId64,
                            op, a->kernel[i], x->dims[2 + i], a->padding[i]);
    }
    if (!(a->dropout >= 0 && a->dropout <= 1))
        return TRI_FAIL(TRI_BAD_INPUT, "%s: dropout must be 0 to 1, not %g", op, a->dropout);
    return TRI_OK;
}

static tri_status max_pool2d_shape(const void *attr, tri_op_signature *s) {
    const tri_max_pool2d_attr *a = attr;
    TRI_TRY(ops_want_float("max_pool2d", "x", s->in_type[0]));
    TRI_TRY(ops_max_pool_shape("max_pool2d", a, &s->in[0], &s->out[0]));
    if (s->present[1]) {
        TRI_TRY(ops_want_type("max_pool2d", "position", s->in_type[1], TRI_I64));
        TRI_TRY(ops_want_shape("max_pool2d", "position", &s->in[1], tri_shape_of(2)));
    } else if (a->dropout > 0) {
        return TRI_FAIL(TRI_BAD_INPUT, "max_pool2d: dropout needs the position");
    }
    s->out[1] = s->out[0];
    s->out_type[0] = s->in_type[0];
    s->out_type[1] = TRI_U8;
    return TRI_OK;
}

static tri_status max_pool2d_grad_shape(const void *attr, tri_op_signature *s) {
    const tri_max_pool2d_attr *a = attr;
    tri_shape y;
    TRI_TRY(ops_want_type("max_pool2d_grad", "index", s->in_type[0], TRI_U8));
    TRI_TRY(ops_want_float("max_pool2d_grad", "dy", s->in_type[1]));
    TRI_TRY(ops_max_pool_shape("max_pool2d_grad", a, &a->x_shape, &y));
    TRI_TRY(ops_want_shape("max_pool2d_grad", "index", &s->in[0], y));
    TRI_TRY(ops_want_shape("max_pool2d_grad", "dy", &s->in[1], y));
    s->out[0] = a->x_shape;
    s->out_type[0] = s->in_type[1];
    return TRI_OK;
}

static void max_pool2d_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                                const bool *wanted, tri_value *in_grads) {
    tri_max_pool2d_attr grad = *(const tri_max_pool2d_attr *)node->attr;
    tri_value none = {0};
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    grad.x_shape = tri_value_shape(graph, node->inputs[0]);
    in_grads[0] = ops_node(graph, node, &tri_op_max_pool2d_grad, &grad, node->outputs[1],
                           out_grads[0], none, none);
}

// Computes the cost: one comparison for each element of each pooling window, counted as one flop.
static tri_cost max_pool2d_cost(const void *attr, const tri_op_signature *s) {
    const tri_max_pool2d_attr *a = attr;
    double positions = (double)(a->kernel[0] * a->kernel[1]);
    return (tri_cost){.flops = positions * (double)tri_shape_count(&s->out[0])};
}

static tri_cost max_pool2d_grad_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 1);
}

static const tri_attr_field max_pool2d_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_max_pool2d_attr, kernel, .count = 2),
    OPS_FIELD(TRI_ATTR_INT, tri_max_pool2d_attr, stride, .count = 2),
    OPS_FIELD(TRI_ATTR_INT, tri_max_pool2d_attr, padding, .count = 2),
    OPS_FIELD(TRI_ATTR_BOOL, tri_max_pool2d_attr, relu),
    OPS_FIELD(TRI_ATTR_BOOL, tri_max_pool2d_attr, indexed),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_max_pool2d_attr, dropout),
    OPS_FIELD(TRI_ATTR_KEY, tri_max_pool2d_attr, key),
    {0},
};

const tri_op tri_op_max_pool2d = {
    .name = "max_pool2d",
    .doc = "x [N, C, H, W], position? -> y, index: dropout(relu(maximum of each window)); index is "
           "the position kh*KW + kw of the first maximum, 255 where no gradient flows",
    .input_count = 2,
    .optional_inputs = 1,
    .output_count = 2,
    .flags = TRI_OP_RANDOM,
    .precision = TRI_PRECISION_FOLLOW,
    .attr_bytes = sizeof(tri_max_pool2d_attr),
    .attr_fields = max_pool2d_fields,
    .shape = max_pool2d_shape,
    .gradient = max_pool2d_gradient,
    .cost = max_pool2d_cost,
};

const tri_op tri_op_max_pool2d_grad = {
    .name = "max_pool2d_grad",
    .doc = "index, dy -> dx: dy / (1 - dropout) added at each window's maximum",
    .input_count = 2,
    .output_count = 1,
    .attr_bytes = sizeof(tri_max_pool2d_attr),
    .attr_fields = max_pool2d_fields,
    .shape = max_pool2d_grad_shape,
    .cost = max_pool2d_grad_cost,
};
