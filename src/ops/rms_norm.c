// Defines the op RMS norm: its shape rule, gradient rule and cost.
#include "ops/rules.h"

static tri_status rms_norm_rules(const char *op, const tri_norm_attr *a, tri_op_signature *s,
                                 int weight) {
    TRI_TRY(ops_want_last_axis(op, s));
    TRI_TRY(ops_want_eps(op, a->eps));
    return ops_want_shape(op, "weight", &s->in[weight], ops_last_axis(s));
}

static tri_status rms_norm_shape(const void *attr, tri_op_signature *s) {
    const tri_norm_attr *a = attr;
    TRI_TRY(ops_want_float("rms_norm", "input 0", s->in_type[0]));
    TRI_TRY(ops_want_accumulators("rms_norm", s, 1, 2));
    TRI_TRY(rms_norm_rules("rms_norm", a, s, 1));
    ops_like_first(s);
    TRI_TRY(ops_narrow_type("rms_norm", a->narrow, s->in_type[0], &s->out_type[0]));
    s->out[1] = ops_rows(s);
    s->out_type[1] = ops_accumulator_type(s->in_type[0]);
    return TRI_OK;
}

static tri_status rms_norm_grad_shape(const void *attr, tri_op_signature *s) {
    const char *op = "rms_norm_grad";
    const tri_norm_attr *a = attr;
    TRI_TRY(ops_want_norm_gradient(op, a->narrow, 4, s));
    TRI_TRY(ops_want_accumulators(op, s, 2, 3));
    TRI_TRY(rms_norm_rules(op, a, s, 2));
    TRI_TRY(ops_want_shape(op, "dy", &s->in[1], s->in[0]));
    TRI_TRY(ops_want_type(op, "inv_rms", s->in_type[3], ops_accumulator_type(s->in_type[0])));
    TRI_TRY(ops_want_shape(op, "inv_rms", &s->in[3], ops_rows(s)));
    ops_like_first(s);
    s->out[1] = s->in[2];
    s->out_type[1] = s->in_type[2];
    return TRI_OK;
}

static void rms_norm_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                              const bool *wanted, tri_value *in_grads) {
    if (!tri_value_is(out_grads[0]) || !(wanted[0] || wanted[1])) return;
    in_grads[0] = ops_node(graph, node, &tri_op_rms_norm_grad, node->attr, node->inputs[0],
                           out_grads[0], node->inputs[1], node->outputs[1]);
    in_grads[1] = tri_node_output(graph, in_grads[0], 1);
}

static tri_cost rms_norm_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 4);
}

static tri_cost rms_norm_grad_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 9);
}

const tri_op tri_op_rms_norm = {
    .name = "rms_norm",
    .doc = "x [.., D], weight [D] -> y, inv_rms [..]: y = x * inv_rms * weight, inv_rms = 1 / "
           "sqrt(mean of x^2 over the last axis + eps)",
    .input_count = 2,
    .output_count = 2,
    .flags = TRI_OP_RECOMPUTABLE,
    .in_place = 1,
    .precision = TRI_PRECISION_NORM,
    .narrow = offsetof(tri_norm_attr, narrow),
    .streams = 1,
    .axes = TRI_AXES_ROWS,
    .attr_bytes = sizeof(tri_norm_attr),
    .attr_fields = ops_norm_fields,
    .shape = rms_norm_shape,
    .gradient = rms_norm_gradient,
    .cost = rms_norm_cost,
};

const tri_op tri_op_rms_norm_grad = {
    .name = "rms_norm_grad",
    .doc = "x, dy, weight, inv_rms, sum? -> dx, dweight: with h = x * inv_rms: dweight = sum over "
           "rows of dy * h, dx = sum + inv_rms * (dy * weight - h * mean(dy * weight * h))",
    .input_count = 5,
    .optional_inputs = 1,
    .output_count = 2,
    .in_place = 2,
    .attr_bytes = sizeof(tri_norm_attr),
    .attr_fields = ops_norm_fields,
    .shape = rms_norm_grad_shape,
    .cost = rms_norm_grad_cost,
};
