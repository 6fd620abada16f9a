// Options of built-in models from Hugging Face's config.json, and back.
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

// Keys that each file has to have: the sizes, for which types have other defaults.
static const char *const decoder_sizes[] = {"vocab_size",          "hidden_size",
                                            "intermediate_size",   "num_hidden_layers",
                                            "num_attention_heads", NULL};
static const char *const gpt2_sizes[] = {"vocab_size", "n_positions", "n_embd",
                                         "n_layer",    "n_head",      NULL};
// Keys without an option, and the values that the models have. A key that is missing or null has
// the first one.
typedef struct fixed {
    const char *key, *values[3];
} fixed;
static const fixed decoder_fixed[] = {{"hidden_act", {"silu", "swish"}}, {NULL}};
static const fixed gpt2_fixed[] = {{"add_cross_attention", {"false"}}, {NULL}};

// By model_type: the model; what is so in all models of this type, or where the file does not say
// it; and options that they do not have, whatever a file says.
static const struct family {
    const char *type, *architecture;
    const tri_task *task;
    const char *const *sizes;
    const fixed *fixed;
    preset always[2], otherwise[3];
    const char *unread[3];
    bool asks_for_window; // there is a window only with use_sliding_window
} families[] = {
    {.type = "llama",
     .architecture = "LlamaForCausalLM",
     .task = &tri_model_llama,
     .sizes = decoder_sizes,
     .fixed = decoder_fixed,
     .unread = {"sliding_window"}},
    {"mistral", "MistralForCausalLM", &tri_model_llama, decoder_sizes, decoder_fixed,
     .otherwise = {{"sliding_window", "4096"}, {"num_key_value_heads", "8"}},
     .unread = {"attention_bias", "mlp_bias"}},
    {"qwen2", "Qwen2ForCausalLM", &tri_model_llama, decoder_sizes, decoder_fixed,
     .always = {{"qkv_bias", "true"}},
     .otherwise = {{"num_key_value_heads", "32"}, {"sliding_window", "4096"}},
     .unread = {"attention_bias", "mlp_bias"}, .asks_for_window = true},
    {"qwen3", "Qwen3ForCausalLM", &tri_model_llama, decoder_sizes, decoder_fixed,
     .always = {{"qk_norm", "true"}},
     .otherwise = {{"num_key_value_heads", "32"}, {"sliding_window", "4096"}, {"head_dim", "128"}},
     .unread = {"mlp_bias"}, .asks_for_window = true},
    {.type = "gpt2",
     .architecture = "GPT2LMHeadModel",
     .task = &tri_model_gpt2,
     .sizes = gpt2_sizes,
     .fixed = gpt2_fixed},
};

enum { FAMILIES = sizeof families / sizeof *families };

static const struct hub_model *hub_model_of(const tri_task *task) {
    for (size_t i = 0; i < sizeof hub_models / sizeof *hub_models; i++)
        if (hub_models[i].task == task) return &hub_models[i];
    return NULL;
}

bool model_has_config(const tri_task *task) { return hub_model_of(task) != NULL; }

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

static tri_status check_family(tri_arena *arena, const struct family *family,
                               const tri_tree *config, const tri_tree *own) {
    for (int i = 0; family->sizes[i]; i++)
        if (!tri_tree_get(own, family->sizes[i]) &&
            tri_tree_is_null(tri_tree_get(config, family->sizes[i])))
            return tri_tree_fail(config, "has no %s, which a %s has", family->sizes[i],
                                 family->type);
    for (const fixed *f = family->fixed; f->key; f++) {
        const tri_tree *node = not_null(tri_tree_get(config, f->key));
        bool known = !node;
        for (int k = 0; k < 3 && f->values[k]; k++) known = known || is_text(node, f->values[k]);
        if (!known)
            return tri_tree_fail(node, "%s is %s, but the built-in model has %s", f->key,
                                 tri_yaml_flow(arena, node), f->values[0]);
    }
    return TRI_OK;
}

static bool is_unread(const struct family *family, const char *key) {
    // A rate of dropout is the recipe's to set.
    if (!strcmp(key, MODEL_DROPOUT_KEY)) return true;
    for (int i = 0; i < 3 && family->unread[i]; i++)
        if (!strcmp(family->unread[i], key)) return true;
    return false;
}

static void add_presets(tri_arena *arena, const preset *presets, int most, const tri_tree *config,
                        tri_tree *options) {
    for (int i = 0; i < most && presets[i].key; i++)
        if (!tri_tree_get(config, presets[i].key))
            tri_tree_put(arena, options, presets[i].key, tri_tree_plain(arena, presets[i].value));
}

// The rotary embedding's settings are a map with its base or without it, in newer files
// rope_parameters, in older ones rope_scaling, where the type may be called `type`. The recipe's
// own rope_scaling holds alone if it has another type.
static void add_rope(tri_arena *arena, const tri_tree *config, const tri_tree *own,
                     tri_tree *options) {
    const tri_tree *rope = not_null(tri_tree_get(config, "rope_scaling"));
    if (!rope) rope = not_null(tri_tree_get(config, "rope_parameters"));
    if (!rope) return;
    const tri_tree *own_rope = tri_tree_get(own, "rope_scaling");
    if (rope->kind != TRI_TREE_MAP) {
        if (!own_rope) tri_tree_put(arena, options, "rope_scaling", tri_tree_copy(arena, rope));
        return;
    }
    tri_tree *map = tri_tree_copy(arena, rope);
    const tri_tree *theta = tri_tree_get(map, "rope_theta"), *type = tri_tree_get(map, "type");
    if (theta && !tri_tree_get(own, "rope_theta"))
        tri_tree_put(arena, options, "rope_theta", tri_tree_copy(arena, theta));
    if (type && !tri_tree_get(map, "rope_type"))
        tri_tree_put(arena, map, "rope_type", tri_tree_copy(arena, type));
    tri_tree_remove(map, "rope_theta");
    tri_tree_remove(map, "type");
    tri_tree_remove(options, "rope_scaling");
    const tri_tree *own_type = tri_tree_get(own_rope, "rope_type");
    bool holds_alone =
        own_rope && (own_rope->kind != TRI_TREE_MAP ||
                     (own_type && !tri_tree_equal(own_type, tri_tree_get(map, "rope_type"))));
    if (holds_alone) return;
    if (map->count > 0 && !is_text(tri_tree_get(map, "rope_type"), "default"))
        tri_tree_put(arena, options, "rope_scaling", map);
}

// How many of the model's layers have a window, over which attention reaches back. Qwen's layers
// from max_window_layers on have it, if use_sliding_window says so; newer files list all layers.
static int64_t layers_with_window(const struct family *family, const tri_tree *config,
                                  int64_t layers) {
    const tri_tree *types = not_null(tri_tree_get(config, "layer_types"));
    int64_t count = 0, first = 28;
    if (!family->asks_for_window) return layers;
    if (!is_true(tri_tree_get(config, "use_sliding_window"))) return 0;
    for (int i = 0; types && i < types->count; i++)
        count += is_text(types->items[i], "sliding_attention");
    if (types && types->count > 0) return count;
    const tri_tree *from = not_null(tri_tree_get(config, "max_window_layers"));
    if (from && !tri_tree_to_int(from, &first)) first = 0;
    return first < layers ? layers - first : 0;
}

static tri_status settle_window(const struct family *family, const tri_tree *config,
                                tri_tree *options) {
    int64_t layers = 0;
    if (!tri_tree_get(options, "sliding_window")) return TRI_OK;
    if (!tri_tree_to_int(tri_tree_get(config, "num_hidden_layers"), &layers)) return TRI_OK;
    int64_t count = layers_with_window(family, config, layers);
    if (count == 0) tri_tree_remove(options, "sliding_window");
    if (count == 0 || count == layers) return TRI_OK;
    return tri_tree_fail(config,
                         "%lld of %lld layers have a window (sliding_window), but the built-in "
                         "model has one for all or for none",
                         (long long)count, (long long)layers);
}

// A negative number counts from the end of the vocabulary, as in PyTorch's Embedding.
static void settle_padding(tri_arena *arena, const tri_tree *config, const tri_tree *own,
                           tri_tree *options) {
    int64_t pad, tokens;
    const tri_tree *size = tri_tree_get(own, "vocab_size");
    if (!tri_tree_to_int(tri_tree_get(options, "pad_token_id"), &pad) || pad >= 0 ||
        !tri_tree_to_int(size ? size : tri_tree_get(config, "vocab_size"), &tokens) ||
        tokens + pad < 0)
        return;
    tri_tree_put(arena, options, "pad_token_id", tri_tree_int(arena, tokens + pad));
}

tri_status model_config_read(tri_arena *arena, const tri_tree *config, const tri_tree *own,
                             model_config *out) {
    const struct family *family;
    TRI_TRY(find_family(arena, config, &family));
    TRI_TRY(check_family(arena, family, config, own));
    const tri_option_table *table = hub_model_of(family->task)->table;
    tri_tree *options = tri_tree_map(arena), *complete;
    options->file = config->file;
    for (int i = 0; i < table->count; i++) {
        const char *key = table->rows[i].key;
        const tri_tree *value = not_null(tri_tree_get(config, key));
        if (value && !is_unread(family, key) && !tri_tree_get(own, key))
            tri_tree_put(arena, options, key, tri_tree_copy(arena, value));
    }
    add_presets(arena, family->otherwise, 3, config, options);
    add_presets(arena, family->always, 2, NULL, options);
    add_rope(arena, config, own, options);
    settle_padding(arena, config, own, options);
    for (int i = 0; own && i < options->count;)
        if (tri_tree_get(own, options->items[i]->key) &&
            strcmp(options->items[i]->key, "rope_scaling") != 0)
            tri_tree_remove(options, options->items[i]->key);
        else
            i++;
    TRI_TRY(settle_window(family, config, options));
    *out = (model_config){family->task, options};
    // What the recipe has is checked with the recipe.
    tri_tree *checked = tri_tree_copy(arena, options);
    if (tri_tree_get(own, "rope_scaling")) tri_tree_remove(checked, "rope_scaling");
    return model_config_complete(arena, family->task, checked, &complete);
}

tri_status model_config_complete(tri_arena *arena, const tri_task *task, const tri_tree *options,
                                 tri_tree **out) {
    const struct hub_model *model = hub_model_of(task);
    void *values = tri_arena_alloc(arena, model->table->size);
    TRI_TRY(model_decode_options(arena, model->table, options, values));
    model->complete(values);
    *out = tri_option_encode(arena, model->table, values);
    return TRI_OK;
}

// Options that no config.json has: what they say follows from its model_type, or is the recipe's.
static const char *const own_options[] = {"qkv_bias", "qk_norm", MODEL_DROPOUT_KEY,
                                          MODEL_CONFIG_KEY};
// Rates that model.dropout replaces.
static const char *const rates[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};

static bool is_in(const char *const *names, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

// The value that config.json has for an option; NULL: it has none. `dropout`: the rate that the
// recipe sets for all layers; NULL: none.
static const tri_tree *value_to_write(tri_arena *arena, const struct family *family,
                                      const tri_tree *dropout, const tri_tree *option) {
    const char *key = option->key;
    double rate;
    if (is_in(own_options, TRI_OPTION_COUNT(own_options), key) || is_unread(family, key))
        return NULL;
    if (!strcmp(key, "rope_scaling") && is_text(tri_tree_get(option, "rope_type"), "default"))
        return tri_tree_null(arena);
    if (!strcmp(key, "sliding_window") && is_text(option, "0")) return tri_tree_null(arena);
    if (!strcmp(key, "pad_token_id") && is_text(option, "-1")) return tri_tree_null(arena);
    if (dropout && is_in(rates, TRI_OPTION_COUNT(rates), key)) return dropout;
    if (!strcmp(key, "attention_dropout") && tri_tree_to_double(dropout, &rate) && rate == 0)
        return dropout;
    return option;
}

static tri_tree *write_as(tri_arena *arena, const struct family *family, const tri_tree *dropout,
                          const tri_tree *options) {
    tri_tree *config = tri_tree_map(arena), *architectures = tri_tree_list(arena);
    tri_tree_append(arena, architectures, tri_tree_string(arena, family->architecture));
    tri_tree_put(arena, config, "architectures", architectures);
    tri_tree_put_string(arena, config, "model_type", family->type);
    for (int i = 0; i < options->count; i++) {
        const tri_tree *value = value_to_write(arena, family, dropout, options->items[i]);
        if (value) tri_tree_put(arena, config, options->items[i]->key, tri_tree_copy(arena, value));
    }
    for (const fixed *f = family->fixed; f->key; f++)
        tri_tree_put(arena, config, f->key, tri_tree_plain(arena, f->values[0]));
    if (family->asks_for_window) {
        const tri_tree *window = not_null(tri_tree_get(config, "sliding_window"));
        tri_tree_put(arena, config, "use_sliding_window", tri_tree_bool(arena, window != NULL));
        tri_tree_put_int(arena, config, "max_window_layers", 0);
    }
    return config;
}

// The first option that the config.json has another value of than `options`; NULL: it has all.
static tri_status find_lost(tri_arena *arena, const tri_tree *config, const tri_tree *options,
                            const char **out) {
    model_config found;
    tri_tree *read;
    TRI_TRY(model_config_read(arena, config, NULL, &found));
    TRI_TRY(model_config_complete(arena, found.task, found.options, &read));
    *out = NULL;
    for (int i = 0; i < options->count && !*out; i++) {
        const char *key = options->items[i]->key;
        bool is_rate = is_in(rates, TRI_OPTION_COUNT(rates), key) ||
                       !strcmp(key, "attention_dropout") || !strcmp(key, MODEL_DROPOUT_KEY);
        if (!is_rate && !tri_tree_equal(options->items[i], tri_tree_get(read, key))) *out = key;
    }
    return TRI_OK;
}

tri_status model_config_write(tri_arena *arena, const tri_task *task, const tri_tree *options,
                              tri_tree **out) {
    const char *lost = NULL, *why = "";
    tri_tree *all;
    if (!model_has_config(task))
        return TRI_FAIL(TRI_NOT_FOUND, "%s: there is no config.json of this model", task->name);
    TRI_TRY(model_config_complete(arena, task, options, &all));
    for (int i = 0; i < FAMILIES; i++) {
        if (families[i].task != task) continue;
        *out =
            write_as(arena, &families[i], not_null(tri_tree_get(options, MODEL_DROPOUT_KEY)), all);
        TRI_TRY(find_lost(arena, *out, all, &lost));
        if (!lost) return TRI_OK;
        why = tri_arena_printf(arena, "%s%s%s has no such %s", why, *why ? ", " : "",
                               families[i].type, lost);
    }
    return TRI_FAIL(TRI_UNSUPPORTED, "no model of Hugging Face's has all these options: %s", why);
}
