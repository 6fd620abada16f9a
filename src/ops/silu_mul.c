// Defines the op silu(gate) · up of two tensors, as in SwiGLU: its shape rule, gradient rule and
// cost.
#include "ops/rules.h"

static tri_status silu_mul_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_one_type("silu_mul", s, 0, 2));
    TRI_TRY(ops_want_shape("silu_mul", "up", &s->in[1], s->in[0]));
    ops_like_first(s);
    return TRI_OK;
}

static tri_status silu_mul_grad_shape(const void *attr, tri_op_signature *s) {
    static const char *const names[] = {"gate", "up", "dy"};
    TRI_TRY(ops_want_one_type("silu_mul_grad", s, 0, 3));
    for (int i = 1; i < 3; i++)
        TRI_TRY(ops_want_shape("silu_mul_grad", names[i], &s->in[i], s->in[0]));
    ops_like_first(s);
    s->out[1] = s->out[0];
    s->out_type[1] = s->out_type[0];
    return TRI_OK;
}

static void silu_mul_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                              const bool *wanted, tri_value *in_grads) {
    tri_value none = {0};
    if (!tri_value_is(out_grads[0]) || !(wanted[0] || wanted[1])) return;
    in_grads[0] = ops_node(graph, node, &tri_op_silu_mul_grad, NULL, node->inputs[0],
                           node->inputs[1], out_grads[0], none);
    in_grads[1] = tri_node_output(graph, in_grads[0], 1);
}

static tri_cost silu_mul_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 5);
}

static tri_cost silu_mul_grad_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 10);
}

const tri_op tri_op_silu_mul = {
    .name = "silu_mul",
    .doc = "gate, up -> y: gate / (1 + exp(-gate)) * up; the inner part of SwiGLU, arXiv "
           "2002.05202",
    .input_count = 2,
    .output_count = 1,
    .flags = TRI_OP_RECOMPUTABLE,
    .in_place = 1,
    .precision = TRI_PRECISION_FOLLOW,
    .streams = 2,
    .axes = TRI_AXES_ANY,
    .shape = silu_mul_shape,
    .gradient = silu_mul_gradient,
    .cost = silu_mul_cost,
};

const tri_op tri_op_silu_mul_grad = {
    .name = "silu_mul_grad",
    .doc = "gate, up, dy -> dgate, dup: with s = 1 / (1 + exp(-gate)): dup = dy * gate * s, dgate "
           "= dy * up * s * (1 + gate * (1 - s))",
    .input_count = 3,
    .output_count = 2,
    .in_place = 1,
    .shape = silu_mul_grad_shape,
    .cost = silu_mul_grad_cost,
};
