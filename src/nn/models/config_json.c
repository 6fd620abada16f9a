// Options of built-in models from Hugging Face's config.json.
#include "nn/models/config_json.h"

#include <string.h>

// The models that have such files, and a function that fills in what follows from other options.
static const struct hub_model {
    const tri_task *task;
    const tri_option_table *table;
    void (*complete)(void *options);
} hub_models[] = {
    {&tri_model_llama, &model_llama_options, model_llama_complete},
    {&tri_model_gpt2, &model_gpt2_options, model_gpt2_complete},
};

typedef struct preset {
    const char *key, *value;
} preset;

// By model_type: the model, and what is so in all models of this type, or where the file does not
// say it.
static const struct family {
    const char *type;
    const tri_task *task;
    preset always[2], otherwise[2];
} families[] = {
    {"llama", &tri_model_llama, {{NULL}}, {{NULL}}},
    {"mistral", &tri_model_llama, {{NULL}}, {{"sliding_window", "4096"}}},
    {"qwen2", &tri_model_llama, {{"qkv_bias", "true"}}, {{NULL}}},
    {"qwen3", &tri_model_llama, {{"qk_norm", "true"}}, {{"head_dim", "128"}}},
    {"gpt2", &tri_model_gpt2, {{NULL}}, {{NULL}}},
};

enum { FAMILIES = sizeof families / sizeof *families };

// Keys without an option, and the values that the models have. A key that is missing or null has
// the first one.
static const struct {
    const char *key, *values[3];
} fixed[] = {
    {"hidden_act", {"silu", "swish"}},
    {"add_cross_attention", {"false"}},
};

static const struct hub_model *hub_model_of(const tri_task *task) {
    for (size_t i = 0; i < sizeof hub_models / sizeof *hub_models; i++)
        if (hub_models[i].task == task) return &hub_models[i];
    return NULL;
}

bool model_has_config(const tri_task *task) { return hub_model_of(task) != NULL; }

const tri_option_table *model_config_table(const tri_task *task) {
    return hub_model_of(task)->table;
}

static const tri_tree *not_null(const tri_tree *node) {
    return tri_tree_is_null(node) ? NULL : node;
}

static bool is_text(const tri_tree *node, const char *text) {
    return node && node->kind == TRI_TREE_SCALAR && !strcmp(node->text, text);
}

static bool is_true(const tri_tree *node) {
    bool truth;
    return node && tri_tree_to_bool(node, &truth) && truth;
}

static tri_status find_family(tri_arena *arena, const tri_tree *config, const struct family **out) {
    const tri_tree *type = tri_tree_get(config, "model_type");
    const char *list = "";
    if (!type) return TRI_FAIL(TRI_NOT_FOUND, "the file has no model_type");
    for (int i = 0; i < FAMILIES; i++) {
        *out = &families[i];
        if (is_text(type, families[i].type)) return TRI_OK;
        list = tri_arena_printf(arena, "%s%s%s", list, i ? ", " : "", families[i].type);
    }
    return tri_tree_fail(type,
                         "model_type is %s, of which there is no built-in model: there are %s",
                         tri_yaml_flow(arena, type), list);
}

static tri_status check_fixed(tri_arena *arena, const tri_tree *config) {
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        const tri_tree *node = not_null(tri_tree_get(config, fixed[i].key));
        bool known = !node;
        for (int k = 0; k < 3 && fixed[i].values[k]; k++)
            known = known || is_text(node, fixed[i].values[k]);
        if (!known)
            return tri_tree_fail(node, "%s is %s, but the built-in model has %s", fixed[i].key,
                                 tri_yaml_flow(arena, node), fixed[i].values[0]);
    }
    return TRI_OK;
}

// The rotary embedding's settings are a map with its base or without it, in newer files
// rope_parameters, in older ones rope_scaling, where the type may be called `type`.
static void add_rope(tri_arena *arena, const tri_tree *config, tri_tree *options) {
    const tri_tree *rope = not_null(tri_tree_get(config, "rope_parameters"));
    if (!rope) rope = not_null(tri_tree_get(config, "rope_scaling"));
    if (!rope) return;
    if (rope->kind != TRI_TREE_MAP) {
        tri_tree_put(arena, options, "rope_scaling", tri_tree_copy(arena, rope));
        return;
    }
    tri_tree *map = tri_tree_copy(arena, rope);
    const tri_tree *theta = tri_tree_get(map, "rope_theta"), *type = tri_tree_get(map, "type");
    if (theta) tri_tree_put(arena, options, "rope_theta", tri_tree_copy(arena, theta));
    if (type && !tri_tree_get(map, "rope_type"))
        tri_tree_put(arena, map, "rope_type", tri_tree_copy(arena, type));
    tri_tree_remove(map, "rope_theta");
    tri_tree_remove(map, "type");
    tri_tree_remove(options, "rope_scaling");
    if (map->count > 0 && !is_text(tri_tree_get(map, "rope_type"), "default"))
        tri_tree_put(arena, options, "rope_scaling", map);
}

// Windows over which attention reaches back: Qwen's files have one that is not used, unless they
// say so.
static tri_status settle_window(const tri_tree *config, tri_tree *options) {
    const tri_tree *use = tri_tree_get(config, "use_sliding_window"),
                   *first = tri_tree_get(config, "max_window_layers");
    int64_t from;
    if (!use) return TRI_OK;
    if (!is_true(use))
        tri_tree_remove(options, "sliding_window");
    else if (first && tri_tree_to_int(first, &from) && from > 0)
        return tri_tree_fail(first,
                             "use_sliding_window with max_window_layers %lld: some layers have a "
                             "window and others have none, but the built-in model has one for all",
                             (long long)from);
    return TRI_OK;
}

tri_status model_config_read(tri_arena *arena, const tri_tree *config, model_config *out) {
    const struct family *family;
    TRI_TRY(find_family(arena, config, &family));
    TRI_TRY(check_fixed(arena, config));
    const tri_option_table *table = model_config_table(family->task);
    tri_tree *options = tri_tree_map(arena), *complete;
    options->file = config->file;
    for (int i = 0; i < 2 && family->otherwise[i].key; i++)
        if (!tri_tree_get(config, family->otherwise[i].key))
            tri_tree_put(arena, options, family->otherwise[i].key,
                         tri_tree_plain(arena, family->otherwise[i].value));
    for (int i = 0; i < table->count; i++) {
        const tri_tree *value = not_null(tri_tree_get(config, table->rows[i].key));
        // A rate of dropout is the recipe's to set.
        if (value && strcmp(table->rows[i].key, MODEL_DROPOUT_KEY) != 0)
            tri_tree_put(arena, options, table->rows[i].key, tri_tree_copy(arena, value));
    }
    for (int i = 0; i < 2 && family->always[i].key; i++)
        tri_tree_put(arena, options, family->always[i].key,
                     tri_tree_plain(arena, family->always[i].value));
    add_rope(arena, config, options);
    TRI_TRY(settle_window(config, options));
    *out = (model_config){family->task, options};
    return model_config_complete(arena, family->task, options, &complete);
}

tri_status model_config_complete(tri_arena *arena, const tri_task *task, const tri_tree *options,
                                 tri_tree **out) {
    const struct hub_model *model = hub_model_of(task);
    void *values = tri_arena_alloc(arena, model->table->size);
    TRI_TRY(tri_option_decode_under(arena, "model", model->table, options, values));
    model->complete(values);
    *out = tri_option_encode(arena, model->table, values);
    return TRI_OK;
}
