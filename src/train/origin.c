// Finds what is written beside weights, config.json or a checkpoint's recipe, and compares it with
// this run's recipe.
#include "train/origin.h"

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "nn/models/models.h"
#include "train/numbering.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

// Options that may differ: they do not change what the same weights compute.
static const char *const free_options[] = {"dropout", "initializer_range",
                                           "max_position_embeddings"};

static bool is_free(const char *option) {
    for (size_t i = 0; i < sizeof free_options / sizeof *free_options; i++)
        if (!strcmp(option, free_options[i])) return true;
    return false;
}

// What llama always does: keys of config.json that the model has no option for, and the only
// values that it can have. A key that is missing or null has the first value.
static const struct {
    const char *key, *values[3];
} fixed[] = {
    {"model_type", {"llama", "mistral"}},
    {"hidden_act", {"silu", "swish"}},
    {"mlp_bias", {"false"}},
};

typedef struct comparison {
    tri_arena *arena;
    const tri_tree *config; // what config.json has
    const tri_tree *recipe; // the recipe's model options
    const tri_option_table *table;
    const char *differences; // "rope_theta 500000 (recipe: 10000), …"; "" at first
    const char *overrides;   // " model.rope_theta=500000 …", by which the recipe gets the values
    bool is_possible;        // whether the model can have all values of config.json
} comparison;

static const tri_tree *not_null(const tri_tree *node) {
    return tri_tree_is_null(node) ? NULL : node;
}

// The settings of the rotary embedding: a map in config.json. NULL: there is none.
static const tri_tree *rope_of(const tri_tree *config) {
    const tri_tree *rope = not_null(tri_tree_get(config, "rope_parameters"));
    return rope ? rope : not_null(tri_tree_get(config, "rope_scaling"));
}

static const char *default_of(const comparison *c, const char *key) {
    for (int i = 0; i < c->table->count; i++)
        if (!strcmp(c->table->rows[i].key, key)) return c->table->rows[i].default_yaml;
    return "0";
}

// The option's value in `map`, or its default. Where 0 stands for a value that follows from others
// (num_key_value_heads, head_dim), that value.
static double number_of(const comparison *c, const tri_tree *map, const char *key) {
    const tri_tree *node = not_null(tri_tree_get(map, key));
    bool truth;
    double number;
    if (!node && map == c->config && !strcmp(key, "rope_theta"))
        node = not_null(tri_tree_get(rope_of(map), key));
    if (!node) node = tri_tree_plain(c->arena, default_of(c, key));
    if (tri_tree_to_bool(node, &truth)) return truth;
    if (!tri_tree_to_double(node, &number)) return -1;
    if (number != 0) return number;
    if (!strcmp(key, "num_key_value_heads")) return number_of(c, map, "num_attention_heads");
    if (!strcmp(key, "head_dim"))
        return number_of(c, map, "hidden_size") / number_of(c, map, "num_attention_heads");
    return number;
}

static const char *text_of(const comparison *c, const tri_option *row, double number) {
    if (row->type == TRI_OPTION_IS_BOOL) return number != 0 ? "true" : "false";
    return tri_arena_printf(c->arena, "%.15g", number);
}

static void add(comparison *c, const char *key, const char *there, const char *here,
                const char *whose) {
    c->differences = tri_arena_printf(c->arena, "%s%s%s %s (%s: %s)", c->differences,
                                      *c->differences ? ", " : "", key, there, whose, here);
}

static void compare_option(comparison *c, const tri_option *row) {
    if (is_free(row->key)) return;
    double there = number_of(c, c->config, row->key), here = number_of(c, c->recipe, row->key);
    if (there == here) return;
    const char *value = text_of(c, row, there);
    add(c, row->key, value, text_of(c, row, here), "recipe");
    c->overrides = tri_arena_printf(c->arena, "%s model.%s=%s", c->overrides, row->key, value);
}

static void compare_fixed(comparison *c, const char *key, const tri_tree *node,
                          const char *const *values, int count) {
    node = not_null(node);
    if (!node) return;
    const char *text = tri_yaml_flow(c->arena, node);
    for (int i = 0; i < count && values[i]; i++)
        if (node->kind == TRI_TREE_SCALAR && !strcasecmp(node->text, values[i])) return;
    add(c, key, text, values[0], "the model");
    c->is_possible = false;
}

// How many tokens a sample of the session has; 0: its data are no tokens.
static int64_t tokens_of(const tri_session *s) {
    if (s->texts.count > 0) return s->texts.length;
    const tri_dataset *data = s->train_data ? s->train_data : s->val_data;
    int field = data ? tri_dataset_find(data, "input_ids") : TRI_NO_FIELD;
    return field == TRI_NO_FIELD ? 0 : tri_dataset_field(data, field)->shape.dims[0];
}

// A window over which attention reaches back changes nothing in samples that it covers. Where a
// Mistral's config.json leaves the key out, it is Hugging Face's default.
static void compare_window(comparison *c, int64_t tokens) {
    const tri_tree *window = tri_tree_get(c->config, "sliding_window"),
                   *type = tri_tree_get(c->config, "model_type");
    int64_t reach;
    bool is_mistral = type && type->kind == TRI_TREE_SCALAR && !strcmp(type->text, "mistral");
    if (!window && is_mistral) window = tri_tree_plain(c->arena, "4096");
    if (tri_tree_is_null(window)) return;
    if (tri_tree_to_int(window, &reach) && tokens > 0 && reach >= tokens) return;
    const char *here = !tokens ? "none"
                               : tri_arena_printf(c->arena,
                                                  "none, which is the same for samples of at most "
                                                  "that many tokens: data.sequence, now %lld",
                                                  (long long)tokens);
    add(c, "sliding_window", tri_yaml_flow(c->arena, window), here, "the model");
    c->is_possible = false;
}

static tri_status compare_config(const tri_session *s, const tri_option_table *table,
                                 const tri_tree *config, const char *file) {
    static const char *const plain_rope[] = {"default"};
    comparison c = {.arena = s->arena,
                    .config = config,
                    .recipe = s->recipe->model.options,
                    .table = table,
                    .differences = "",
                    .overrides = "",
                    .is_possible = true};
    for (int i = 0; i < table->count; i++) compare_option(&c, &table->rows[i]);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        compare_fixed(&c, fixed[i].key, tri_tree_get(config, fixed[i].key), fixed[i].values, 3);
    const tri_tree *rope = rope_of(config), *type = tri_tree_get(rope, "rope_type");
    if (!type) type = tri_tree_get(rope, "type");
    compare_fixed(&c, "rope_type", type, plain_rope, 1);
    compare_window(&c, tokens_of(s));
    if (!*c.differences) return TRI_OK;
    if (!c.is_possible)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: model %s cannot be this one: %s", file, s->task->name,
                        c.differences);
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: the recipe describes another model than these weights: %s; to take the "
                    "values over, add%s",
                    file, c.differences, c.overrides);
}

// The option table of a built-in model that has the names of Hugging Face's config.json; NULL: it
// is another model.
static const tri_option_table *hugging_face_table(const tri_task *task) {
    return task == &tri_model_llama ? &model_llama_options : NULL;
}

// Keys that say what the training data are, and those that decide with them which samples
// data.val_fraction holds back.
static const char *const data_keys[] = {"data.name", "data.train", "data.dtype", "data.header"};
static const char *const choice_keys[] = {"seed", "data.val_fraction", "data.limit",
                                          "data.sequence", "data.samples"};

static bool is_under(const char *key, const char *const *sections, int count) {
    for (int i = 0; i < count; i++) {
        size_t length = strlen(sections[i]);
        if (!strncmp(key, sections[i], length) && (!key[length] || key[length] == '.')) return true;
    }
    return false;
}

static const char *joined(tri_arena *arena, const char *list, const char *word) {
    return tri_arena_printf(arena, "%s%s%s", list, *list ? ", " : "", word);
}

// Whether data.path was another folder that is still there. One that is gone may have been moved.
static bool is_other_folder(const char *before, const char *now) {
    char a[PATH_MAX], b[PATH_MAX];
    return before && now && realpath(before, a) && realpath(now, b) && strcmp(a, b) != 0;
}

// Warns if this session evaluates on samples that data.val_fraction holds back, and the checkpoint
// may have been trained on some of them, because its run held back others.
static void warn_of_held_back(const tri_session *s, const tri_recipe *other,
                              const tri_checkpoint_info *info, tri_strings keys, const char *path) {
    const tri_data_options *data = &s->recipe->data;
    if (!s->val_data || s->val_source != TRI_VAL_SPLIT || data->val_fraction == 0) return;
    const char *list = "";
    bool other_data = is_other_folder(other->data.path, data->path);
    if (other_data) list = "data.path";
    for (int i = 0; i < keys.count; i++) {
        bool is_data = is_under(keys.items[i], data_keys, TRI_OPTION_COUNT(data_keys));
        other_data = other_data || is_data;
        if (is_data || is_under(keys.items[i], choice_keys, TRI_OPTION_COUNT(choice_keys)))
            list = joined(s->arena, list, keys.items[i]);
    }
    // A run that begins with weights of other data (init) has not seen these.
    if (s->train_data && other_data) return;
    int64_t before, now = tri_dataset_left_to_train(s->val_data);
    if (*list)
        list = tri_arena_printf(s->arena, "values of %s", list);
    else if (tri_tree_to_int(tri_tree_get(info->training, "data_samples"), &before) &&
             before != now)
        list = tri_arena_printf(s->arena, "training data (%lld samples, not %lld)",
                                (long long)before, (long long)now);
    if (!*list) return;
    tri_log_line(
        TRI_LOG_WARNING,
        "%s was trained with other %s, which decide what data.val_fraction holds back: it may "
        "have learned from samples that it is evaluated on here",
        path, list);
}

// Warns of keys in which the recipe of a checkpoint differs. A recipe that cannot be read, because
// another version of the program wrote it, is not compared: the weights are what was asked for.
static void compare_recipe(const tri_session *s, const tri_task *own, const char *folder,
                           const char *path) {
    tri_checkpoint_info info;
    tri_recipe other;
    if (tri_checkpoint_read_info(s->arena, folder, &info) != TRI_OK || !info.recipe) return;
    if (tri_recipe_parse(s->arena, info.recipe, strlen(info.recipe), folder, NULL, 0,
                         own ? own->name : NULL, &other) != TRI_OK)
        return;
    tri_strings keys = tri_recipe_differences(s->arena, &other, s->recipe);
    const char *list = "";
    for (int i = 0; i < keys.count; i++) {
        const char *key = keys.items[i];
        bool is_model = !strncmp(key, "model.", 6) && strcmp(key, "model.name") != 0;
        if (!strcmp(key, "data.transform") || (is_model && !is_free(key + 6)))
            list = joined(s->arena, list, key);
    }
    if (*list)
        tri_log_line(
            TRI_LOG_WARNING,
            "%s was trained with other values of %s than those of this recipe: is this meant?",
            path, list);
    warn_of_held_back(s, &other, &info, keys, path);
}

// Refuses data that give classes or columns other numbers than those on which the checkpoint was
// trained, or warns of them where the weights are trained further, as on classes of another task.
static tri_status compare_numbering(const tri_session *s, const char *folder, const char *path) {
    tri_checkpoint_info info;
    if (tri_checkpoint_read_info(s->arena, folder, &info) != TRI_OK) return TRI_OK;
    const tri_tree *kept = tri_tree_get(info.training, TRI_DATA_NAMES);
    const tri_dataset *data = s->train_data ? s->train_data : s->val_data;
    if (!data) return TRI_OK; // texts are generated without data
    const char *name = s->train_data ? "the training data"
                                     : tri_arena_printf(s->arena, "the %s data",
                                                        tri_val_source_names[s->val_source]);
    if (s->identity.rank == 0) train_numbering_warn(s->arena, kept, path, data, name);
    if (!s->train_data) return train_numbering_compare(s->arena, kept, path, data, name);
    if (train_numbering_compare(s->arena, kept, path, data, name) != TRI_OK &&
        s->identity.rank == 0)
        tri_log_line(TRI_LOG_WARNING, "%s: is this meant?", tri_error_message());
    return TRI_OK;
}

// The folder that `path` is or lies in; NULL: there is nothing.
static const char *folder_of(tri_arena *arena, const char *path) {
    char real[PATH_MAX];
    struct stat info;
    if (!realpath(path, real) || stat(real, &info) < 0) return NULL;
    if (!S_ISDIR(info.st_mode)) *strrchr(real, '/') = 0;
    return tri_arena_strdup(arena, real);
}

int train_origin_fields(tri_arena *arena, const char *path, tri_field *fields, int most) {
    tri_checkpoint_info info;
    const char *folder = folder_of(arena, path);
    if (!folder || tri_checkpoint_read_info(arena, folder, &info) != TRI_OK) return 0;
    return train_numbering_fields(tri_tree_get(info.training, TRI_DATA_NAMES), fields, most);
}

tri_status train_check_origin(const tri_session *session, const tri_task *own, const char *path) {
    const char *real = folder_of(session->arena, path);
    // Whatever is wrong with the path, loading the weights reports it.
    if (!real) return TRI_OK;
    const char *file = tri_arena_printf(session->arena, "%s/config.json", real);
    const tri_option_table *table = hugging_face_table(session->task);
    tri_tree *config;
    if (access(file, F_OK) != 0) {
        if (session->identity.rank == 0) compare_recipe(session, own, real, path);
        return compare_numbering(session, real, path);
    }
    if (!table) return TRI_OK;
    TRI_TRY(tri_json_read_file(session->arena, file, &config));
    // Other programs have a config.json too; a model's names its type.
    if (!tri_tree_get(config, "model_type")) return TRI_OK;
    return compare_config(session, table, config, file);
}
