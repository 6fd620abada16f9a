// The recipe's optimizer: the op that updates a parameter, the op's attributes, and the states that
// the optimizer keeps for each parameter between updates, such as Adam's averages. The engine runs
// this op without knowing which optimizer it is.
#ifndef TRIREME_NN_OPTIMIZER_H
#define TRIREME_NN_OPTIMIZER_H

#include "nn/average.h"
#include "nn/options.h"
#include "ops/formula.h"
#include "ops/ops.h"

enum {
    TRI_MAX_OPTIMIZER_STATES = TRI_FORMULA_OUTPUTS, // three of the optimizer, and an average
    // Those of the recipe, of all other parameters, and of optimizer.freeze; and for the first two
    // one each of biases and norms.
    TRI_MAX_PARAMETER_GROUPS = 2 * (TRI_MAX_OPTIMIZER_GROUPS + 1) + 1
};

typedef union tri_optimizer_attr {
    tri_sgd_attr sgd;
    tri_adam_attr adam;
    tri_adadelta_attr adadelta;
    tri_map_update_attr map_update;
} tri_optimizer_attr;

typedef struct tri_optimizer {
    const tri_op *op;
    // The groups of parameters, and the op's attributes by tri_parameter_info.group, which is 0 for
    // parameters of no group.
    tri_parameter_group *groups;
    int group_count;
    tri_optimizer_attr attrs[TRI_MAX_PARAMETER_GROUPS + 1];
    // States per parameter; each is F32, has the parameter's shape and starts as zero. The op reads
    // and writes the first `op_states`.
    int state_count, op_states;
    const char *state_names[TRI_MAX_OPTIMIZER_STATES]; // PyTorch's: "exp_avg", …
    // The state that is the average of the parameter over steps (nn/average.h), which the op
    // average_weights updates; of use only if the optimizer averages.
    int average;
} tri_optimizer;

// Makes the optimizer that the options name; `arena` gets what it points to. TRI_UNSUPPORTED if
// there is none of that name.
tri_status tri_optimizer_make(tri_arena *arena, const tri_optimizer_options *options,
                              tri_optimizer *out);
// Adds the average of each parameter to its states, if the options ask for one.
void tri_optimizer_add_average(tri_optimizer *optimizer, const tri_average_options *options);
bool tri_optimizer_averages(const tri_optimizer *optimizer);

#endif
