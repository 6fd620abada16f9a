// Finds the op, attributes and states of the recipe's optimizer. With them the engine makes the
// kernels that update the parameters (engine/update.c), as it makes those of any other op.
#include "nn/optimizer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
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

// The attributes of an update by a formula, in which p is the parameter, g its gradient, and lr the
// learning rate. `names`: the states and, if the rule needs the number of the update, t, each with
// a comma before it. The rest of the text is what stands behind: parts, an arrow, and the new
// parameter and states.
static tri_optimizer_attr formula_attr(own_numbers own, bool decays_gradient, const char *names,
                                       const char *format, ...) {
    char rule[512], decay[48] = "", text[1024];
    va_list numbers;
    va_start(numbers, format);
    vsnprintf(rule, sizeof rule, format, numbers);
    va_end(numbers);
    // Without weight decay, a parameter that is not finite leaves the gradient as it is.
    if (decays_gradient && own.weight_decay != 0)
        snprintf(decay, sizeof decay, " + %.17g * p", own.weight_decay);
    snprintf(text, sizeof text, "p, grad, scale, lr%s, g = grad * scale%s, %s", names, decay, rule);
    tri_optimizer_attr attr = {.map_update = {.lr_factor = own.lr_factor}};
    tri_status status = tri_formula_parse(text, NULL, &attr.map_update.formula);
    TRI_ASSERT(status == TRI_OK && "a rule of this file");
    return attr;
}

static tri_optimizer_attr adamax_attr(const tri_optimizer_options *o, own_numbers own) {
    double beta1 = o->betas.items[0], beta2 = o->betas.items[1];
    // 1 - beta1^t, which single precision would round.
    double rate = fmax(log(beta1), -1e3);
    return formula_attr(own, true, ", m, u, t",
                        "a = %.17g * m + %.17g * g, b = max(%.17g * u, abs(g) + %.17g) -> "
                        "p + lr / expm1(t * %.17g) * a / b, a, b",
                        beta1, 1 - beta1, beta2, o->eps, rate);
}

static tri_optimizer_attr adagrad_attr(const tri_optimizer_options *o, own_numbers own) {
    bool counts = o->initial_accumulator_value != 0 || o->lr_decay != 0;
    char sum[64] = "s", rate[64] = "lr";
    if (counts) snprintf(sum, sizeof sum, "(t <= 1 ? %.17g : s)", o->initial_accumulator_value);
    if (counts) snprintf(rate, sizeof rate, "lr / (1 + (t - 1) * %.17g)", o->lr_decay);
    return formula_attr(own, true, counts ? ", s, t" : ", s",
                        "a = %s + g * g -> p - %s * g / (sqrt(a) + %.17g), a", sum, rate, o->eps);
}

static tri_optimizer_attr rmsprop_attr(const tri_optimizer_options *o, own_numbers own) {
    bool moves = o->momentum != 0, centers = o->centered;
    char names[16], mean[96] = "", change[64] = "d";
    snprintf(names, sizeof names, ", s%s%s", moves ? ", m" : "", centers ? ", c" : "");
    if (centers) snprintf(mean, sizeof mean, "e = %.17g * c + %.17g * g, ", o->alpha, 1 - o->alpha);
    if (moves) snprintf(change, sizeof change, "%.17g * m + d", o->momentum);
    return formula_attr(own, true, names,
                        "v = %.17g * s + %.17g * g * g, %sd = g / (sqrt(%s) + %.17g), b = %s -> "
                        "p - lr * b, v%s%s",
                        o->alpha, 1 - o->alpha, mean, centers ? "v - e * e" : "v", o->eps, change,
                        moves ? ", b" : "", centers ? ", e" : "");
}

// Chen et al. 2023, Symbolic Discovery of Optimization Algorithms, algorithm 2.
static tri_optimizer_attr lion_attr(const tri_optimizer_options *o, own_numbers own) {
    double beta1 = o->betas.items[0], beta2 = o->betas.items[1];
    return formula_attr(own, false, ", m",
                        "c = %.17g * m + %.17g * g -> p - lr * (sign(c) + %.17g * p), "
                        "%.17g * m + %.17g * g",
                        beta1, 1 - beta1, own.weight_decay, beta2, 1 - beta2);
}

static const struct {
    const char *name;
    const tri_op *op;
    tri_optimizer_attr (*attr)(const tri_optimizer_options *options, own_numbers own);
    const char *states[TRI_MAX_OPTIMIZER_STATES - 1]; // one is left for averages
} rows[] = {
    {"sgd", &tri_op_sgd, sgd_attr, {"momentum_buffer"}},
    {"adam", &tri_op_adam, adam_attr, {"exp_avg", "exp_avg_sq"}},
    {"adamw", &tri_op_adam, adamw_attr, {"exp_avg", "exp_avg_sq"}},
    {"adamax", &tri_op_map_update, adamax_attr, {"exp_avg", "exp_inf"}},
    {"adadelta", &tri_op_adadelta, adadelta_attr, {"square_avg", "acc_delta"}},
    {"adagrad", &tri_op_map_update, adagrad_attr, {"sum"}},
    {"rmsprop", &tri_op_map_update, rmsprop_attr, {"square_avg", "momentum_buffer", "grad_avg"}},
    {"lion", &tri_op_map_update, lion_attr, {"exp_avg"}},
};

// Whether an optimizer with these options has the state.
static bool has_state(const tri_optimizer_options *o, const char *state) {
    if (!strcmp(state, "momentum_buffer")) return o->momentum != 0;
    return strcmp(state, "grad_avg") != 0 || o->centered;
}

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
    for (int i = 0; i < TRI_MAX_OPTIMIZER_STATES - 1 && rows[row].states[i]; i++)
        if (has_state(options, rows[row].states[i]))
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
