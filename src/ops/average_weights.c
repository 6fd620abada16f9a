// Defines the op that averages weights over steps (the recipe's section `average`), after the
// optimizer has updated them: its shape rule and cost. Which steps count, and how much, the host
// decides (nn/average.h).
#include "ops/rules.h"

static tri_status average_weights_shape(const void *attr, tri_op_signature *s) {
    (void)attr;
    return ops_update_shape("average_weights", s);
}

static tri_cost average_weights_cost(const void *attr, const tri_op_signature *s) {
    (void)attr;
    return ops_cost_per_input(s, 3);
}

const tri_op tri_op_average_weights = {
    .name = "average_weights",
    .doc = "average, param, step scalars: average = average + w * (param - average), where w is "
           "the step's weight, a step scalar; 1: average = param, whatever it was; 0: nothing "
           "changes",
    .input_count = 3,
    .flags = TRI_OP_UPDATE,
    .shape = average_weights_shape,
    .cost = average_weights_cost,
};
