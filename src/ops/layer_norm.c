// Defines the op layer norm: its shape rule, gradient rule and cost.
#include "ops/rules.h"

static tri_status layer_norm_shape(const void *attr, tri_op_signature *s) {
    const tri_norm_attr *a = attr;
    static const char *const names[] = {"x", "weight", "bias"};
    TRI_TRY(ops_want_float("layer_norm", "input 0", s->in_type[0]));
    TRI_TRY(ops_want_accumulators("layer_norm", s, 1, 3));
    TRI_TRY(ops_want_last_axis("layer_norm", s));
    TRI_TRY(ops_want_eps("layer_norm", a->eps));
    if (s->present[1] != s->present[2])
        return TRI_FAIL(TRI_BAD_INPUT, "layer_norm: weight and bias go together");
    for (int i = 1; i < 3 && s->present[i]; i++)
        TRI_TRY(ops_want_shape("layer_norm", names[i], &s->in[i], ops_last_axis(s)));
    ops_like_first(s);
    TRI_TRY(ops_narrow_type("layer_norm", a->narrow, s->in_type[0], &s->out_type[0]));
    s->out[1] = s->out[2] = ops_rows(s);
    s->out_type[1] = s->out_type[2] = ops_accumulator_type(s->in_type[0]);
    return TRI_OK;
}

static tri_status layer_norm_grad_shape(const void *attr, tri_op_signature *s) {
    const char *op = "layer_norm_grad";
    static const char *const names[] = {"x", "dy", "mean", "inv_std", "weight"};
    const tri_norm_attr *a = attr;
    tri_dtype accumulator = ops_accumulator_type(s->in_type[0]);
    TRI_TRY(ops_want_norm_gradient(op, a->narrow, 5, s));
    TRI_TRY(ops_want_last_axis(op, s));
    TRI_TRY(ops_want_eps(op, a->eps));
    TRI_TRY(ops_want_shape(op, "dy", &s->in[1], s->in[0]));
    for (int i = 2; i < 4; i++) {
        TRI_TRY(ops_want_type(op, names[i], s->in_type[i], accumulator));
        TRI_TRY(ops_want_shape(op, names[i], &s->in[i], ops_rows(s)));
    }
    ops_like_first(s);
    s->out[1] = s->out[2] = tri_shape_of(0);
    s->out_type[1] = s->out_type[2] = accumulator;
    if (!s->present[4]) return TRI_OK;
    TRI_TRY(ops_want_type(op, names[4], s->in_type[4], accumulator));
    TRI_TRY(ops_want_shape(op, names[4], &s->in[4], ops_last_axis(s)));
    s->out[1] = s->out[2] = s->in[4];
    return TRI_OK;
}

static void layer_norm_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                                const bool *wanted, tri_value *in_grads) {
    if (!tri_value_is(out_grads[0]) || !(wanted[0] || wanted[1] || wanted[2])) return;
    tri_value inputs[5] = {node->inputs[0], out_grads[0], node->outputs[1], node->outputs[2],
                           node->inputs[1]};
    in_grads[0] = tri_node_add(graph, &tri_op_layer_norm_grad, inputs, 5, node->attr, node->name);
    if (!tri_value_is(node->inputs[1])) return;
    in_grads[1] = tri_node_output(graph, in_grads[0], 1);
    in_grads[2] = tri_node_output(graph, in_grads[0], 2);
}

static tri_cost layer_norm_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 8);
}

static tri_cost layer_norm_grad_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 12);
}

const tri_op tri_op_layer_norm = {
    .name = "layer_norm",
    .doc = "x [.., D], weight [D]?, bias [D]? -> y, mean [..], inv_std [..]: y = (x - mean) * "
           "inv_std * weight + bias, inv_std = 1 / sqrt(biased variance over the last axis + eps)",
    .input_count = 3,
    .optional_inputs = 2,
    .output_count = 3,
    .flags = TRI_OP_RECOMPUTABLE,
    .in_place = 1,
    .precision = TRI_PRECISION_NORM,
    .narrow = offsetof(tri_norm_attr, narrow),
    .streams = 1,
    .axes = TRI_AXES_ROWS,
    .attr_bytes = sizeof(tri_norm_attr),
    .attr_fields = ops_norm_fields,
    .shape = layer_norm_shape,
    .gradient = layer_norm_gradient,
    .cost = layer_norm_cost,
};

const tri_op tri_op_layer_norm_grad = {
    .name = "layer_norm_grad",
    .doc = "x, dy, mean, inv_std, weight?, sum? -> dx, dweight, dbias: with h = (x - mean) * "
           "inv_std and g = dy * weight: dbias = sum over rows of dy, dweight = that of dy * h, "
           "dx = sum + inv_std * (g - mean(g) - h * mean(g * h)); dweight and dbias are empty "
           "without a weight",
    .input_count = 6,
    .optional_inputs = 2,
    .output_count = 3,
    .in_place = 2,
    .attr_bytes = sizeof(tri_norm_attr),
    .attr_fields = ops_norm_fields,
    .shape = layer_norm_grad_shape,
    .cost = layer_norm_grad_cost,
};
