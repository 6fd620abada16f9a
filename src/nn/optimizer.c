// Finds the op, attributes and states of the recipe's optimizer. With them the engine makes the
// kernels that update the parameters (engine/update.c), as it makes those of any other op.
#include "nn/optimizer.h"

#include <string.h>

// What a group of parameters has for itself.
typedef struct own_numbers {
    double lr_factor, weight_decay;
} own_numbers;

static tri_optimizer_attr sgd_attr(const tri_optimizer_options *o, own_numbers own) {
    return (tri_optimizer_attr){.sgd = {.lr_factor = own.lr_factor,
                                        .momentum = o->momentum,
                                        .dampening = o->dampening,
                                        .weight_decay = own.weight_decay,
                                        .nesterov = o->nesterov}};
}

static tri_optimizer_attr adam_attr(const tri_optimizer_options *o, own_numbers own) {
    return (tri_optimizer_attr){.adam = {.lr_factor = own.lr_factor,
                                         .beta1 = o->betas.items[0],
                                         .beta2 = o->betas.items[1],
                                         .eps = o->eps,
                                         .weight_decay = own.weight_decay}};
}

static tri_optimizer_attr adamw_attr(const tri_optimizer_options *o, own_numbers own) {
    tri_optimizer_attr attr = adam_attr(o, own);
    attr.adam.decoupled = true;
    return attr;
}

static tri_optimizer_attr adadelta_attr(const tri_optimizer_options *o, own_numbers own) {
    return (tri_optimizer_attr){.adadelta = {.lr_factor = own.lr_factor,
                                             .rho = o->rho,
                                             .eps = o->eps,
                                             .weight_decay = own.weight_decay}};
}

static const struct {
    const char *name;
    const tri_op *op;
    tri_optimizer_attr (*attr)(const tri_optimizer_options *options, own_numbers own);
    const char *states[TRI_MAX_OPTIMIZER_STATES - 1]; // one is left for averages
} rows[] = {
    {"sgd", &tri_op_sgd, sgd_attr, {"momentum_buffer"}}, // if it has momentum
    {"adam", &tri_op_adam, adam_attr, {"exp_avg", "exp_avg_sq"}},
    {"adamw", &tri_op_adam, adamw_attr, {"exp_avg", "exp_avg_sq"}},
    {"adadelta", &tri_op_adadelta, adadelta_attr, {"square_avg", "acc_delta"}},
};

static const char *const everything[] = {"*"};

tri_status tri_optimizer_make(tri_arena *arena, const tri_optimizer_options *options,
                              tri_optimizer *out) {
    tri_optimizer_group groups[TRI_MAX_OPTIMIZER_GROUPS];
    int row = 0, count, rows_count = sizeof rows / sizeof *rows;
    memset(out, 0, sizeof *out);
    while (row < rows_count && strcmp(rows[row].name, options->name) != 0) row++;
    if (row == rows_count)
        return TRI_FAIL(TRI_UNSUPPORTED, "optimizer.name: there is no optimizer '%s'",
                        options->name);
    TRI_TRY(tri_optimizer_groups_read(arena, options, groups, &count));
    out->op = rows[row].op;
    bool has_states = out->op != &tri_op_sgd || options->momentum != 0;
    for (int i = 0; i < TRI_MAX_OPTIMIZER_STATES - 1 && has_states && rows[row].states[i]; i++)
        out->state_names[out->state_count++] = rows[row].states[i];
    out->op_states = out->state_count;
    out->attrs[0] = rows[row].attr(options, (own_numbers){1, options->weight_decay});
    out->groups = TRI_NEW_ARRAY(arena, tri_parameter_group, TRI_MAX_PARAMETER_GROUPS);
    if (options->freeze.count > 0)
        out->groups[out->group_count++] = (tri_parameter_group){
            .key = "optimizer.freeze", .match = options->freeze, .needs_all = true, .frozen = true};
    int first = out->group_count;
    for (int i = 0; i < count; i++)
        out->groups[out->group_count++] = (tri_parameter_group){
            .key = "optimizer.groups", .match = groups[i].match, .frozen = groups[i].frozen};
    if (!options->decay_norms_and_biases)
        out->groups[out->group_count++] = (tri_parameter_group){
            .key = "optimizer", .match = {everything, 1}, .may_be_empty = true};
    for (int k = first, end = out->group_count; k < end; k++) {
        tri_optimizer_group own = {.lr_factor = 1, .weight_decay = options->weight_decay};
        if (k - first < count) own = groups[k - first];
        out->attrs[k + 1] = rows[row].attr(options, (own_numbers){own.lr_factor, own.weight_decay});
        if (options->decay_norms_and_biases || own.frozen || own.has_decay) continue;
        out->groups[out->group_count++] = (tri_parameter_group){.key = "optimizer"};
        out->groups[k].of_small = out->group_count;
        out->attrs[out->group_count] = rows[row].attr(options, (own_numbers){own.lr_factor, 0});
    }
    return TRI_OK;
}

void tri_optimizer_add_average(tri_optimizer *optimizer, const tri_average_options *options) {
    if (!tri_average_is_on(options)) return;
    optimizer->average = optimizer->state_count;
    optimizer->state_names[optimizer->state_count++] = "average";
}

bool tri_optimizer_averages(const tri_optimizer *optimizer) {
    return optimizer->state_count > optimizer->op_states;
}
