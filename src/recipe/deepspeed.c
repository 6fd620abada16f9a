// Reads a DeepSpeed configuration into settings of a recipe, and merges them into the recipe's
// tree. Read next: deepspeed_reader.c, which reads the configuration's keys by the tables in
// deepspeed_rows.c and deepspeed_named.c.
#include "recipe/deepspeed.h"

#include "base/limits.h"
#include "base/os.h"
#include "recipe/deepspeed_tables.h"

#include <stdlib.h>
#include <string.h>

// Sets the sizes of a batch. A configuration may give any of train_batch_size,
// train_micro_batch_size_per_gpu and gradient_accumulation_steps; in DeepSpeed, the first is the
// product of the other two and the number of replicas.
static void finish_batch(deepspeed_reader *reader) {
    tri_arena *arena = reader->arena;
    if (reader->train)
        deepspeed_set(reader, "batch.global", "train_batch_size",
                      tri_tree_int(arena, reader->train));
    else if (reader->micro && !reader->has_auto_train)
        deepspeed_add(reader, (tri_deepspeed_setting){.key = "batch.global",
                                                      .value = tri_tree_plain(arena, "auto"),
                                                      .is_derived = true});
    if (reader->micro)
        deepspeed_set(reader, "batch.micro", "train_micro_batch_size_per_gpu",
                      tri_tree_int(arena, reader->micro));
    if (reader->accumulation)
        deepspeed_set(reader, "trainer.accumulate_grad_batches", "gradient_accumulation_steps",
                      tri_tree_int(arena, reader->accumulation));
    reader->out->rounds = reader->accumulation             ? reader->accumulation
                          : reader->train && reader->micro ? TRI_AUTO
                                                           : 0;
}

static void append(tri_arena *arena, tri_strings *list, const char *text) {
    const char **all = TRI_NEW_ARRAY(arena, const char *, list->count + 1);
    for (int i = 0; i < list->count; i++) all[i] = list->items[i];
    all[list->count] = text;
    *list = (tri_strings){all, list->count + 1};
}

static void add_note(deepspeed_reader *reader, const char *text) {
    append(reader->arena, &reader->notes, text);
}

static void finish(deepspeed_reader *reader) {
    tri_arena *arena = reader->arena;
    finish_batch(reader);
    if (reader->precision)
        deepspeed_set(reader, "trainer.precision", reader->precision_key,
                      tri_tree_string(arena, reader->precision));
    if (reader->offload_key)
        deepspeed_set(
            reader, "strategy.offload", reader->offload_key,
            tri_tree_string(arena, reader->offloads_parameters ? "parameters" : "optimizer"));
    if (reader->nvme_path && reader->offloads_to_file)
        deepspeed_set(reader, "strategy.offload_path", reader->nvme_key,
                      tri_tree_string(arena, reader->nvme_path));
    else if (reader->nvme_path)
        TRI_PUSH(arena, reader->idle, reader->idle_count, reader->idle_capacity) = reader->nvme_key;
    if (reader->idle_count) {
        const char *list = "";
        for (int i = 0; i < reader->idle_count; i++)
            list = tri_arena_printf(arena, "%s%s%s", list, i ? ", " : "", reader->idle[i]);
        add_note(reader,
                 tri_arena_printf(arena, "%s: without effect here: %s", reader->file, list));
    }
    reader->out->notes = reader->notes;
}

static tri_status read_map(deepspeed_reader *reader, const tri_tree *map) {
    reader->root = map;
    TRI_TRY(deepspeed_walk(reader, &deepspeed_top, "", "", map));
    finish(reader);
    return TRI_OK;
}

tri_status tri_deepspeed_parse(tri_arena *arena, char *text, size_t size, const char *file,
                               tri_deepspeed *out) {
    *out = (tri_deepspeed){0};
    deepspeed_reader reader = {.arena = arena, .file = file, .out = out};
    tri_tree *map;
    if (tri_json_relax(text, size))
        add_note(&reader, tri_arena_printf(arena,
                                           "%s: has comments or commas after a last entry, which "
                                           "JSON does not allow; they are ignored",
                                           file));
    TRI_TRY(tri_json_parse(arena, text, size, file, &map));
    if (map->kind != TRI_TREE_MAP)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: a DeepSpeed configuration has to be an object", file);
    return read_map(&reader, map);
}

tri_status tri_deepspeed_read(tri_arena *arena, const tri_tree *node, tri_deepspeed *out) {
    *out = (tri_deepspeed){0};
    if (node->kind == TRI_TREE_MAP) {
        deepspeed_reader reader = {
            .arena = arena,
            .file = tri_arena_printf(arena, "%s: deepspeed", node->file ? node->file : "recipe"),
            .out = out};
        return read_map(&reader, node);
    }
    if (node->kind != TRI_TREE_SCALAR || !*node->text)
        return tri_tree_fail(node, "'deepspeed' has to be the name of a file, or a mapping");
    const char *path = node->text;
    char *text;
    size_t size;
    TRI_TRY(tri_os_read_file(path, TRI_MAX_RECIPE_BYTES, &text, &size));
    tri_status status = tri_deepspeed_parse(arena, text, size, path, out);
    free(text);
    return status;
}

// Whether an override of the command line sets `key`, a map that contains it, or a key inside it,
// or changes the `name` of its section. Then the override decides, and the value of the DeepSpeed
// configuration is dropped.
static bool is_overridden(const char *key, const char *const *overrides, int count) {
    size_t length = strlen(key), section = strcspn(key, ".");
    for (int i = 0; i < count; i++) {
        size_t end = strcspn(overrides[i], "=");
        size_t common = end < length ? end : length;
        bool touches = !strncmp(overrides[i], key, common) &&
                       (end == length || (end < length ? key[end] : overrides[i][length]) == '.');
        bool renames = end == section + 5 && !strncmp(overrides[i], key, section) &&
                       !strncmp(overrides[i] + section, ".name", 5);
        if (touches || renames) return true;
    }
    return false;
}

// Finds the map in which `key` has to be set: for "a.b.c" the map a.b, and *last is "c". Makes maps
// that are missing. NULL: a or a.b is not a map, which decoding the recipe will reject.
static tri_tree *map_of(tri_arena *arena, tri_tree *map, const char *key, const char **last) {
    for (const char *dot; (dot = strchr(key, '.')); key = dot + 1) {
        const char *word = tri_arena_printf(arena, "%.*s", (int)(dot - key), key);
        tri_tree *below = tri_tree_get(map, word);
        if (tri_tree_is_null(below)) {
            below = tri_tree_map(arena);
            tri_tree_put(arena, map, word, below);
        }
        if (below->kind != TRI_TREE_MAP) return NULL;
        map = below;
    }
    *last = key;
    return map;
}

static tri_status merge_one(tri_arena *arena, const tri_deepspeed_setting *s, tri_tree *root,
                            bool is_override, bool may_replace, tri_strings *notes) {
    const char *last;
    tri_tree *map = map_of(arena, root, s->key, &last);
    if (!map) return TRI_OK;
    const tri_tree *own = tri_tree_get(map, last);
    if (!tri_tree_is_null(own)) {
        if (s->is_fallback || (s->is_derived && !is_override)) return TRI_OK;
        bool differs = !may_replace && !tri_tree_equal(own, s->value);
        if (differs && s->yields) {
            append(arena, notes,
                   tri_arena_printf(arena, "%s is %s, but '%s' is %s in the recipe, which holds",
                                    s->value->file, tri_yaml_flow(arena, s->value), s->key,
                                    tri_yaml_flow(arena, own)));
            return TRI_OK;
        }
        if (differs)
            return tri_tree_fail(own,
                                 "'%s' is %s here, but %s in %s: remove one of them, or override "
                                 "it on the command line",
                                 s->key, tri_yaml_flow(arena, own), tri_yaml_flow(arena, s->value),
                                 s->value->file);
    }
    tri_tree_put(arena, map, last, tri_tree_copy(arena, s->value));
    return TRI_OK;
}

// Values that mean what Hugging Face's Trainer writes for "auto".
static const struct {
    const char *key, *meaning;
} trainer_rules[] = {
    {"schedule.total_steps", "the whole run, as with Hugging Face's Trainer"},
    {"schedule.max_lr", "optimizer.lr, as with Hugging Face's Trainer"},
};

void tri_deepspeed_note_autos(tri_arena *arena, tri_deepspeed *deepspeed,
                              const char *const *overrides, int count, const tri_tree *resolved) {
    const char *list = "";
    for (int i = 0; i < deepspeed->count; i++) {
        const tri_deepspeed_setting *s = &deepspeed->settings[i];
        const tri_tree *value = tri_tree_find(resolved, s->key);
        if (!s->is_missing || !value || is_overridden(s->key, overrides, count)) continue;
        const char *meaning =
            tri_arena_printf(arena, "%s, DeepSpeed's default", tri_yaml_flow(arena, value));
        for (size_t k = 0; k < sizeof trainer_rules / sizeof *trainer_rules; k++)
            if (!strcmp(s->key, trainer_rules[k].key)) meaning = trainer_rules[k].meaning;
        list =
            tri_arena_printf(arena, "%s%s%s: %s", list, *list ? "; " : "", s->value->file, meaning);
    }
    if (*list)
        append(arena, &deepspeed->notes,
               tri_arena_printf(
                   arena, "\"auto\" in DeepSpeed's configuration, and no value in the recipe: %s",
                   list));
}

tri_status tri_deepspeed_merge(tri_arena *arena, tri_deepspeed *deepspeed, tri_tree *root,
                               bool is_override, const char *const *overrides, int count) {
    for (int fallback = 0; fallback <= 1; fallback++) {
        for (int i = 0; i < deepspeed->count; i++) {
            tri_deepspeed_setting *s = &deepspeed->settings[i];
            if (s->is_fallback != (fallback == 1)) continue;
            if (s->is_auto) {
                s->is_missing = tri_tree_is_null(tri_tree_find(root, s->key));
                continue;
            }
            bool may_replace = is_override || is_overridden(s->key, overrides, count);
            TRI_TRY(merge_one(arena, s, root, is_override, may_replace, &deepspeed->notes));
        }
    }
    return TRI_OK;
}
