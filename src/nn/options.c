// The option tables of the recipe's sections `optimizer`, `loss` and `model`, from which recipes
// are read, checked and documented.
#include "nn/options.h"

#include "nn/models/models.h"

#define S tri_optimizer_options

static const tri_option common_rows[] = {
    TRI_OPTION_NAME(S, name, "adadelta", "the optimizer"),
    TRI_OPTION_STRINGS(S, freeze, "[]",
                       "parameters that are not trained, by name; * and ? match as in file names"),
};

static const tri_option sgd_rows[] = {
    TRI_OPTION_FLOAT(S, lr, "1e-3", 0, 1e6, "learning rate", .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOAT(S, momentum, "0", 0, 1,
                     "fraction of the last update that is added to the next"),
    TRI_OPTION_FLOAT(S, dampening, "0", 0, 1,
                     "fraction of the gradient that is not added to the momentum"),
    TRI_OPTION_BOOL(S, nesterov, "false", "Nesterov's momentum"),
    TRI_OPTION_FLOAT(S, weight_decay, "0", 0, 1e6, "L2 penalty, added to the gradient",
                     .change = TRI_CHANGE_ON_ORDER),
};

static const tri_option adam_rows[] = {
    TRI_OPTION_FLOAT(S, lr, "1e-3", 0, 1e6, "learning rate", .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOATS(S, betas, "[0.9, 0.999]", 0, 1, 2, "decay of the mean and of the square",
                      .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOAT(S, eps, "1e-8", 0, 1, "added to the denominator",
                     .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOAT(S, weight_decay, "0", 0, 1e6, "L2 penalty, added to the gradient",
                     .change = TRI_CHANGE_ON_ORDER),
};

static const tri_option adamw_rows[] = {
    TRI_OPTION_FLOAT(S, lr, "1e-3", 0, 1e6, "learning rate", .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOATS(S, betas, "[0.9, 0.999]", 0, 1, 2, "decay of the mean and of the square",
                      .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOAT(S, eps, "1e-8", 0, 1, "added to the denominator",
                     .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOAT(S, weight_decay, "0.01", 0, 1e6, "weights shrink by lr times this each update",
                     .change = TRI_CHANGE_ON_ORDER),
};

static const tri_option adadelta_rows[] = {
    TRI_OPTION_FLOAT(S, lr, "1.0", 0, 1e6, "learning rate", .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOAT(S, rho, "0.9", 0, 1, "decay of the averages of squares",
                     .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOAT(S, eps, "1e-6", 0, 1, "added under the roots", .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOAT(S, weight_decay, "0", 0, 1e6, "L2 penalty, added to the gradient",
                     .change = TRI_CHANGE_ON_ORDER),
};

static const tri_option_variant optimizers[] = {
    TRI_OPTION_VARIANT("sgd", sgd_rows, "stochastic gradient descent"),
    TRI_OPTION_VARIANT("adam", adam_rows, "Adam"),
    TRI_OPTION_VARIANT("adamw", adamw_rows, "Adam with decoupled weight decay"),
    TRI_OPTION_VARIANT("adadelta", adadelta_rows, "Adadelta"),
};

static tri_status check_optimizer(const void *options, const tri_tree *map) {
    const tri_optimizer_options *o = options;
    const tri_tree *nesterov = tri_tree_get(map, "nesterov"), *betas = tri_tree_get(map, "betas");
    if (o->nesterov && (o->momentum <= 0 || o->dampening != 0))
        return tri_tree_fail(nesterov, "'optimizer.nesterov' needs a momentum and no dampening");
    for (int i = 0; i < o->betas.count; i++)
        if (o->betas.items[i] >= 1)
            return tri_tree_fail(betas, "'optimizer.betas' have to be less than 1");
    return TRI_OK;
}

const tri_option_table tri_optimizer_table = TRI_OPTION_TABLE(
    "optimizer", S, common_rows, "the optimizer and its settings", .variants = optimizers,
    .variant_count = TRI_OPTION_COUNT(optimizers), .check = check_optimizer);

static const tri_option loss_rows[] = {
    TRI_OPTION_FLOAT(tri_loss_options, label_smoothing, "0", 0, 1,
                     "of cross-entropies: how much of each label all classes share evenly, in "
                     "training and evaluation"),
};

const tri_option_table tri_loss_table =
    TRI_OPTION_TABLE("loss", tri_loss_options, loss_rows, "settings of the model's loss");

static const tri_option model_rows[] = {
    TRI_OPTION_STRING(tri_model_options, name, NULL,
                      "a built-in model, or ./FILE.so: a shared object with a task, whose code is "
                      "executed",
                      .path = TRI_PATH_OR_NAME),
    TRI_OPTION_ROW(tri_model_options, options, const tri_tree *, TRI_OPTION_IS_REST, NULL,
                   "the model's own options", .kinds = tri_model_tables),
};

const tri_option_table tri_model_table =
    TRI_OPTION_TABLE("model", tri_model_options, model_rows, "the network to train");
