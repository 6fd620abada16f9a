// Defines the op that updates a parameter by SGD with momentum: its shape rule and cost. Kernels
// are in src/device.
#include "ops/rules.h"

static tri_status sgd_shape(const void *attr, tri_op_signature *s) {
    const tri_sgd_attr *a = attr;
    TRI_TRY(ops_optimizer_shape("sgd", a->lr_factor, s));
    if (!(a->momentum >= 0) || !(a->weight_decay >= 0))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "sgd: momentum and weight_decay must be at least 0, not %g and %g",
                        a->momentum, a->weight_decay);
    if (a->nesterov && (!(a->momentum > 0) || a->dampening != 0))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "sgd: nesterov needs a momentum above 0 and no dampening, not %g and %g",
                        a->momentum, a->dampening);
    if ((a->momentum != 0) != s->present[3])
        return TRI_FAIL(TRI_BAD_INPUT, "sgd: a momentum buffer goes with a momentum, which is %g",
                        a->momentum);
    return TRI_OK;
}

static tri_cost sgd_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, s->present[3] ? 7 : 5);
}

static const tri_attr_field sgd_fields[] = {
    OPS_FIELD(TRI_ATTR_FLOAT, tri_sgd_attr, lr_factor),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_sgd_attr, momentum),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_sgd_attr, dampening),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_sgd_attr, weight_decay),
    OPS_FIELD(TRI_ATTR_BOOL, tri_sgd_attr, nesterov),
    {0},
};

const tri_op tri_op_sgd = {
    .name = "sgd",
    .doc = "param, grad, step scalars, momentum buffer?: g = scale * grad + weight_decay * param; "
           "b = momentum * b + (1 - dampening) * g (the first b is g); param -= lr * (nesterov ? g "
           "+ momentum * b : b). PyTorch's torch.optim.SGD",
    .input_count = 4,
    .optional_inputs = 1,
    .flags = TRI_OP_UPDATE,
    .attr_bytes = sizeof(tri_sgd_attr),
    .attr_fields = sgd_fields,
    .shape = sgd_shape,
    .cost = sgd_cost,
};
