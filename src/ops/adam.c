// Defines the op that updates a parameter by Adam or AdamW: its shape rule and cost. Kernels are in
// src/device.
#include "ops/rules.h"

static tri_status adam_shape(const void *attr, tri_op_signature *s) {
    const tri_adam_attr *a = attr;
    TRI_TRY(ops_optimizer_shape("adam", a->lr_factor, s));
    if (!(a->beta1 >= 0 && a->beta1 < 1) || !(a->beta2 >= 0 && a->beta2 < 1))
        return TRI_FAIL(TRI_BAD_INPUT, "adam: betas must be at least 0 and below 1, not %g and %g",
                        a->beta1, a->beta2);
    if (!(a->eps >= 0) || !(a->weight_decay >= 0))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "adam: eps and weight_decay must be at least 0, not %g and %g", a->eps,
                        a->weight_decay);
    return TRI_OK;
}

static tri_cost adam_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 14);
}

static const tri_attr_field adam_fields[] = {
    OPS_FIELD(TRI_ATTR_FLOAT, tri_adam_attr, lr_factor),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_adam_attr, beta1),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_adam_attr, beta2),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_adam_attr, eps),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_adam_attr, weight_decay),
    OPS_FIELD(TRI_ATTR_BOOL, tri_adam_attr, decoupled),
    {0},
};

const tri_op tri_op_adam = {
    .name = "adam",
    .doc =
        "param, grad, step scalars, exp_avg, exp_avg_sq: g = scale * grad + weight_decay * param "
        "(decoupled: param *= 1 - lr * weight_decay instead); m = beta1 * m + (1 - beta1) * g; "
        "v = beta2 * v + (1 - beta2) * g^2; param -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 "
        "- beta2^t) + eps). Kingma and Ba 2015; Loshchilov and Hutter 2019",
    .input_count = 5,
    .flags = TRI_OP_UPDATE,
    .attr_bytes = sizeof(tri_adam_attr),
    .attr_fields = adam_fields,
    .shape = adam_shape,
    .cost = adam_cost,
};
