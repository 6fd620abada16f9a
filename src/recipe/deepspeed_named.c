// Reads the optimizers and schedulers of DeepSpeed's configuration: {"type": name, "params": {…}}.
#include "recipe/deepspeed_tables.h"

#include <string.h>
#include <strings.h>

// Checks that the value of a key such as adam_w_mode is true or false. Sets nothing in the recipe,
// because settle_adam or one_cycle has already read the value.
static tri_status check_bool(deepspeed_reader *reader, const deepspeed_row *row, const char *path,
                             tri_tree *node) {
    bool truth;
    if (deepspeed_is_auto(node) || tri_tree_to_bool(node, &truth)) return TRI_OK;
    return deepspeed_fail(reader, path, "has to be true or false");
}

// Reads a number of updates. A fraction of the run is rejected: the recipe's schedule.warmup_steps
// allows one, but DeepSpeed's warmup_num_steps does not.
static tri_status convert_count(deepspeed_reader *reader, const deepspeed_row *row,
                                const char *path, tri_tree *node) {
    int64_t number;
    if (deepspeed_is_auto(node)) return TRI_OK; // the caller has noted it
    if (!tri_tree_to_int(node, &number) || number < 1)
        return deepspeed_fail(reader, path, "has to be a whole number of at least 1");
    deepspeed_set(reader, row->to, path, tri_tree_int(reader->arena, number));
    return TRI_OK;
}

static const deepspeed_row adam_rows[] = {
    {.key = "lr", .to = "optimizer.lr"},
    {.key = "betas", .to = "optimizer.betas"},
    {.key = "eps", .to = "optimizer.eps"},
    {.key = "weight_decay", .to = "optimizer.weight_decay"},
    {.key = "adam_w_mode", .convert = check_bool},
    {.key = "torch_adam", .convert = check_bool},
    {.key = "fused"},
    {.key = "foreach"},
    {.key = "set_grad_none"},
    {.key = "amsgrad", .refusal = "set it to false", .harmless = "false"},
    {.key = "maximize", .refusal = "set it to false", .harmless = "false"},
    {.key = "bias_correction", .refusal = "set it to true", .harmless = "true"},
    {.key = "max_grad_norm", .refusal = "set gradient_clipping", .harmless = "0"},
};
static const deepspeed_row sgd_rows[] = {
    {.key = "lr", .to = "optimizer.lr"},
    {.key = "momentum", .to = "optimizer.momentum"},
    {.key = "dampening", .to = "optimizer.dampening"},
    {.key = "nesterov", .to = "optimizer.nesterov"},
    {.key = "weight_decay", .to = "optimizer.weight_decay"},
    {.key = "fused"},
    {.key = "foreach"},
    {.key = "maximize", .refusal = "set it to false", .harmless = "false"},
};
static const deepspeed_row adadelta_rows[] = {
    {.key = "lr", .to = "optimizer.lr"},
    {.key = "rho", .to = "optimizer.rho"},
    {.key = "eps", .to = "optimizer.eps"},
    {.key = "weight_decay", .to = "optimizer.weight_decay"},
    {.key = "foreach"},
    {.key = "maximize", .refusal = "set it to false", .harmless = "false"},
};
static const deepspeed_row warmup_rows[] = {
    {.key = "warmup_min_lr", .to = "schedule.warmup_min_lr"},
    {.key = "warmup_max_lr", .to = "schedule.max_lr"},
    {.key = "warmup_num_steps", .to = "schedule.warmup_steps", .convert = convert_count},
    {.key = "warmup_type", .to = "schedule.warmup_type"},
    {.key = "last_batch_iteration", .refusal = "set it to -1", .harmless = "-1"},
};
static const deepspeed_row warmup_decay_rows[] = {
    {.key = "total_num_steps", .to = "schedule.total_steps"},
    {.key = "warmup_min_lr", .to = "schedule.warmup_min_lr"},
    {.key = "warmup_max_lr", .to = "schedule.max_lr"},
    {.key = "warmup_num_steps", .to = "schedule.warmup_steps", .convert = convert_count},
    {.key = "warmup_type", .to = "schedule.warmup_type"},
    {.key = "last_batch_iteration", .refusal = "set it to -1", .harmless = "-1"},
};
static const deepspeed_row warmup_cosine_rows[] = {
    {.key = "total_num_steps", .to = "schedule.total_steps"},
    {.key = "warmup_min_ratio", .to = "schedule.warmup_min_ratio"},
    {.key = "warmup_num_steps", .to = "schedule.warmup_steps", .convert = convert_count},
    {.key = "cos_min_ratio", .to = "schedule.cos_min_ratio"},
    {.key = "warmup_type", .to = "schedule.warmup_type"},
    {.key = "last_batch_iteration", .refusal = "set it to -1", .harmless = "-1"},
};
static const deepspeed_row one_cycle_rows[] = {
    {.key = "cycle_min_lr", .to = "schedule.min_lr"},
    {.key = "cycle_max_lr", .to = "schedule.max_lr"},
    {.key = "decay_lr_rate", .to = "schedule.decay_rate"},
    {.key = "cycle_first_step_size", .to = "schedule.first_steps"},
    {.key = "cycle_second_step_size", .to = "schedule.second_steps"},
    {.key = "cycle_first_stair_count", .to = "schedule.first_stairs"},
    {.key = "cycle_second_stair_count", .to = "schedule.second_stairs"},
    {.key = "decay_step_size", .to = "schedule.decay_steps"},
    {.key = "cycle_momentum", .convert = check_bool},
    {.key = "cycle_min_mom"},
    {.key = "cycle_max_mom"},
    {.key = "decay_mom_rate"},
    {.key = "last_batch_iteration", .refusal = "set it to -1", .harmless = "-1"},
};

static bool is_true(const tri_tree *params, const char *key, bool unset) {
    bool value;
    const tri_tree *node = tri_tree_get(params, key);
    return node && tri_tree_to_bool(node, &value) ? value : unset;
}

static void name_optimizer(deepspeed_reader *reader, const char *name) {
    deepspeed_set(reader, "optimizer.name", "optimizer.type", tri_tree_string(reader->arena, name));
}

// Decides between Adam and AdamW. DeepSpeed's Adam decays weights as AdamW does, unless adam_w_mode
// is false. The default of weight_decay is 0, unless torch_adam chooses PyTorch's implementation,
// whose default for AdamW is another one.
static tri_status settle_adam(deepspeed_reader *reader, const tri_tree *params, bool is_adamw) {
    is_adamw = is_adamw || is_true(params, "adam_w_mode", true);
    name_optimizer(reader, is_adamw ? "adamw" : "adam");
    const tri_tree *decay = tri_tree_get(params, "weight_decay");
    if ((!decay || deepspeed_is_auto(decay)) && !is_true(params, "torch_adam", false))
        deepspeed_fall_back(reader, "optimizer.weight_decay", tri_tree_int(reader->arena, 0));
    return TRI_OK;
}

static tri_status adam(deepspeed_reader *reader, const tri_tree *params) {
    return settle_adam(reader, params, false);
}

static tri_status adamw(deepspeed_reader *reader, const tri_tree *params) {
    return settle_adam(reader, params, true);
}

static tri_status sgd(deepspeed_reader *reader, const tri_tree *params) {
    name_optimizer(reader, "sgd");
    return TRI_OK;
}

static tri_status adadelta(deepspeed_reader *reader, const tri_tree *params) {
    name_optimizer(reader, "adadelta");
    return TRI_OK;
}

static void name_schedule(deepspeed_reader *reader, const char *name, bool warms_up) {
    deepspeed_set(reader, "schedule.name", "scheduler.type", tri_tree_string(reader->arena, name));
    if (warms_up)
        deepspeed_fall_back(reader, "schedule.warmup_steps", tri_tree_int(reader->arena, 1000));
}

static tri_status warmup(deepspeed_reader *reader, const tri_tree *params) {
    name_schedule(reader, "warmup", true);
    return TRI_OK;
}

static tri_status warmup_decay(deepspeed_reader *reader, const tri_tree *params) {
    name_schedule(reader, "warmup-decay", true);
    if (!tri_tree_get(params, "warmup_max_lr"))
        deepspeed_fall_back(reader, "schedule.max_lr", tri_tree_double(reader->arena, 0.001));
    return TRI_OK;
}

static tri_status warmup_cosine(deepspeed_reader *reader, const tri_tree *params) {
    name_schedule(reader, "warmup-cosine", true);
    return TRI_OK;
}

// Handles OneCycle's momentum. By default, DeepSpeed's OneCycle varies the momentum (beta1) of
// optimizers that have one. This program does not support that, so the configuration has to turn it
// off.
static tri_status one_cycle(deepspeed_reader *reader, const tri_tree *params) {
    static const char *const without[] = {"SGD", "Adadelta"};
    const tri_tree *type = tri_tree_find(reader->root, "optimizer.type");
    bool has_betas = true;
    for (size_t i = 0; type && i < sizeof without / sizeof *without; i++)
        if (type->kind == TRI_TREE_SCALAR && !strcasecmp(type->text, without[i])) has_betas = false;
    name_schedule(reader, "triangle", false);
    if (!has_betas || !is_true(params, "cycle_momentum", true)) return TRI_OK;
    return deepspeed_fail(reader, "scheduler.params.cycle_momentum",
                          "is true by default, but this version of Trireme keeps momentum "
                          "constant; set it to false");
}

typedef struct named {
    const char *type;
    deepspeed_table params;
    tri_status (*settle)(deepspeed_reader *reader, const tri_tree *params);
    const char *refusal; // what to do instead, if the optimizer or scheduler is not supported
} named;

#define ROWS(array)                                                                                \
    { array, TRI_OPTION_COUNT(array) }
static const char *const use_adamw = "use AdamW";

static const named optimizers[] = {
    {"Adam", ROWS(adam_rows), adam, NULL},        {"AdamW", ROWS(adam_rows), adamw, NULL},
    {"SGD", ROWS(sgd_rows), sgd, NULL},           {"Adadelta", ROWS(adadelta_rows), adadelta, NULL},
    {.type = "OneBitAdam", .refusal = use_adamw}, {.type = "ZeroOneAdam", .refusal = use_adamw},
    {.type = "Lamb", .refusal = use_adamw},       {.type = "OneBitLamb", .refusal = use_adamw},
    {.type = "Lion", .refusal = use_adamw},       {.type = "Muon", .refusal = use_adamw},
    {.type = "MuAdam", .refusal = use_adamw},     {.type = "MuAdamW", .refusal = use_adamw},
    {.type = "MuSGD", .refusal = "use SGD"},      {.type = "Adagrad", .refusal = use_adamw},
    {.type = "Adamax", .refusal = use_adamw},     {.type = "RMSprop", .refusal = use_adamw},
};

static const named schedulers[] = {
    {"WarmupLR", ROWS(warmup_rows), warmup, NULL},
    {"WarmupDecayLR", ROWS(warmup_decay_rows), warmup_decay, NULL},
    {"WarmupCosineLR", ROWS(warmup_cosine_rows), warmup_cosine, NULL},
    {"OneCycle", ROWS(one_cycle_rows), one_cycle, NULL},
    {.type = "LRRangeTest", .refusal = "run with several optimizer.lr instead"},
};

static tri_status read_named(deepspeed_reader *reader, const char *path, const tri_tree *map,
                             const named *rows, int count) {
    tri_arena *arena = reader->arena;
    if (deepspeed_is_auto(map)) return TRI_OK;
    if (map->kind != TRI_TREE_MAP) return deepspeed_fail(reader, path, "has to be an object");
    for (int i = 0; i < map->count; i++) {
        static const char *const keys[] = {"type", "params", "legacy_fusion"};
        const char *key = map->items[i]->key;
        bool known = false;
        for (int k = 0; k < TRI_OPTION_COUNT(keys); k++) known = known || !strcmp(keys[k], key);
        const char *near = known ? NULL : tri_option_nearest(key, keys, TRI_OPTION_COUNT(keys));
        if (!known)
            return TRI_FAIL(TRI_BAD_INPUT, "%s: unknown key '%s.%.100s'%s%s%s", reader->file, path,
                            key, near ? " (did you mean '" : "", near ? near : "",
                            near ? "'?)" : "");
    }
    const tri_tree *type = tri_tree_get(map, "type"), *params = tri_tree_get(map, "params");
    if (tri_tree_is_null(type) || deepspeed_is_auto(type)) return TRI_OK;
    const char **types = TRI_NEW_ARRAY(arena, const char *, count);
    int row = 0;
    for (int i = 0; i < count; i++) types[i] = rows[i].type;
    while (row < count && (type->kind != TRI_TREE_SCALAR || strcasecmp(types[row], type->text)))
        row++;
    path = tri_arena_printf(arena, "%s.type", path);
    if (row == count) {
        const char *text = tri_yaml_flow(arena, type);
        const char *near = tri_option_nearest(text, types, count);
        const char *known = "";
        for (int i = 0; i < count; i++)
            if (!rows[i].refusal)
                known = tri_arena_printf(arena, "%s%s%s", known, *known ? ", " : "", types[i]);
        return near ? deepspeed_fail(reader, path, "is unknown: %.100s (did you mean '%s'?)", text,
                                     near)
                    : deepspeed_fail(reader, path, "is unknown: %.100s (known: %s)", text, known);
    }
    if (rows[row].refusal)
        return deepspeed_fail(reader, path, "%s is not in this version of Trireme; %s",
                              rows[row].type, rows[row].refusal);
    TRI_TRY(rows[row].settle(reader, params));
    return deepspeed_walk(reader, &rows[row].params,
                          tri_arena_printf(arena, "%.*sparams.", (int)strlen(path) - 4, path), "",
                          params);
}

tri_status deepspeed_optimizer(deepspeed_reader *reader, const deepspeed_row *row, const char *path,
                               tri_tree *node) {
    return read_named(reader, path, node, optimizers, TRI_OPTION_COUNT(optimizers));
}

tri_status deepspeed_scheduler(deepspeed_reader *reader, const deepspeed_row *row, const char *path,
                               tri_tree *node) {
    return read_named(reader, path, node, schedulers, TRI_OPTION_COUNT(schedulers));
}
