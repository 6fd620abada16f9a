// Defines the op that updates a parameter by Adadelta: its shape rule and cost. Kernels are in
// src/device.
#include "ops/rules.h"

static tri_status adadelta_shape(const void *attr, tri_op_signature *s) {
    const tri_adadelta_attr *a = attr;
    TRI_TRY(ops_optimizer_shape("adadelta", a->lr_factor, s));
    if (!(a->rho >= 0 && a->rho <= 1))
        return TRI_FAIL(TRI_BAD_INPUT, "adadelta: rho must be 0 to 1, not %g", a->rho);
    if (!(a->eps >= 0) || !(a->weight_decay >= 0))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "adadelta: eps and weight_decay must be at least 0, not %g and %g", a->eps,
                        a->weight_decay);
    return TRI_OK;
}

static tri_cost adadelta_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 16);
}

static const tri_attr_field adadelta_fields[] = {
    OPS_FIELD(TRI_ATTR_FLOAT, tri_adadelta_attr, lr_factor),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_adadelta_attr, rho),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_adadelta_attr, eps),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_adadelta_attr, weight_decay),
    {0},
};

const tri_op tri_op_adadelta = {
    .name = "adadelta",
    .doc = "param, grad, step scalars, square_avg, acc_delta: g = scale * grad + weight_decay * "
           "param; s = rho * s + (1 - rho) * g^2; d = sqrt(a + eps) / sqrt(s + eps) * g; a = rho * "
           "a + (1 - rho) * d^2; param -= lr * d. Zeiler 2012, with PyTorch's lr",
    .input_count = 5,
    .flags = TRI_OP_UPDATE,
    .attr_bytes = sizeof(tri_adadelta_attr),
    .attr_fields = adadelta_fields,
    .shape = adadelta_shape,
    .cost = adadelta_cost,
};
