// Defines the op convolution in two dimensions, and the ops of its gradients: their shape rules,
// gradient rule and costs.
#include "base/limits.h"
#include "ops/rules.h"

// Computes H and W of the output, and checks that the attributes fit the shapes of x and the
// weight.
static tri_status conv2d_window(const char *op, const tri_conv2d_attr *a, const tri_shape *x,
                                const tri_shape *weight, int64_t out[2]) {
    TRI_TRY(ops_want_rank(op, "x [N, C, H, W]", x, 4));
    TRI_TRY(ops_want_rank(op, "weight [O, C / groups, KH, KW]", weight, 4));
    if (a->groups < 1)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: groups must be at least 1, not %" PRId64, op,
                        a->groups);
    if (x->dims[1] != weight->dims[1] * a->groups)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: x has %" PRId64 " channels, but the weight wants %" PRId64
                        " in %" PRId64 " groups",
                        op, x->dims[1], weight->dims[1] * a->groups, a->groups);
    if (weight->dims[0] < 1 || weight->dims[0] % a->groups != 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: %" PRId64 " output channels cannot be cut into %" PRId64 " groups", op,
                        weight->dims[0], a->groups);
    for (int i = 0; i < 2; i++) {
        if (a->stride[i] < 1 || a->dilation[i] < 1 || a->padding[i] < 0 || weight->dims[2 + i] < 1)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: kernel, stride and dilation must be at least 1 and padding at "
                            "least 0, not %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64,
                            op, weight->dims[2 + i], a->stride[i], a->dilation[i], a->padding[i]);
        if (a->stride[i] > TRI_MAX_WINDOW || a->dilation[i] > TRI_MAX_WINDOW ||
            a->padding[i] > TRI_MAX_WINDOW || weight->dims[2 + i] > TRI_MAX_WINDOW)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: kernel, stride, dilation and padding must be at most %d, not "
                            "%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64,
                            op, TRI_MAX_WINDOW, weight->dims[2 + i], a->stride[i], a->dilation[i],
                            a->padding[i]);
        out[i] = ops_window(x->dims[2 + i], weight->dims[2 + i], a->stride[i], a->padding[i],
                            a->dilation[i]);
        if (out[i] < 1)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: a kernel of %" PRId64 " with dilation %" PRId64
                            " does not fit into %" PRId64 " with padding %" PRId64,
                            op, weight->dims[2 + i], a->dilation[i], x->dims[2 + i], a->padding[i]);
    }
    return TRI_OK;
}

static tri_status conv2d_shape(const void *attr, tri_op_signature *s) {
    const tri_conv2d_attr *a = attr;
    int64_t out[2];
    TRI_TRY(ops_want_one_type("conv2d", s, 0, 3));
    TRI_TRY(conv2d_window("conv2d", a, &s->in[0], &s->in[1], out));
    if (s->present[2])
        TRI_TRY(ops_want_shape("conv2d", "bias", &s->in[2], tri_shape_of(s->in[1].dims[0])));
    s->out[0] = tri_shape_of(s->in[0].dims[0], s->in[1].dims[0], out[0], out[1]);
    s->out_type[0] = s->in_type[0];
    return TRI_OK;
}

static tri_status conv2d_grad_input_shape(const void *attr, tri_op_signature *s) {
    const char *op = "conv2d_grad_input";
    const tri_conv2d_grad_attr *a = attr;
    int64_t out[2];
    TRI_TRY(ops_want_one_type(op, s, 0, 2));
    TRI_TRY(conv2d_window(op, &a->conv, &a->shape, &s->in[1], out));
    TRI_TRY(ops_want_shape(op, "dy", &s->in[0],
                           tri_shape_of(a->shape.dims[0], s->in[1].dims[0], out[0], out[1])));
    s->out[0] = a->shape;
    s->out_type[0] = s->in_type[0];
    return TRI_OK;
}

static tri_status conv2d_grad_weight_shape(const void *attr, tri_op_signature *s) {
    const char *op = "conv2d_grad_weight";
    const tri_conv2d_grad_attr *a = attr;
    int64_t out[2];
    TRI_TRY(ops_want_one_type(op, s, 0, 2));
    TRI_TRY(conv2d_window(op, &a->conv, &s->in[0], &a->shape, out));
    TRI_TRY(ops_want_shape(op, "dy", &s->in[1],
                           tri_shape_of(s->in[0].dims[0], a->shape.dims[0], out[0], out[1])));
    s->out[0] = a->shape;
    s->out[1] = tri_shape_of(a->has_bias ? a->shape.dims[0] : 0);
    s->out_type[0] = s->out_type[1] = ops_accumulator_type(s->in_type[0]);
    return TRI_OK;
}

static void conv2d_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                            const bool *wanted, tri_value *in_grads) {
    const tri_conv2d_attr *a = node->attr;
    tri_value none = {0}, x = node->inputs[0], weight = node->inputs[1], dy = out_grads[0];
    if (!tri_value_is(dy)) return;
    tri_conv2d_grad_attr grad = {.conv = *a, .has_bias = tri_value_is(node->inputs[2])};
    if (wanted[1] || (grad.has_bias && wanted[2])) {
        grad.shape = tri_value_shape(graph, weight);
        in_grads[1] = ops_node(graph, node, &tri_op_conv2d_grad_weight, &grad, x, dy, none, none);
        if (grad.has_bias) in_grads[2] = tri_node_output(graph, in_grads[1], 1);
    }
    if (wanted[0]) {
        grad.shape = tri_value_shape(graph, x);
        grad.has_bias = false;
        in_grads[0] =
            ops_node(graph, node, &tri_op_conv2d_grad_input, &grad, dy, weight, none, none);
    }
}

// As a layer, the op is a transposed convolution.
static void conv2d_grad_input_gradient(tri_graph *graph, const tri_node *node,
                                       const tri_value *out_grads, const bool *wanted,
                                       tri_value *in_grads) {
    tri_conv2d_grad_attr attr = *(const tri_conv2d_grad_attr *)node->attr;
    tri_value none = {0}, x = node->inputs[0], weight = node->inputs[1], dy = out_grads[0];
    if (!tri_value_is(dy)) return;
    if (wanted[0])
        in_grads[0] = ops_node(graph, node, &tri_op_conv2d, &attr.conv, dy, weight, none, none);
    if (!wanted[1]) return;
    attr.shape = tri_value_shape(graph, weight);
    attr.has_bias = false;
    in_grads[1] = ops_node(graph, node, &tri_op_conv2d_grad_weight, &attr, dy, x, none, none);
}

// Computes the cost: for each element of y, a multiplication and an addition for each of the
// C / groups · KH · KW weights of its channel.
static tri_cost conv2d_flops(const tri_shape *y, const tri_shape *weight) {
    double taps = (double)(weight->dims[1] * weight->dims[2] * weight->dims[3]);
    return (tri_cost){.flops = 2 * taps * (double)tri_shape_count(y)};
}

static tri_cost conv2d_cost(const void *attr, const tri_op_signature *s) {
    return conv2d_flops(&s->out[0], &s->in[1]);
}

static tri_cost conv2d_grad_input_cost(const void *attr, const tri_op_signature *s) {
    return conv2d_flops(&s->in[0], &s->in[1]);
}

static tri_cost conv2d_grad_weight_cost(const void *attr, const tri_op_signature *s) {
    return conv2d_flops(&s->in[1], &s->out[0]);
}

static const tri_attr_field conv2d_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_conv2d_attr, stride, .count = 2),
    OPS_FIELD(TRI_ATTR_INT, tri_conv2d_attr, padding, .count = 2),
    OPS_FIELD(TRI_ATTR_INT, tri_conv2d_attr, dilation, .count = 2),
    OPS_FIELD(TRI_ATTR_INT, tri_conv2d_attr, groups),
    OPS_FIELD(TRI_ATTR_BOOL, tri_conv2d_attr, direct),
    {0},
};

static const tri_attr_field conv2d_grad_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_conv2d_grad_attr, conv.stride, .count = 2),
    OPS_FIELD(TRI_ATTR_INT, tri_conv2d_grad_attr, conv.padding, .count = 2),
    OPS_FIELD(TRI_ATTR_INT, tri_conv2d_grad_attr, conv.dilation, .count = 2),
    OPS_FIELD(TRI_ATTR_INT, tri_conv2d_grad_attr, conv.groups),
    OPS_FIELD(TRI_ATTR_BOOL, tri_conv2d_grad_attr, conv.direct),
    OPS_FIELD(TRI_ATTR_BOOL, tri_conv2d_grad_attr, has_bias),
    {0},
};

const tri_op tri_op_conv2d = {
    .name = "conv2d",
    .doc = "x [N, C, H, W], weight [O, C / groups, KH, KW], bias [O]? -> y: cross-correlation, "
           "y[n,o,i,j] = bias[o] + sum over c,kh,kw of weight[o,c,kh,kw] * x[n, c, i*stride + "
           "kh*dilation - padding, ...]",
    .input_count = 3,
    .optional_inputs = 1,
    .output_count = 1,
    .precision = TRI_PRECISION_HALF,
    .attr_bytes = sizeof(tri_conv2d_attr),
    .attr_fields = conv2d_fields,
    .shape = conv2d_shape,
    .gradient = conv2d_gradient,
    .cost = conv2d_cost,
};

const tri_op tri_op_conv2d_grad_input = {
    .name = "conv2d_grad_input",
    .doc = "dy, weight -> dx: each dy[n,o,i,j] * weight[o,c,kh,kw] added where conv2d read x",
    .input_count = 2,
    .output_count = 1,
    .precision = TRI_PRECISION_HALF,
    .attr_bytes = sizeof(tri_conv2d_grad_attr),
    .attr_fields = conv2d_grad_fields,
    .shape = conv2d_grad_input_shape,
    .gradient = conv2d_grad_input_gradient,
    .cost = conv2d_grad_input_cost,
};

const tri_op tri_op_conv2d_grad_weight = {
    .name = "conv2d_grad_weight",
    .doc = "x, dy -> dweight, dbias: sums over n,i,j of dy * x where conv2d met, and of dy; dbias "
           "is empty without a bias",
    .input_count = 2,
    .output_count = 2,
    .attr_bytes = sizeof(tri_conv2d_grad_attr),
    .attr_fields = conv2d_grad_fields,
    .shape = conv2d_grad_weight_shape,
    .cost = conv2d_grad_weight_cost,
};
