// Defines the ops for batch norm over a micro-batch, in training and in evaluation: their shape
// rules, gradient rules and costs. ReLU and max pooling may be fused into them. Besides y, the
// training op makes the mean and 1 / standard deviation of each channel, which its gradient reads,
// and the sums from which the running statistics are updated after the step.
#include "ops/rules.h"

static tri_status channels(const char *op, const tri_op_signature *s, double eps, int64_t *out) {
    char x[160];
    if (s->in[0].rank < 2)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: x must be [N, C, ...], but is %s", op,
                        tri_shape_text(&s->in[0], x, sizeof x));
    TRI_TRY(ops_want_eps(op, eps));
    *out = s->in[0].dims[1];
    return TRI_OK;
}

tri_status ops_batch_norm_shape(const char *op, const tri_batch_norm_attr *a, const tri_shape *x,
                                tri_shape *y) {
    *y = *x;
    if (a->pool.kernel[0] == 0) return TRI_OK;
    if (a->relu || a->pool.dropout > 0)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: ReLU belongs to the pooling, which has no dropout here",
                        op);
    return ops_max_pool_shape(op, &a->pool, x, y);
}

void ops_batch_norm_index(const tri_batch_norm_attr *a, tri_op_signature *s) {
    s->out[5] = a->pool.kernel[0] == 0 ? tri_shape_of(0) : s->out[0];
    s->out_type[5] = TRI_U8;
}

tri_value ops_batch_norm_mask(const tri_batch_norm_attr *a, const tri_node *node, tri_value dy) {
    if (a->pool.kernel[0] != 0) return node->outputs[5];
    return a->relu ? node->outputs[0] : dy;
}

tri_status ops_batch_norm_gradient(const char *op, const tri_batch_norm_attr *a,
                                   const tri_op_signature *s) {
    const char *mask = a->pool.kernel[0] == 0 ? "y" : "index";
    tri_dtype y_type;
    tri_shape y;
    TRI_TRY(ops_want_float(op, "x", s->in_type[0]));
    TRI_TRY(ops_narrow_type(op, a->narrow, s->in_type[0], &y_type));
    TRI_TRY(ops_want_type(op, mask, s->in_type[1], a->pool.kernel[0] == 0 ? y_type : TRI_U8));
    TRI_TRY(ops_want_type(op, "dy", s->in_type[2], y_type));
    TRI_TRY(ops_batch_norm_shape(op, a, &s->in[0], &y));
    TRI_TRY(ops_want_shape(op, mask, &s->in[1], y));
    return ops_want_shape(op, "dy", &s->in[2], y);
}

static tri_status batch_norm_shape(const void *attr, tri_op_signature *s) {
    const char *op = "batch_norm";
    const tri_batch_norm_attr *a = attr;
    int64_t c;
    TRI_TRY(ops_want_float(op, "x", s->in_type[0]));
    TRI_TRY(ops_want_accumulators(op, s, 1, 3));
    TRI_TRY(channels(op, s, a->eps, &c));
    TRI_TRY(ops_want_shape(op, "weight", &s->in[1], tri_shape_of(c)));
    TRI_TRY(ops_want_shape(op, "bias", &s->in[2], tri_shape_of(c)));
    TRI_TRY(ops_batch_norm_shape(op, a, &s->in[0], &s->out[0]));
    for (int i = 1; i < 5; i++) {
        s->out[i] = tri_shape_of(c);
        s->out_type[i] = ops_accumulator_type(s->in_type[0]);
    }
    ops_batch_norm_index(a, s);
    return ops_narrow_type(op, a->narrow, s->in_type[0], &s->out_type[0]);
}

static tri_status batch_norm_inference_shape(const void *attr, tri_op_signature *s) {
    const char *op = "batch_norm_inference";
    static const char *const names[] = {"x", "weight", "bias", "running_mean", "running_var"};
    const tri_batch_norm_attr *a = attr;
    int64_t c;
    TRI_TRY(ops_want_float(op, "x", s->in_type[0]));
    TRI_TRY(ops_want_accumulators(op, s, 1, 5));
    TRI_TRY(channels(op, s, a->eps, &c));
    for (int i = 1; i < 5; i++) TRI_TRY(ops_want_shape(op, names[i], &s->in[i], tri_shape_of(c)));
    TRI_TRY(ops_batch_norm_shape(op, a, &s->in[0], &s->out[0]));
    return ops_narrow_type(op, a->narrow, s->in_type[0], &s->out_type[0]);
}

static tri_status batch_norm_grad_shape(const void *attr, tri_op_signature *s) {
    const char *op = "batch_norm_grad";
    static const char *const names[] = {"weight", "mean", "inv_std"};
    const tri_batch_norm_attr *a = attr;
    int64_t c;
    TRI_TRY(channels(op, s, a->eps, &c));
    TRI_TRY(ops_batch_norm_gradient(op, a, s));
    TRI_TRY(ops_want_accumulators(op, s, 3, 6));
    for (int i = 0; i < 3; i++)
        TRI_TRY(ops_want_shape(op, names[i], &s->in[3 + i], tri_shape_of(c)));
    ops_like_first(s);
    for (int i = 1; i < 3; i++) {
        s->out[i] = tri_shape_of(c);
        s->out_type[i] = ops_accumulator_type(s->in_type[0]);
    }
    return TRI_OK;
}

// Only the gradient of y is used. The outputs for the running statistics do not influence the loss,
// and the formula of dx already contains how mean and inv_std depend on x.
static void batch_norm_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                                const bool *wanted, tri_value *in_grads) {
    if (!tri_value_is(out_grads[0]) || !(wanted[0] || wanted[1] || wanted[2])) return;
    tri_value mask = ops_batch_norm_mask(node->attr, node, out_grads[0]);
    tri_value inputs[6] = {node->inputs[0], mask, out_grads[0], node->inputs[1], node->outputs[1],
                           node->outputs[2]};
    in_grads[0] = tri_node_add(graph, &tri_op_batch_norm_grad, inputs, 6, node->attr, node->name);
    in_grads[1] = tri_node_output(graph, in_grads[0], 1);
    in_grads[2] = tri_node_output(graph, in_grads[0], 2);
}

static void batch_norm_inference_gradient(tri_graph *graph, const tri_node *node,
                                          const tri_value *out_grads, const bool *wanted,
                                          tri_value *in_grads) {
    if (tri_value_is(out_grads[0]) && (wanted[0] || wanted[1] || wanted[2]))
        tri_graph_fail(graph,
                       "%s: batch norm with running statistics has no gradient; build the "
                       "graph for training",
                       node->name);
}

static tri_cost batch_norm_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 8);
}

static tri_cost batch_norm_inference_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 2);
}

static tri_cost batch_norm_grad_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 11);
}

const tri_attr_field ops_batch_norm_fields[] = {
    OPS_FIELD(TRI_ATTR_FLOAT, tri_batch_norm_attr, eps),
    OPS_FIELD(TRI_ATTR_BOOL, tri_batch_norm_attr, relu),
    OPS_FIELD(TRI_ATTR_TYPE, tri_batch_norm_attr, narrow),
    OPS_FIELD(TRI_ATTR_INT, tri_batch_norm_attr, pool.kernel, .count = 2),
    OPS_FIELD(TRI_ATTR_INT, tri_batch_norm_attr, pool.stride, .count = 2),
    OPS_FIELD(TRI_ATTR_INT, tri_batch_norm_attr, pool.padding, .count = 2),
    OPS_FIELD(TRI_ATTR_BOOL, tri_batch_norm_attr, pool.relu),
    {0},
};

const tri_op tri_op_batch_norm = {
    .name = "batch_norm",
    .doc = "x [N, C, ...], weight, bias -> y, mean, inv_std, mean_sum, var_sum, index: y = "
           "max_pool2d?(relu?((x - mean) * inv_std * weight + bias)), inv_std = 1 / sqrt(biased "
           "variance + eps), over the M values of a channel; mean_sum = N * mean, var_sum = N * "
           "variance * M / (M - 1); index is the pooling's, [0] without one",
    .input_count = 3,
    .output_count = 6,
    .precision = TRI_PRECISION_NORM,
    .narrow = offsetof(tri_batch_norm_attr, narrow),
    .attr_bytes = sizeof(tri_batch_norm_attr),
    .attr_fields = ops_batch_norm_fields,
    .shape = batch_norm_shape,
    .gradient = batch_norm_gradient,
    .cost = batch_norm_cost,
};

const tri_op tri_op_batch_norm_inference = {
    .name = "batch_norm_inference",
    .doc = "x, weight, bias, running_mean, running_var -> y: max_pool2d?(relu?((x - running_mean) "
           "/ sqrt(running_var + eps) * weight + bias))",
    .input_count = 5,
    .output_count = 1,
    .in_place = 1,
    .precision = TRI_PRECISION_NORM,
    .narrow = offsetof(tri_batch_norm_attr, narrow),
    .attr_bytes = sizeof(tri_batch_norm_attr),
    .attr_fields = ops_batch_norm_fields,
    .shape = batch_norm_inference_shape,
    .gradient = batch_norm_inference_gradient,
    .cost = batch_norm_inference_cost,
};

const tri_op tri_op_batch_norm_grad = {
    .name = "batch_norm_grad",
    .doc = "x, mask, dy, weight, mean, inv_std -> dx, dweight, dbias: with h = (x - mean) * "
           "inv_std and d = dy, 0 where relu cut y off: dbias = sum d, dweight = sum d * h, dx = "
           "weight * inv_std * (d - (dbias + h * dweight) / M); mask is y, or with pooling its "
           "index, and d then max_pool2d_grad of dy; with neither it is not read, and may be dy",
    .input_count = 6,
    .output_count = 3,
    .attr_bytes = sizeof(tri_batch_norm_attr),
    .attr_fields = ops_batch_norm_fields,
    .shape = batch_norm_grad_shape,
    .cost = batch_norm_grad_cost,
};
