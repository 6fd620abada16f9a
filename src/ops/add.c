// Defines the op that adds two tensors: its shape rule and gradient rule. Kernels, which compute
// it, are in src/device.
#include "ops/rules.h"

#include "tensor/half.h"

static tri_status add_shape(const void *attr, tri_op_signature *s) {
    tri_dtype a = s->in_type[0], b = s->in_type[1];
    TRI_TRY(ops_want_float("add", "input 0", a));
    TRI_TRY(ops_want_float("add", "input 1", b));
    TRI_TRY(ops_want_shape("add", "b", &s->in[1], s->in[0]));
    bool widens = a == TRI_F32 && tri_dtype_is_half(b);
    if (a != b && !widens && !(b == TRI_F32 && tri_dtype_is_half(a)))
        return TRI_FAIL(TRI_BAD_INPUT, "add: %s and %s have no sum", tri_dtype_name(a),
                        tri_dtype_name(b));
    s->out[0] = s->in[0];
    s->out_type[0] = a == b ? a : TRI_F32;
    return TRI_OK;
}

static void add_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                         const bool *wanted, tri_value *in_grads) {
    for (int i = 0; i < 2; i++)
        if (wanted[i]) in_grads[i] = ops_gradient_as(graph, node, node->inputs[i], out_grads[0]);
}

const tri_op tri_op_add = {
    .name = "add",
    .doc = "a, b -> a + b, of one shape; of F32 and a half type, F32",
    .input_count = 2,
    .output_count = 1,
    .in_place = 1,
    .precision = TRI_PRECISION_ANY,
    .streams = 2,
    .axes = TRI_AXES_ANY,
    .shape = add_shape,
    .gradient = add_gradient,
};
