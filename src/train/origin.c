// Finds what is written beside weights, config.json or a checkpoint's recipe, and compares it with
// this run's recipe.
#include "train/origin.h"

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "nn/models/config_json.h"
#include "train/numbering.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Options that may differ: they do not change what the same weights compute.
static const char *const free_options[] = {
    "dropout",           "initializer_range", "max_position_embeddings",
    "resid_pdrop",       "embd_pdrop",        "attn_pdrop",
    "attention_dropout", "pad_token_id",      MODEL_CONFIG_KEY};

static bool is_free(const char *option) {
    for (size_t i = 0; i < sizeof free_options / sizeof *free_options; i++)
        if (!strcmp(option, free_options[i])) return true;
    return false;
}

// How many tokens a sample of the session has; 0: its data are no tokens.
static int64_t tokens_of(const tri_session *s) {
    if (s->texts.count > 0) return s->texts.length;
    const tri_dataset *data = s->train_data ? s->train_data : s->val_data;
    int field = data ? tri_dataset_find(data, "input_ids") : TRI_NO_FIELD;
    return field == TRI_NO_FIELD ? 0 : tri_dataset_field(data, field)->shape.dims[0];
}

// A window that covers the samples changes nothing: 0, as if there were none.
static tri_tree *needed_window(const tri_session *s, tri_tree *window) {
    int64_t reach, tokens = tokens_of(s);
    bool covers = tri_tree_to_int(window, &reach) && tokens > 0 && reach >= tokens;
    return covers ? tri_tree_int(s->arena, 0) : window;
}

static const char *value_text(tri_arena *arena, const tri_tree *node) {
    double number;
    if (tri_tree_to_double(node, &number)) return tri_arena_printf(arena, "%.15g", number);
    return tri_yaml_flow(arena, node);
}

// Compares the options of config.json with those of the recipe's model.
static tri_status compare_config(const tri_session *s, const tri_tree *config, const char *file) {
    tri_arena *arena = s->arena;
    model_config found;
    tri_tree *there, *here;
    tri_status status = model_config_read(arena, config, NULL, &found);
    if (status == TRI_NOT_FOUND) return TRI_OK; // other programs have a config.json too
    if (status == TRI_OK && found.task != s->task)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: describes a model that is %s here, but the recipe's is %s", file,
                        found.task->name, s->task->name);
    if (status == TRI_OK) status = model_config_complete(arena, s->task, found.options, &there);
    if (status != TRI_OK) return status;
    TRI_TRY(model_config_complete(arena, s->task, s->recipe->model.options, &here));
    const char *differences = "", *overrides = "";
    for (int i = 0; i < there->count; i++) {
        const char *key = there->items[i]->key;
        tri_tree *a = there->items[i], *b = tri_tree_get(here, key);
        if (!strcmp(key, "sliding_window")) a = needed_window(s, a), b = needed_window(s, b);
        if (is_free(key) || tri_tree_equal(a, b)) continue;
        const char *value = value_text(arena, a), *quote = a->kind == TRI_TREE_MAP ? "'" : "";
        differences = tri_arena_printf(arena, "%s%s%s %s (recipe: %s)", differences,
                                       *differences ? ", " : "", key, value, value_text(arena, b));
        overrides =
            tri_arena_printf(arena, "%s model.%s=%s%s%s", overrides, key, quote, value, quote);
    }
    if (!*differences) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: the recipe describes another model than these weights: %s; to take the "
                    "values over, add%s",
                    file, differences, overrides);
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

// Adapters compute something else with another alpha, of which their weights tell nothing.
static tri_status compare_adapters(const tri_session *s, const char *real, const char *path) {
    tri_checkpoint_info info;
    const tri_recipe *r = s->recipe;
    double alpha;
    if (r->lora.match.count == 0 || r->init.ignore.count > 0 ||
        tri_checkpoint_read_info(s->arena, real, &info) != TRI_OK)
        return TRI_OK;
    const tri_tree *saved = tri_tree_get(tri_tree_get(info.training, TRI_ADAPTERS), "alpha");
    if (!tri_tree_to_double(saved, &alpha) || alpha == r->lora.alpha) return TRI_OK;
    return TRI_FAIL(
        TRI_BAD_INPUT,
        "%s: its adapters have lora.alpha %g, but the recipe's are %g: add lora.alpha=%g", path,
        alpha, r->lora.alpha, alpha);
}

tri_status train_check_origin(const tri_session *session, const tri_task *own, const char *path) {
    const char *real = folder_of(session->arena, path);
    // Whatever is wrong with the path, loading the weights reports it.
    if (!real) return TRI_OK;
    const char *file = tri_arena_printf(session->arena, "%s/config.json", real);
    tri_tree *config;
    TRI_TRY(compare_adapters(session, real, path));
    if (access(file, F_OK) != 0) {
        if (session->identity.rank == 0) compare_recipe(session, own, real, path);
        return compare_numbering(session, real, path);
    }
    if (!model_has_config(session->task)) return TRI_OK;
    TRI_TRY(tri_json_read_file(session->arena, file, &config));
    return compare_config(session, config, file);
}
