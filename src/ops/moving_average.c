// Defines the op that updates batch norm's running statistics (running_mean, running_var) after a
// step: its shape rule and cost.
#include "ops/rules.h"

static tri_status moving_average_shape(const void *attr, tri_op_signature *s) {
    const tri_moving_average_attr *a = attr;
    TRI_TRY(ops_update_shape("moving_average", s));
    if (!(a->momentum >= 0 && a->momentum <= 1))
        return TRI_FAIL(TRI_BAD_INPUT, "moving_average: momentum must be 0 to 1, not %g",
                        a->momentum);
    return TRI_OK;
}

static tri_cost moving_average_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 4);
}

static const tri_attr_field moving_average_fields[] = {
    OPS_FIELD(TRI_ATTR_FLOAT, tri_moving_average_attr, momentum),
    {0},
};

const tri_op tri_op_moving_average = {
    .name = "moving_average",
    .doc =
        "statistic, grad, step scalars: statistic = (1 - momentum) * statistic + momentum * grad "
        "* statistic scale; grad is the sum over the step's samples; momentum 0: 1 / the number of "
        "the update",
    .input_count = 3,
    .flags = TRI_OP_UPDATE,
    .attr_bytes = sizeof(tri_moving_average_attr),
    .attr_fields = moving_average_fields,
    .shape = moving_average_shape,
    .cost = moving_average_cost,
};
