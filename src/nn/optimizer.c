// Finds the op, attributes and states of the recipe's optimizer. With them the engine makes the
// kernels that update the parameters (engine/update.c), as it makes those of any other op.
#include "nn/optimizer.h"

#include <string.h>

static void make_sgd(const tri_optimizer_options *o, tri_optimizer *out) {
    out->op = &tri_op_sgd;
    out->attr.sgd = (tri_sgd_attr){.momentum = o->momentum,
                                   .dampening = o->dampening,
                                   .weight_decay = o->weight_decay,
                                   .nesterov = o->nesterov};
    out->state_count = o->momentum != 0;
    out->state_names[0] = "momentum_buffer";
}

static void make_adam(const tri_optimizer_options *o, tri_optimizer *out) {
    out->op = &tri_op_adam;
    out->attr.adam = (tri_adam_attr){.beta1 = o->betas.items[0],
                                     .beta2 = o->betas.items[1],
                                     .eps = o->eps,
                                     .weight_decay = o->weight_decay};
    out->state_count = 2;
    out->state_names[0] = "exp_avg";
    out->state_names[1] = "exp_avg_sq";
}

static void make_adamw(const tri_optimizer_options *o, tri_optimizer *out) {
    make_adam(o, out);
    out->attr.adam.decoupled = true;
}

static void make_adadelta(const tri_optimizer_options *o, tri_optimizer *out) {
    out->op = &tri_op_adadelta;
    out->attr.adadelta =
        (tri_adadelta_attr){.rho = o->rho, .eps = o->eps, .weight_decay = o->weight_decay};
    out->state_count = 2;
    out->state_names[0] = "square_avg";
    out->state_names[1] = "acc_delta";
}

static const struct {
    const char *name;
    void (*make)(const tri_optimizer_options *options, tri_optimizer *out);
} rows[] = {
    {"sgd", make_sgd}, {"adam", make_adam}, {"adamw", make_adamw}, {"adadelta", make_adadelta}};

tri_status tri_optimizer_make(const tri_optimizer_options *options, tri_optimizer *out) {
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].name, options->name) != 0) continue;
        rows[i].make(options, out);
        return TRI_OK;
    }
    return TRI_FAIL(TRI_UNSUPPORTED, "optimizer.name: there is no optimizer '%s'", options->name);
}
