// The option tables of the recipe's sections `optimizer` and `model`, from which recipes are read,
// checked and documented. recipe_loss.c has that of `loss`.
#include "nn/options.h"

#include "nn/models/models.h"

#include <stdlib.h>
#include <string.h>

#define S tri_optimizer_options

static const tri_option common_rows[] = {
    TRI_OPTION_NAME(S, name, "adadelta", "the optimizer"),
    TRI_OPTION_STRINGS(
        S, freeze, "[]",
        "parameters that are not trained, by name; * and ? match as in file names; batch "
        "norm's running statistics go on changing"),
    TRI_OPTION_TREE(
        S, groups, NULL,
        "settings of parameters by name: [{match: [\"*.bias\", \"*norm*\"], "
        "weight_decay: 0}, {match: \"head.*\", lr_factor: 10}, {match: \"layer2.*\", lr: 0.1x}, "
        "{match: \"layer1.*\", frozen: true}]; lr is a rate or, as lr_factor, a multiple of "
        "optimizer.lr; the first that matches holds; a name without * or ? has to match, and a "
        "pattern beside others that matches none is warned of"),
    TRI_OPTION_BOOL(S, decay_norms_and_biases, "true",
                    "false: weight_decay spares biases and parameters of one axis, as those of "
                    "norms, but for groups with a weight_decay of their own"),
};

static const tri_option group_rows[] = {
    TRI_OPTION_STRINGS(tri_optimizer_group, match, "[]", "patterns of names"),
    TRI_OPTION_STRING(tri_optimizer_group, lr, NULL, "learning rate, or its factor: 0.1x"),
    TRI_OPTION_FLOAT(tri_optimizer_group, lr_factor, "1", 1e-9, 1e9, "factor of the learning rate"),
    TRI_OPTION_FLOAT(tri_optimizer_group, weight_decay, NULL, 0, 1e6, "as optimizer.weight_decay"),
    TRI_OPTION_BOOL(tri_optimizer_group, frozen, "false", "the parameters are not trained"),
};
static const tri_option_table group_table =
    TRI_OPTION_TABLE("optimizer.groups", tri_optimizer_group, group_rows, "one group");

// Reads the rate of a group, or its factor with an x behind it, as a factor of optimizer.lr.
static tri_status read_rate(const tri_tree *map, double base, tri_optimizer_group *out) {
    const tri_tree *entry = tri_tree_get(map, "lr");
    char *end;
    if (!out->lr) return TRI_OK;
    if (tri_tree_get(map, "lr_factor"))
        return tri_tree_fail(entry, "a group of 'optimizer.groups' has 'lr' or 'lr_factor', not "
                                    "both");
    double number = strtod(out->lr, &end);
    bool is_factor = !strcmp(end, "x"), is_read = end > out->lr && (is_factor || !*end);
    out->lr_factor = is_factor || base == 0 ? number : number / base;
    if (is_read && out->lr_factor >= 1e-9 && out->lr_factor <= 1e9) return TRI_OK;
    return tri_tree_fail(entry,
                         "'optimizer.groups.lr' has to be a rate above 0, or a multiple of "
                         "optimizer.lr as 0.1x, not %s; frozen: true trains nothing",
                         out->lr);
}

static tri_status read_group(tri_arena *arena, const tri_tree *entry, double lr,
                             tri_optimizer_group *out) {
    if (entry->kind != TRI_TREE_MAP)
        return tri_tree_fail(entry, "a group of 'optimizer.groups' has to be a map: {match: "
                                    "\"head.*\", lr_factor: 10}");
    tri_tree *map = tri_tree_map(arena);
    map->file = entry->file;
    map->line = entry->line;
    for (int i = 0; i < entry->count; i++) {
        const tri_tree *item = entry->items[i];
        if (tri_tree_is_null(item)) continue; // as if it were not there
        tri_tree *value = tri_tree_copy(arena, item);
        bool is_one = !strcmp(item->key, "match") && item->kind == TRI_TREE_SCALAR;
        if (is_one) {
            value = tri_tree_list(arena);
            tri_tree_append(arena, value, tri_tree_copy(arena, item));
        }
        tri_tree_put(arena, map, item->key, value);
    }
    TRI_TRY(tri_option_decode(arena, &group_table, map, out));
    if (out->match.count == 0)
        return tri_tree_fail(entry, "a group of 'optimizer.groups' has no 'match': patterns of the "
                                    "names of its parameters");
    out->has_decay = tri_tree_get(map, "weight_decay") != NULL;
    if (out->frozen && (out->lr || tri_tree_get(map, "lr_factor") || out->has_decay))
        return tri_tree_fail(entry, "'lr', 'lr_factor' and 'weight_decay' have no effect on a "
                                    "frozen group of 'optimizer.groups'");
    return read_rate(map, lr, out);
}

tri_status tri_optimizer_groups_read(tri_arena *arena, const tri_optimizer_options *options,
                                     tri_optimizer_group *out, int *count) {
    const tri_tree *list = options->groups;
    *count = 0;
    if (tri_tree_is_null(list)) return TRI_OK;
    if (list->kind != TRI_TREE_LIST || list->count > TRI_MAX_OPTIMIZER_GROUPS)
        return tri_tree_fail(list, "'optimizer.groups' has to be a list of at most %d groups",
                             TRI_MAX_OPTIMIZER_GROUPS);
    for (int i = 0; i < list->count; i++) {
        TRI_TRY(read_group(arena, list->items[i], options->lr, &out[i]));
        if (tri_tree_is_null(tri_tree_get(list->items[i], "weight_decay")))
            out[i].weight_decay = options->weight_decay;
    }
    *count = list->count;
    return TRI_OK;
}

// Rows that several optimizers have.
#define RATE(preset)                                                                               \
    TRI_OPTION_FLOAT(S, lr, preset, 0, 1e6, "learning rate", .change = TRI_CHANGE_ON_ORDER)
#define L2_PENALTY                                                                                 \
    TRI_OPTION_FLOAT(S, weight_decay, "0", 0, 1e6, "L2 penalty, added to the gradient",            \
                     .change = TRI_CHANGE_ON_ORDER)
#define DECOUPLED_DECAY(preset)                                                                    \
    TRI_OPTION_FLOAT(S, weight_decay, preset, 0, 1e6,                                              \
                     "weights shrink by lr times this each update", .change = TRI_CHANGE_ON_ORDER)

static const tri_option sgd_rows[] = {
    RATE("1e-3"),
    TRI_OPTION_FLOAT(S, momentum, "0", 0, 1,
                     "fraction of the last update that is added to the next"),
    TRI_OPTION_FLOAT(S, dampening, "0", 0, 1,
                     "fraction of the gradient that is not added to the momentum"),
    TRI_OPTION_BOOL(S, nesterov, "false", "Nesterov's momentum"),
    L2_PENALTY,
};

static const tri_option adam_rows[] = {
    RATE("1e-3"),
    TRI_OPTION_FLOATS(S, betas, "[0.9, 0.999]", 0, 1, 2, "decay of the mean and of the square",
                      .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOAT(S, eps, "1e-8", 0, 1, "added to the denominator",
                     .change = TRI_CHANGE_ON_ORDER),
    L2_PENALTY,
};

static const tri_option adamw_rows[] = {
    RATE("1e-3"),
    TRI_OPTION_FLOATS(S, betas, "[0.9, 0.999]", 0, 1, 2, "decay of the mean and of the square",
                      .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOAT(S, eps, "1e-8", 0, 1, "added to the denominator",
                     .change = TRI_CHANGE_ON_ORDER),
    DECOUPLED_DECAY("0.01"),
};

static const tri_option adadelta_rows[] = {
    RATE("1.0"),
    TRI_OPTION_FLOAT(S, rho, "0.9", 0, 1, "decay of the averages of squares",
                     .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOAT(S, eps, "1e-6", 0, 1, "added under the roots", .change = TRI_CHANGE_ON_ORDER),
    L2_PENALTY,
};

static const tri_option adamax_rows[] = {
    RATE("2e-3"),
    TRI_OPTION_FLOATS(S, betas, "[0.9, 0.999]", 0, 1, 2, "decay of the mean and of the largest",
                      .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOAT(S, eps, "1e-8", 0, 1, "added to the gradient's size",
                     .change = TRI_CHANGE_ON_ORDER),
    L2_PENALTY,
};

static const tri_option adagrad_rows[] = {
    RATE("1e-2"),
    TRI_OPTION_FLOAT(S, lr_decay, "0", 0, 1e6,
                     "the rate of update t is divided by 1 + (t - 1) times this",
                     .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOAT(S, initial_accumulator_value, "0", 0, 1e30,
                     "with what the sum of squares begins"),
    TRI_OPTION_FLOAT(S, eps, "1e-10", 0, 1, "added to the root", .change = TRI_CHANGE_ON_ORDER),
    L2_PENALTY,
};

static const tri_option rmsprop_rows[] = {
    RATE("1e-2"),
    TRI_OPTION_FLOAT(S, alpha, "0.99", 0, 1, "decay of the mean of squares",
                     .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOAT(S, eps, "1e-8", 0, 1, "added to the root", .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_FLOAT(S, momentum, "0", 0, 1, "decay of the moving average of changes; 0: none"),
    TRI_OPTION_BOOL(S, centered, "false", "divide by the variance instead of the mean of squares"),
    L2_PENALTY,
};

static const tri_option lion_rows[] = {
    RATE("1e-4"),
    TRI_OPTION_FLOATS(S, betas, "[0.9, 0.99]", 0, 1, 2,
                      "share of the mean in the change, and its decay",
                      .change = TRI_CHANGE_ON_ORDER),
    DECOUPLED_DECAY("0"),
};

static const tri_option_variant optimizers[] = {
    TRI_OPTION_VARIANT("sgd", sgd_rows, "stochastic gradient descent"),
    TRI_OPTION_VARIANT("adam", adam_rows, "Adam"),
    TRI_OPTION_VARIANT("adamw", adamw_rows, "Adam with decoupled weight decay"),
    TRI_OPTION_VARIANT("adamax", adamax_rows,
                       "Adam with the largest gradient instead of the mean of squares"),
    TRI_OPTION_VARIANT("adadelta", adadelta_rows, "Adadelta"),
    TRI_OPTION_VARIANT("adagrad", adagrad_rows, "Adagrad"),
    TRI_OPTION_VARIANT("rmsprop", rmsprop_rows, "RMSprop"),
    TRI_OPTION_VARIANT("lion", lion_rows, "Lion: the sign of a moving average"),
};

static tri_status check_optimizer(const void *options, const tri_tree *map) {
    const tri_optimizer_options *o = options;
    const tri_tree *nesterov = tri_tree_get(map, "nesterov"), *betas = tri_tree_get(map, "betas");
    if (o->nesterov && (o->momentum <= 0 || o->dampening != 0))
        return tri_tree_fail(nesterov, "'optimizer.nesterov' needs a momentum and no dampening");
    for (int i = 0; i < o->betas.count; i++)
        if (o->betas.items[i] >= 1)
            return tri_tree_fail(betas, "'optimizer.betas' have to be less than 1");
    tri_optimizer_group groups[TRI_MAX_OPTIMIZER_GROUPS];
    int count;
    tri_arena *arena = tri_arena_create(NULL, "groups");
    tri_status status = tri_optimizer_groups_read(arena, o, groups, &count);
    tri_arena_destroy(arena);
    return status;
}

const tri_option_table tri_optimizer_table = TRI_OPTION_TABLE(
    "optimizer", S, common_rows, "the optimizer and its settings", .variants = optimizers,
    .variant_count = TRI_OPTION_COUNT(optimizers), .check = check_optimizer);

static const tri_option lora_rows[] = {
    TRI_OPTION_STRINGS(
        tri_lora, match, "[]",
        "linear layers that get an adapter, by name; all other parameters are then frozen; * and ? "
        "match as in file names, and a pattern without them also matches the end of a name, as "
        "q_proj of model.layers.0.self_attn.q_proj"),
    TRI_OPTION_INT(tri_lora, rank, "8", 1, INT32_MAX,
                   "rows of A [rank, in], columns of B [out, rank]"),
    TRI_OPTION_FLOAT(tri_lora, alpha, "16", 1e-9, 1e9,
                     "what an adapter makes is multiplied by alpha / rank"),
    TRI_OPTION_FLOAT(tri_lora, dropout, "0", 0, 1,
                     "rate at which an adapter's inputs are dropped, less than 1"),
};

static tri_status check_lora(const void *options, const tri_tree *map) {
    const tri_lora *o = options;
    if (o->dropout >= 1)
        return tri_tree_fail(tri_tree_get(map, "dropout"), "'lora.dropout' has to be less than 1");
    if (o->match.count > 0 || (o->rank == 8 && o->alpha == 16 && o->dropout == 0)) return TRI_OK;
    return tri_tree_fail(map, "'lora' has no effect without 'lora.match': patterns of the layers "
                              "that get an adapter, as [q_proj, v_proj]");
}

const tri_option_table tri_lora_table =
    TRI_OPTION_TABLE("lora", tri_lora, lora_rows, "low-rank adapters: fine-tuning of a few weights",
                     .check = check_lora);

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
