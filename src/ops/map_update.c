// Defines the op that updates a parameter by a formula: its shape rule and cost. Kernels are in
// src/device. Optimizers whose rule concerns each element alone need no kernels of their own.
#include "ops/rules.h"

int tri_map_update_count(const tri_formula *formula) {
    int states_end = TRI_UPDATE_STATES + formula->output_count - 1;
    return formula->input_count > states_end ? states_end : 0;
}

static tri_status map_update_shape(const void *attr, tri_op_signature *s) {
    const tri_map_update_attr *a = attr;
    int states = a->formula.output_count - 1;
    TRI_TRY(ops_optimizer_shape("map_update", a->lr_factor, s));
    for (int i = 0; i < TRI_FORMULA_OUTPUTS - 1; i++)
        if (s->present[3 + i] != (i < states))
            return TRI_FAIL(TRI_BAD_INPUT, "map_update: the formula has %d states", states);
    int least = TRI_UPDATE_STATES + states;
    if (a->formula.input_count != least && a->formula.input_count != least + 1)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "map_update: the formula has to have %d or %d inputs, not %d", least,
                        least + 1, a->formula.input_count);
    return TRI_OK;
}

static tri_cost map_update_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, ((const tri_map_update_attr *)attr)->formula.step_count);
}

static void print_formula(const void *attr, FILE *out) {
    tri_formula_print(&((const tri_map_update_attr *)attr)->formula, out);
}

static const tri_attr_field map_update_fields[] = {
    OPS_FIELD(TRI_ATTR_FLOAT, tri_map_update_attr, lr_factor),
    {.name = "formula", .kind = TRI_ATTR_PRINTED, .print = print_formula},
    {0},
};

const tri_op tri_op_map_update = {
    .name = "map_update",
    .doc =
        "param, grad, step scalars, states: param, states = a formula of param, grad, the factor "
        "of the gradient, the learning rate, the number of the update and the states",
    .input_count = 3 + TRI_FORMULA_OUTPUTS - 1,
    .optional_inputs = TRI_FORMULA_OUTPUTS - 1,
    .flags = TRI_OP_UPDATE,
    .attr_bytes = sizeof(tri_map_update_attr),
    .attr_fields = map_update_fields,
    .shape = map_update_shape,
    .cost = map_update_cost,
};
