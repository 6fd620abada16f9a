// Reads a recipe: YAML, a DeepSpeed configuration in it, overrides of the command line, and the
// option tables of all sections. Also finds the differences between two recipes. Read next:
// train/train.c, which runs it.
#include "recipe/recipe.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/os.h"
#include "recipe/alias.h"
#include "recipe/config.h"
#include "recipe/deepspeed.h"
#include "recipe/missing.h"
#include "recipe/paths.h"
#include "recipe/renamed.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define R tri_recipe
#define S tri_start_options

static const tri_option start_rows[] = {
    TRI_OPTION_STRING(S, path, NULL,
                      "a safetensors file, the index of a model in several, or the folder of a "
                      "model or run; `init: PATH` is short for it",
                      .path = TRI_PATH_ANY),
    TRI_OPTION_STRINGS(S, ignore, "[]",
                       "tensors that are not taken from there, by name, such as those of a new "
                       "head; * and ? match as in file names"),
};

static tri_status check_start(const void *options, const tri_tree *map) {
    const tri_start_options *start = options;
    if (start->path || start->ignore.count == 0) return TRI_OK;
    return tri_tree_fail(map, "'init.ignore' has no effect without 'init.path'");
}

static const tri_option_table start_table =
    TRI_OPTION_TABLE("init", S, start_rows, "initial weights", .check = check_start);

static const tri_option rows[] = {
    TRI_OPTION_STRING(R, name, NULL, "name of the run; not set: the model's name",
                      .change = TRI_CHANGE_FREELY),
    TRI_OPTION_INT(R, seed, "1", 0, 9.2e18, "seed of initial weights, sample order and dropout"),
    TRI_OPTION_NESTED(R, model, tri_model_options, &tri_model_table, "the network to train"),
    TRI_OPTION_NESTED(R, init, tri_start_options, &start_table, "initial weights"),
    TRI_OPTION_NESTED(R, lora, tri_lora, &tri_lora_table, "low-rank adapters"),
    TRI_OPTION_NESTED(R, data, tri_data_options, &tri_data_table, "the data to train on"),
    TRI_OPTION_NESTED(R, batch, tri_batch_options, &tri_batch_table, "samples per step"),
    TRI_OPTION_NESTED(R, loss, tri_loss_options, &tri_loss_table, "the loss"),
    TRI_OPTION_STRINGS(R, metrics, "[]",
                       "what evaluations of a classifier report besides accuracy: topK (top5), "
                       "balanced_accuracy, precision, recall, f1, auc (means over the classes), "
                       "perplexity, per_class (precision, recall, f1 and samples of each class), "
                       "confusion_matrix (guide/train.md)",
                       .change = TRI_CHANGE_FREELY),
    TRI_OPTION_NESTED(R, optimizer, tri_optimizer_options, &tri_optimizer_table, "the optimizer"),
    TRI_OPTION_NESTED(R, schedule, tri_schedule_options, &tri_schedule_table, "the learning rate",
                      .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_NESTED(R, average, tri_average_options, &tri_average_table,
                      "averages of the weights over steps", .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_NESTED(R, trainer, tri_trainer_options, &tri_trainer_table, "the training loop"),
    TRI_OPTION_NESTED(R, strategy, tri_strategy_options, &tri_strategy_table,
                      "how the ranks divide the work", .change = TRI_CHANGE_FREELY),
    TRI_OPTION_NESTED(R, checkpoint, tri_checkpoint_options, &tri_checkpoint_table,
                      "when to save, and which checkpoints to keep", .change = TRI_CHANGE_FREELY),
    TRI_OPTION_NESTED(R, log, tri_log_options, &tri_log_table, "what to log",
                      .change = TRI_CHANGE_FREELY),
    TRI_OPTION_NESTED(R, comm, tri_comm_options, &tri_comm_table, "how ranks communicate",
                      .change = TRI_CHANGE_FREELY),
    TRI_OPTION_TREE(R, deepspeed, NULL, "file of a DeepSpeed configuration, or the configuration",
                    .path = TRI_PATH_ANY),
    TRI_OPTION_STRING(
        R, recorded_in, NULL,
        "the run folder, in the recipe that a run writes there: where a path is gone, "
        "it is looked for beside the folder's new place",
        .change = TRI_CHANGE_FREELY),
    TRI_OPTION_TREE(R, began_with, NULL,
                    "in such a recipe: the values with which the run began, of the keys that "
                    "train --resume-with has changed since",
                    .change = TRI_CHANGE_FREELY),
};

static tri_status check(const void *options, const tri_tree *map) {
    const tri_recipe *recipe = options;
    return tri_metric_words_check(&recipe->metrics, tri_tree_get(map, "metrics"));
}

const tri_option_table tri_recipe_table =
    TRI_OPTION_TABLE("", R, rows, "everything that defines a run", .check = check);

static void drop_overridden(tri_arena *arena, tri_tree *root, const char *override,
                            tri_recipe_dropped *dropped) {
    size_t length = strcspn(override, "=");
    tri_tree *value;
    if (!override[length]) return;
    if (tri_yaml_parse_value(arena, override + length + 1, override, &value) != TRI_OK) return;
    tri_recipe_drop_renamed(arena, root, tri_arena_printf(arena, "%.*s", (int)length, override),
                            value, dropped);
}

static bool is_deepspeed(const char *override) {
    return !strncmp(override, "deepspeed", 9) && (override[9] == '=' || override[9] == '.');
}

static tri_status apply_overrides(tri_arena *arena, tri_tree *root, const char *const *overrides,
                                  int count, tri_recipe_dropped *dropped, tri_strings *notes) {
    const char **all = TRI_NEW_ARRAY(arena, const char *, notes->count + count);
    for (int i = 0; i < notes->count; i++) all[i] = notes->items[i];
    for (int i = 0; i < count; i++) drop_overridden(arena, root, overrides[i], dropped);
    for (int i = 0; i < count; i++) {
        if (is_deepspeed(overrides[i])) continue;
        const char *note = tri_recipe_replaced_note(arena, root, overrides[i]);
        if (note) all[notes->count++] = note;
        TRI_TRY(tri_tree_override(arena, root, overrides[i]));
        tri_recipe_lengthen(arena, root); // init=PATH, which init.ignore=… may follow
    }
    notes->items = all;
    return TRI_OK;
}

// Puts dropped values of the recipe back that the DeepSpeed configuration asks for ("auto").
static void keep_dropped(tri_arena *arena, tri_tree *root, const tri_deepspeed *deepspeed,
                         const tri_recipe_dropped *dropped) {
    for (int i = 0; i < deepspeed->count; i++) {
        const tri_deepspeed_setting *s = &deepspeed->settings[i];
        const tri_tree *value = s->is_auto ? tri_recipe_dropped_value(dropped, s->key) : NULL;
        const char *dot = strchr(s->key, '.');
        if (tri_tree_is_null(value) || strchr(dot + 1, '.')) continue;
        tri_tree *section =
            tri_tree_get(root, tri_arena_printf(arena, "%.*s", (int)(dot - s->key), s->key));
        tri_tree_put(arena, section, dot + 1, tri_tree_copy(arena, value));
    }
}

// Merges a DeepSpeed configuration into the recipe, before the other overrides are applied, so that
// these can change the configuration's settings.
static tri_status merge_deepspeed(tri_arena *arena, tri_tree *root, const char *file,
                                  const char *const *overrides, int count,
                                  tri_recipe_dropped *dropped, tri_deepspeed *out) {
    *out = (tri_deepspeed){0};
    for (int i = 0; i < count; i++)
        if (is_deepspeed(overrides[i])) TRI_TRY(tri_tree_override(arena, root, overrides[i]));
    tri_tree *node = tri_tree_get(root, "deepspeed");
    if (!tri_tree_is_null(node)) {
        TRI_TRY(tri_recipe_settle_path(arena, node, file));
        TRI_TRY(tri_deepspeed_read(arena, node, out));
        const tri_tree *name = tri_tree_find(root, "strategy.name");
        if (name && name->kind == TRI_TREE_SCALAR && !strcmp(name->text, "deepspeed"))
            // The configuration's zero_optimization.stage chooses the strategy instead.
            tri_tree_remove(tri_tree_get(root, "strategy"), "name");
        TRI_TRY(tri_recipe_settle_strategy(arena, root));
        bool is_override = node->file && !strncmp(node->file, "override ", 9);
        for (int i = 0; is_override && i < out->count; i++)
            tri_recipe_drop_renamed(arena, root, out->settings[i].key, out->settings[i].value,
                                    dropped);
        keep_dropped(arena, root, out, dropped);
        TRI_TRY(tri_deepspeed_merge(arena, out, root, is_override, overrides, count));
    }
    tri_tree_remove(root, "deepspeed");
    return TRI_OK;
}

static void add_note(tri_arena *arena, tri_recipe *recipe, const char *note) {
    tri_strings *notes = &recipe->notes;
    const char **all = TRI_NEW_ARRAY(arena, const char *, notes->count + 1);
    for (int i = 0; i < notes->count; i++) all[i] = notes->items[i];
    all[notes->count++] = note;
    notes->items = all;
}

// Sets the model's name, if the recipe has none, to that of the program's own model (`task`), and
// notes a recipe that has another model than the program. Sets the run's name and checks it,
// because it is also the name of the folder runs/<name>.
static tri_status settle_names(tri_arena *arena, const tri_tree *root, const char *task,
                               tri_recipe *recipe) {
    const tri_tree *at = tri_tree_get(root, "name");
    if (!recipe->model.name) {
        if (!task)
            return tri_tree_fail(
                tri_tree_get(root, "model") ? tri_tree_get(root, "model") : root,
                "'model.name' is missing: a built-in model or the path of a shared object; where "
                "a program of yours brings the model, run that program with this recipe");
        recipe->model.name = tri_arena_strdup(arena, task);
    } else if (task && strcmp(recipe->model.name, task) != 0)
        add_note(arena, recipe,
                 tri_arena_printf(arena,
                                  "model.name is %s, so that the network of this program, %s, is "
                                  "not used; model.name=%s uses it",
                                  recipe->model.name, task, task));
    if (!recipe->name) {
        const char *slash = strrchr(recipe->model.name, '/');
        char *name = tri_arena_strdup(arena, slash ? slash + 1 : recipe->model.name);
        char *dot = slash ? strchr(name, '.') : NULL;
        if (dot) *dot = 0;
        recipe->name = *name ? name : "run";
        at = tri_tree_find(root, "model.name");
    }
    const char *name = recipe->name;
    bool good =
        *name && *name != '.' && !strchr(name, '/') && strlen(name) <= TRI_MAX_NAME_BYTES / 2;
    for (const char *c = name; *c; c++) good = good && (unsigned char)*c >= ' ' && *c != 0x7f;
    if (!good)
        return tri_tree_fail(at,
                             "'name' has to be usable as the name of a folder: no '/', not '.' "
                             "first, at most %d bytes",
                             TRI_MAX_NAME_BYTES / 2);
    return TRI_OK;
}

// Keys whose values follow from other keys where the recipe leaves them open.
static const char *const following_keys[] = {"name", "checkpoint.mode",
                                             "trainer.early_stopping.mode", "schedule.mode"};

static tri_strings keys_left_open(tri_arena *arena, const tri_tree *root) {
    const char **keys = TRI_NEW_ARRAY(arena, const char *, TRI_OPTION_COUNT(following_keys));
    int count = 0;
    for (int i = 0; i < TRI_OPTION_COUNT(following_keys); i++)
        if (tri_tree_is_null(tri_tree_find(root, following_keys[i])))
            keys[count++] = following_keys[i];
    return (tri_strings){.items = keys, .count = count};
}

static bool is_left_open(const tri_recipe *recipe, const char *key) {
    for (int i = 0; i < recipe->left_open.count; i++)
        if (!strcmp(recipe->left_open.items[i], key)) return true;
    return false;
}

// Chooses the mode of a monitored metric by its name if `key` is left open, and notes it if the
// name does not tell it. Else notes a mode that contradicts the name.
static void settle_mode(tri_arena *arena, tri_recipe *recipe, const char *key, const char *monitor,
                        bool is_used, tri_monitor_mode *mode) {
    tri_monitor_mode by_name;
    bool is_known = tri_monitor_mode_known(monitor, &by_name), is_open = is_left_open(recipe, key);
    if (is_open) *mode = by_name;
    if (is_used && is_open && !is_known)
        add_note(arena, recipe,
                 tri_arena_printf(arena,
                                  "the lowest %s counts as best, because its name does not tell "
                                  "whether higher is better; %s=max or min sets it",
                                  monitor, key));
    if (is_used && is_known && *mode != by_name)
        add_note(arena, recipe,
                 tri_arena_printf(arena,
                                  "%s is %s, so that the %s %s counts as best: is this meant? "
                                  "without the key, it is %s",
                                  key, tri_monitor_modes[*mode],
                                  by_name == TRI_MONITOR_MAX ? "lowest" : "highest", monitor,
                                  tri_monitor_modes[by_name]));
}

static void settle_modes(tri_arena *arena, tri_recipe *recipe) {
    tri_checkpoint_options *c = &recipe->checkpoint;
    tri_early_stopping_options *e = &recipe->trainer.early_stopping;
    settle_mode(arena, recipe, "checkpoint.mode", c->monitor, c->save_top_k != 0, &c->mode);
    settle_mode(arena, recipe, "trainer.early_stopping.mode", e->monitor, e->monitor != NULL,
                &e->mode);
    tri_schedule_options *s = &recipe->schedule;
    if (s->monitor) settle_mode(arena, recipe, "schedule.mode", s->monitor, true, &s->mode);
}

static tri_status resolve(tri_arena *arena, tri_tree *root, const char *file,
                          const char *const *overrides, int count, const char *task,
                          tri_recipe *out) {
    if (tri_tree_is_null(root)) return TRI_FAIL(TRI_BAD_INPUT, "%s: is empty: no recipe", file);
    if (root->kind != TRI_TREE_MAP)
        return tri_tree_fail(root, "a recipe has to be a mapping of keys to values");
    tri_deepspeed deepspeed;
    tri_recipe_dropped dropped = {{NULL}};
    TRI_TRY(merge_deepspeed(arena, root, file, overrides, count, &dropped, &deepspeed));
    tri_recipe_lengthen(arena, root);
    TRI_TRY(apply_overrides(arena, root, overrides, count, &dropped, &deepspeed.notes));
    TRI_TRY(tri_recipe_settle_paths(arena, &tri_recipe_table, root, file));
    TRI_TRY(tri_recipe_settle_config(arena, root, file, task != NULL));
    TRI_TRY(tri_recipe_settle_program(arena, root, file));
    TRI_TRY(tri_recipe_settle_strategy(arena, root));
    TRI_TRY(tri_recipe_settle_tensor_plan(root));
    TRI_TRY(tri_recipe_refuse_missing(arena, root));
    TRI_TRY(tri_option_decode(arena, &tri_recipe_table, root, out));
    out->left_open = keys_left_open(arena, root);
    out->has_default_precision = tri_tree_is_null(tri_tree_find(root, "trainer.precision"));
    out->has_default_epochs = tri_tree_is_null(tri_tree_find(root, "trainer.max_epochs"));
    out->rounds = deepspeed.rounds;
    tri_deepspeed_note_autos(arena, &deepspeed, overrides, count, tri_recipe_tree(arena, out));
    out->notes = tri_recipe_dropped_notes(arena, &dropped, root, tri_recipe_tree(arena, out),
                                          deepspeed.notes);
    settle_modes(arena, out);
    return settle_names(arena, root, task, out);
}

tri_status tri_recipe_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                            const char *const *overrides, int count, const char *task,
                            tri_recipe *out) {
    tri_tree *root;
    memset(out, 0, sizeof *out);
    TRI_TRY(tri_yaml_parse(arena, text, size, file, &root));
    return resolve(arena, root, file, overrides, count, task, out);
}

tri_status tri_recipe_load(tri_arena *arena, const char *path, const char *const *overrides,
                           int count, const char *task, tri_recipe *out) {
    tri_tree *root;
    memset(out, 0, sizeof *out);
    TRI_TRY(tri_yaml_read_file(arena, path, &root));
    return resolve(arena, root, path, overrides, count, task, out);
}

void tri_recipe_log_notes(const tri_recipe *recipe) {
    for (int i = 0; i < recipe->notes.count; i++)
        tri_log_line(TRI_LOG_WARNING, "%s", recipe->notes.items[i]);
}

static void leave_open(tri_arena *arena, tri_tree *root, const char *key) {
    const char *dot = strrchr(key, '.');
    tri_tree *section =
        dot ? tri_tree_find(root, tri_arena_printf(arena, "%.*s", (int)(dot - key), key)) : root;
    tri_tree_put(arena, section, dot ? dot + 1 : key, tri_tree_null(arena));
}

tri_tree *tri_recipe_tree(tri_arena *arena, const tri_recipe *recipe) {
    tri_tree *root = tri_option_encode(arena, &tri_recipe_table, recipe);
    tri_tree_remove(root, "deepspeed");
    tri_tree_remove(root, "recorded_in");
    if (!recipe->began_with) tri_tree_remove(root, "began_with");
    for (int i = 0; i < recipe->left_open.count; i++)
        if (tri_tree_find(root, recipe->left_open.items[i])) // the name of the schedule decides
            leave_open(arena, root, recipe->left_open.items[i]);
    return root;
}

char *tri_recipe_record(tri_arena *arena, const tri_recipe *recipe, const char *run_dir) {
    char real[PATH_MAX];
    tri_tree *root = tri_recipe_tree(arena, recipe);
    tri_recipe_complete_paths(arena, &tri_recipe_table, root);
    if (realpath(run_dir, real))
        tri_tree_put(arena, root, "recorded_in", tri_tree_string(arena, real));
    tri_recipe_shorten_init(arena, root);
    return tri_yaml_emit(arena, root);
}

char *tri_recipe_emit(tri_arena *arena, const tri_recipe *recipe) {
    tri_tree *root = tri_recipe_tree(arena, recipe);
    tri_recipe_shorten_init(arena, root);
    return tri_yaml_emit(arena, root);
}

typedef struct findings {
    tri_arena *arena;
    const tri_recipe *later;
    const tri_tree *a, *b; // the whole recipes
    const char **keys;
    int count, capacity;
} findings;

static void compare(findings *f, const char *prefix, const tri_tree *a, const tri_tree *b);

// Whether two values of a row that holds sections are lists of the same settings.
static bool are_same_sections(findings *f, const tri_option *row, const char *key,
                              const tri_tree *a, const tri_tree *b) {
    bool lists = a && b && a->kind == TRI_TREE_LIST && b->kind == TRI_TREE_LIST;
    if (!row || !row->holds_sections || !lists || a->count != b->count) return false;
    int section = (int)strcspn(key, ".");
    for (int i = 0; i < a->count; i++) {
        findings inner = {.arena = f->arena,
                          .later = f->later,
                          .a = tri_recipe_of_element(f->arena, f->a, key, i),
                          .b = tri_recipe_of_element(f->arena, f->b, key, i)};
        if (!inner.a || !inner.b) return false;
        compare(&inner, tri_arena_printf(f->arena, "%.*s.", section, key), inner.a->items[0],
                inner.b->items[0]);
        if (inner.count > 0) return false;
    }
    return true;
}

// Whether the recipe has changed the value of `key`, so that an older recipe of the same run may
// have another one.
static bool was_changed(const tri_recipe *recipe, const char *key) {
    for (int i = 0; recipe->began_with && i < recipe->began_with->count; i++) {
        const char *changed = recipe->began_with->items[i]->key;
        size_t length = strlen(changed);
        if (!strncmp(key, changed, length) && (!key[length] || key[length] == '.')) return true;
    }
    return false;
}

static void compare_entry(findings *f, const char *prefix, const char *key, const tri_tree *a,
                          const tri_tree *b) {
    const char *path = tri_arena_printf(f->arena, "%s%s", prefix, key);
    tri_option_change change;
    const tri_option *row = tri_option_find(&tri_recipe_table, path, &change);
    if (change == TRI_CHANGE_FREELY || was_changed(f->later, path)) return;
    bool both_maps = a && b && a->kind == TRI_TREE_MAP && b->kind == TRI_TREE_MAP;
    if (both_maps)
        compare(f, tri_arena_printf(f->arena, "%s.", path), a, b);
    else if (!tri_tree_equal(a, b) &&
             !tri_recipe_is_same_file(f->arena, row, path, f->a, a, f->b, b) &&
             !are_same_sections(f, row, path, a, b))
        TRI_PUSH(f->arena, f->keys, f->count, f->capacity) = path;
}

static void compare(findings *f, const char *prefix, const tri_tree *a, const tri_tree *b) {
    for (int i = 0; i < a->count; i++)
        compare_entry(f, prefix, a->items[i]->key, a->items[i], tri_tree_get(b, a->items[i]->key));
    for (int i = 0; i < b->count; i++)
        if (!tri_tree_get(a, b->items[i]->key))
            compare_entry(f, prefix, b->items[i]->key, NULL, b->items[i]);
}

tri_strings tri_recipe_differences(tri_arena *arena, const tri_recipe *a, const tri_recipe *b) {
    findings f = {
        .arena = arena, .later = b, .a = tri_recipe_tree(arena, a), .b = tri_recipe_tree(arena, b)};
    compare(&f, "", f.a, f.b);
    return (tri_strings){.items = f.keys, .count = f.count};
}

bool tri_recipe_is_named(const char *word) {
    const char *end = strrchr(word, '.');
    return end && (!strcmp(end, ".yaml") || !strcmp(end, ".yml"));
}
