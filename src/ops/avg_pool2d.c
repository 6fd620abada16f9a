// Defines the op average pooling in two dimensions: its shape rule, gradient rule and cost. Either
// the size of the windows is given, or their number (adaptive pooling).
#include "ops/pool_window.h"
#include "ops/rules.h"

void ops_avg_window(const tri_avg_pool2d_attr *attr, int axis, int64_t in, int64_t window,
                    int64_t *begin, int64_t *end) {
    pool_axis a = {.in = in,
                   .out = attr->out[axis],
                   .kernel = attr->kernel[axis],
                   .stride = attr->stride[axis],
                   .padding = attr->padding[axis]};
    pool_window_at(&a, window, begin, end);
}

int64_t ops_avg_divisor(const tri_avg_pool2d_attr *attr, const int64_t begin[2],
                        const int64_t end[2]) {
    bool counts_padding = attr->out[0] == 0 && !attr->exclude_padding;
    if (counts_padding) return attr->kernel[0] * attr->kernel[1];
    return (end[0] - begin[0]) * (end[1] - begin[1]);
}

static tri_status check_window(const char *op, const tri_avg_pool2d_attr *a, const tri_shape *x,
                               int axis) {
    if (a->kernel[axis] < 1 || a->stride[axis] < 1)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: kernel and stride must be at least 1, not %" PRId64 " and %" PRId64,
                        op, a->kernel[axis], a->stride[axis]);
    if (a->padding[axis] < 0 || a->padding[axis] > a->kernel[axis] / 2)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: padding must be 0 to half the kernel of %" PRId64 ", not %" PRId64, op,
                        a->kernel[axis], a->padding[axis]);
    if (ops_window(x->dims[2 + axis], a->kernel[axis], a->stride[axis], a->padding[axis], 1) < 1)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: a kernel of %" PRId64 " does not fit into %" PRId64
                        " with padding %" PRId64,
                        op, a->kernel[axis], x->dims[2 + axis], a->padding[axis]);
    return TRI_OK;
}

static tri_status pooled_shape(const char *op, const tri_avg_pool2d_attr *a, const tri_shape *x,
                               tri_shape *y) {
    TRI_TRY(ops_want_rank(op, "x [N, C, H, W]", x, 4));
    bool is_adaptive = a->out[0] != 0 || a->out[1] != 0;
    *y = *x;
    for (int i = 0; i < 2; i++) {
        if (!is_adaptive) TRI_TRY(check_window(op, a, x, i));
        if (is_adaptive && (a->out[i] < 1 || x->dims[2 + i] < 1))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: cannot make %" PRId64 " windows of %" PRId64 " elements", op,
                            a->out[i], x->dims[2 + i]);
        y->dims[2 + i] =
            is_adaptive ? a->out[i]
                        : ops_window(x->dims[2 + i], a->kernel[i], a->stride[i], a->padding[i], 1);
    }
    return TRI_OK;
}

static tri_status avg_pool2d_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("avg_pool2d", "x", s->in_type[0]));
    TRI_TRY(pooled_shape("avg_pool2d", attr, &s->in[0], &s->out[0]));
    s->out_type[0] = s->in_type[0];
    return TRI_OK;
}

static tri_status avg_pool2d_grad_shape(const void *attr, tri_op_signature *s) {
    const tri_avg_pool2d_attr *a = attr;
    tri_shape y;
    TRI_TRY(ops_want_float("avg_pool2d_grad", "dy", s->in_type[0]));
    TRI_TRY(pooled_shape("avg_pool2d_grad", a, &a->x_shape, &y));
    TRI_TRY(ops_want_shape("avg_pool2d_grad", "dy", &s->in[0], y));
    s->out[0] = a->x_shape;
    s->out_type[0] = s->in_type[0];
    return TRI_OK;
}

static void avg_pool2d_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                                const bool *wanted, tri_value *in_grads) {
    tri_avg_pool2d_attr grad = *(const tri_avg_pool2d_attr *)node->attr;
    tri_value none = {0};
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    grad.x_shape = tri_value_shape(graph, node->inputs[0]);
    in_grads[0] =
        ops_node(graph, node, &tri_op_avg_pool2d_grad, &grad, out_grads[0], none, none, none);
}

// Computes the cost: one addition for each element of each pooling window.
static tri_cost window_cost(const tri_avg_pool2d_attr *a, const tri_shape *x, const tri_shape *y) {
    double elements = 1;
    for (int i = 0; i < 2; i++) {
        int64_t windows = y->dims[2 + i] > 0 ? y->dims[2 + i] : 1;
        elements *= a->out[i] > 0 ? (double)x->dims[2 + i] / (double)windows : (double)a->kernel[i];
    }
    return (tri_cost){.flops = elements * (double)tri_shape_count(y)};
}

static tri_cost avg_pool2d_cost(const void *attr, const tri_op_signature *s) {
    return window_cost(attr, &s->in[0], &s->out[0]);
}

static tri_cost avg_pool2d_grad_cost(const void *attr, const tri_op_signature *s) {
    return window_cost(attr, &s->out[0], &s->in[0]);
}

static const tri_attr_field avg_pool2d_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_avg_pool2d_attr, kernel, .count = 2),
    OPS_FIELD(TRI_ATTR_INT, tri_avg_pool2d_attr, stride, .count = 2),
    OPS_FIELD(TRI_ATTR_INT, tri_avg_pool2d_attr, padding, .count = 2),
    OPS_FIELD(TRI_ATTR_BOOL, tri_avg_pool2d_attr, exclude_padding),
    OPS_FIELD(TRI_ATTR_INT, tri_avg_pool2d_attr, out, .count = 2),
    {0},
};

const tri_op tri_op_avg_pool2d = {
    .name = "avg_pool2d",
    .doc = "x [N, C, H, W] -> y: mean of each window, zeros of the padding included unless "
           "exclude_padding; with out, of out[0] x out[1] windows, window i from floor(i*H/out) to "
           "ceil((i+1)*H/out)",
    .input_count = 1,
    .output_count = 1,
    .precision = TRI_PRECISION_FOLLOW,
    .attr_bytes = sizeof(tri_avg_pool2d_attr),
    .attr_fields = avg_pool2d_fields,
    .shape = avg_pool2d_shape,
    .gradient = avg_pool2d_gradient,
    .cost = avg_pool2d_cost,
};

const tri_op tri_op_avg_pool2d_grad = {
    .name = "avg_pool2d_grad",
    .doc = "dy -> dx: dy / elements of its window, added to each of them",
    .input_count = 1,
    .output_count = 1,
    .attr_bytes = sizeof(tri_avg_pool2d_attr),
    .attr_fields = avg_pool2d_fields,
    .shape = avg_pool2d_grad_shape,
    .cost = avg_pool2d_grad_cost,
};
