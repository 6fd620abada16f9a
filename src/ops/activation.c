// Defines the ops ReLU and leaky ReLU, and activation_grad, which computes the gradient of either,
// also where it is fused into another op: their shape rules and gradient rules. Kernels, which
// compute them, are in src/device.
#include "ops/rules.h"

static tri_status relu_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(ops_want_float("relu", "x", s->in_type[0]));
    ops_like_first(s);
    return TRI_OK;
}

static tri_status leaky_relu_shape(const void *attr, tri_op_signature *s) {
    const tri_leaky_relu_attr *a = attr;
    TRI_TRY(ops_want_float("leaky_relu", "x", s->in_type[0]));
    TRI_TRY(ops_want_activation("leaky_relu", TRI_ACTIVATION_LEAKY_RELU, a->slope));
    ops_like_first(s);
    return TRI_OK;
}

static tri_status activation_grad_shape(const void *attr, tri_op_signature *s) {
    const tri_activation_grad_attr *a = attr;
    TRI_TRY(ops_want_one_type("activation_grad", s, 0, 2));
    TRI_TRY(ops_want_activation("activation_grad", a->activation, a->slope));
    TRI_TRY(ops_want_shape("activation_grad", "dy", &s->in[1], s->in[0]));
    ops_like_first(s);
    return TRI_OK;
}

static void relu_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                          const bool *wanted, tri_value *in_grads) {
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    in_grads[0] = ops_activation_gradient(graph, node, TRI_ACTIVATION_RELU, 0, node->outputs[0],
                                          out_grads[0]);
}

static void leaky_relu_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                                const bool *wanted, tri_value *in_grads) {
    const tri_leaky_relu_attr *a = node->attr;
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    in_grads[0] = ops_activation_gradient(graph, node, TRI_ACTIVATION_LEAKY_RELU, a->slope,
                                          node->outputs[0], out_grads[0]);
}

static const tri_attr_field leaky_relu_fields[] = {
    OPS_FIELD(TRI_ATTR_FLOAT, tri_leaky_relu_attr, slope),
    {0},
};

static const tri_attr_field activation_grad_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_activation_grad_attr, activation),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_activation_grad_attr, slope),
    {0},
};

const tri_op tri_op_relu = {
    .name = "relu",
    .doc = "x -> y: max(x, 0)",
    .input_count = 1,
    .output_count = 1,
    .in_place = 1,
    .precision = TRI_PRECISION_FOLLOW,
    .streams = 1,
    .axes = TRI_AXES_ANY,
    .shape = relu_shape,
    .gradient = relu_gradient,
};

const tri_op tri_op_leaky_relu = {
    .name = "leaky_relu",
    .doc = "x -> y: x where x > 0, else slope * x",
    .input_count = 1,
    .output_count = 1,
    .in_place = 1,
    .precision = TRI_PRECISION_FOLLOW,
    .streams = 1,
    .axes = TRI_AXES_ANY,
    .attr_bytes = sizeof(tri_leaky_relu_attr),
    .attr_fields = leaky_relu_fields,
    .shape = leaky_relu_shape,
    .gradient = leaky_relu_gradient,
};

const tri_op tri_op_activation_grad = {
    .name = "activation_grad",
    .doc =
        "y, dy -> dx: dy where y > 0, else dy * slope (0 for relu); y is the activation's output",
    .input_count = 2,
    .output_count = 1,
    .in_place = 2,
    .attr_bytes = sizeof(tri_activation_grad_attr),
    .attr_fields = activation_grad_fields,
    .shape = activation_grad_shape,
};
