// Defines the op of the linear layer, a product with a weight matrix, and the ops of its gradients:
// their shape rules, gradient rule and costs.
#include "ops/rules.h"

// Computes the shape of y, after checking x and weight.
static tri_status linear_output(const char *op, int64_t axes, const tri_shape *x,
                                const tri_shape *weight, tri_shape *y) {
    char x_text[160], w_text[160];
    TRI_TRY(ops_want_rank(op, "weight [features, inputs]", weight, 2));
    if (axes < 1 || axes > x->rank)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: cannot contract %" PRId64 " axes of x %s", op, axes,
                        tri_shape_text(x, x_text, sizeof x_text));
    int64_t product = 1;
    for (int i = x->rank - (int)axes; i < x->rank; i++) product *= x->dims[i];
    if (product != weight->dims[1] || weight->dims[0] < 1)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: x %s has %" PRId64 " inputs, but the weight %s wants %" PRId64, op,
                        tri_shape_text(x, x_text, sizeof x_text), product,
                        tri_shape_text(weight, w_text, sizeof w_text), weight->dims[1]);
    *y = (tri_shape){.rank = x->rank - (int)axes};
    for (int i = 0; i < y->rank; i++) y->dims[i] = x->dims[i];
    y->dims[y->rank++] = weight->dims[0];
    return TRI_OK;
}

static tri_status linear_shape(const void *attr, tri_op_signature *s) {
    const tri_linear_attr *a = attr;
    TRI_TRY(ops_want_one_type("linear", s, 0, 3));
    TRI_TRY(linear_output("linear", a->axes, &s->in[0], &s->in[1], &s->out[0]));
    if (s->present[2])
        TRI_TRY(ops_want_shape("linear", "bias", &s->in[2], tri_shape_of(s->in[1].dims[0])));
    s->out_type[0] = a->wide ? ops_accumulator_type(s->in_type[0]) : s->in_type[0];
    return TRI_OK;
}

static tri_status linear_grad_input_shape(const void *attr, tri_op_signature *s) {
    const char *op = "linear_grad_input";
    const tri_linear_grad_attr *a = attr;
    tri_shape y;
    TRI_TRY(ops_want_one_type(op, s, 0, 2));
    TRI_TRY(linear_output(op, a->axes, &a->shape, &s->in[1], &y));
    TRI_TRY(ops_want_shape(op, "dy", &s->in[0], y));
    s->out[0] = a->shape;
    s->out_type[0] = a->wide ? ops_accumulator_type(s->in_type[0]) : s->in_type[0];
    return TRI_OK;
}

static tri_status linear_grad_weight_shape(const void *attr, tri_op_signature *s) {
    const char *op = "linear_grad_weight";
    const tri_linear_grad_attr *a = attr;
    tri_shape y;
    TRI_TRY(ops_want_one_type(op, s, 0, 2));
    TRI_TRY(linear_output(op, a->axes, &s->in[0], &a->shape, &y));
    TRI_TRY(ops_want_shape(op, "dy", &s->in[1], y));
    s->out[0] = a->shape;
    s->out[1] = tri_shape_of(a->has_bias ? a->shape.dims[0] : 0);
    s->out_type[0] = s->out_type[1] = ops_accumulator_type(s->in_type[0]);
    return TRI_OK;
}

// True if several ranks read x, each for its slice of a column-parallel layer. Then each rank's
// gradient of x is one term of a sum over ranks. The terms stay F32, and only their sum is rounded
// to a half type.
static bool is_shared(const tri_graph *graph, tri_value x) {
    const tri_node *maker = tri_value_node(graph, x);
    while (maker && maker->op == &tri_op_rechunk) maker = tri_value_node(graph, maker->inputs[0]);
    if (!maker) return false;
    return maker->op == &tri_op_copy_to ||
           (maker->op == &tri_op_all_gather && ((const tri_collective_attr *)maker->attr)->partial);
}

static void linear_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                            const bool *wanted, tri_value *in_grads) {
    const tri_linear_attr *a = node->attr;
    tri_value none = {0}, x = node->inputs[0], weight = node->inputs[1];
    if (!tri_value_is(out_grads[0])) return;
    // Where y is one rank's term of a sum over ranks (attr.wide), y and dy are F32, even if x is a
    // half type. The products below need dy in the type of x.
    tri_value dy = ops_gradient_as(graph, node, x, out_grads[0]);
    tri_linear_grad_attr grad = {.axes = a->axes, .has_bias = tri_value_is(node->inputs[2])};
    if (wanted[1] || (grad.has_bias && wanted[2])) {
        grad.shape = tri_value_shape(graph, weight);
        in_grads[1] = ops_node(graph, node, &tri_op_linear_grad_weight, &grad,
                               ops_recompute(graph, node, x), dy, none, none);
        if (grad.has_bias) in_grads[2] = tri_node_output(graph, in_grads[1], 1);
    }
    if (wanted[0]) {
        grad.shape = tri_value_shape(graph, x);
        grad.has_bias = false;
        grad.wide = is_shared(graph, x);
        in_grads[0] =
            ops_node(graph, node, &tri_op_linear_grad_input, &grad, dy, weight, none, none);
    }
}

static tri_cost linear_flops(const tri_shape *y, const tri_shape *weight) {
    return (tri_cost){.flops = 2 * (double)weight->dims[1] * (double)tri_shape_count(y)};
}

static tri_cost linear_cost(const void *attr, const tri_op_signature *s) {
    return linear_flops(&s->out[0], &s->in[1]);
}

static tri_cost linear_grad_input_cost(const void *attr, const tri_op_signature *s) {
    return linear_flops(&s->in[0], &s->in[1]);
}

static tri_cost linear_grad_weight_cost(const void *attr, const tri_op_signature *s) {
    return linear_flops(&s->in[1], &s->out[0]);
}

static const tri_attr_field linear_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_linear_attr, axes),
    OPS_FIELD(TRI_ATTR_BOOL, tri_linear_attr, wide),
    {0},
};

static const tri_attr_field linear_grad_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_linear_grad_attr, axes),
    OPS_FIELD(TRI_ATTR_BOOL, tri_linear_grad_attr, has_bias),
    OPS_FIELD(TRI_ATTR_BOOL, tri_linear_grad_attr, wide),
    {0},
};

const tri_op tri_op_linear = {
    .name = "linear",
    .doc = "x [.., d1..dk], weight [features, d1*..*dk], bias [features]? -> y [.., features]: "
           "y = x * transposed weight + bias, contracting the last `axes` axes of x",
    .input_count = 3,
    .optional_inputs = 1,
    .output_count = 1,
    .precision = TRI_PRECISION_HALF,
    .streams = 1,
    .axes = TRI_AXES_ROWS,
    .attr_bytes = sizeof(tri_linear_attr),
    .attr_fields = linear_fields,
    .shape = linear_shape,
    .gradient = linear_gradient,
    .cost = linear_cost,
};

const tri_op tri_op_linear_grad_input = {
    .name = "linear_grad_input",
    .doc = "dy [.., features], weight -> dx: dy * weight, in x's shape",
    .input_count = 2,
    .output_count = 1,
    .attr_bytes = sizeof(tri_linear_grad_attr),
    .attr_fields = linear_grad_fields,
    .shape = linear_grad_input_shape,
    .cost = linear_grad_input_cost,
};

const tri_op tri_op_linear_grad_weight = {
    .name = "linear_grad_weight",
    .doc = "x, dy -> dweight, dbias: transposed dy * x, and the sum of dy over all rows; dbias is "
           "empty without a bias",
    .input_count = 2,
    .output_count = 2,
    .attr_bytes = sizeof(tri_linear_grad_attr),
    .attr_fields = linear_grad_fields,
    .shape = linear_grad_weight_shape,
    .cost = linear_grad_weight_cost,
};
