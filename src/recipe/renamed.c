// Handles overrides that change the `name` of a section, such as optimizer.name=adam: drops the
// section's other keys, which belong to the old name, and notes which values change by that.
#include "recipe/renamed.h"

#include "data/options.h"
#include "nn/average.h"
#include "nn/options.h"
#include "recipe/trainer.h"

#include <string.h>

// Sections in which the key `name` decides which other keys exist. is_told: a note tells the user
// about dropped keys. For `data` there is no note, because users expect that other data need other
// settings.
static const struct {
    const char *section, *key;
    const tri_option_table *table;
    bool is_told;
} named[TRI_RECIPE_NAMED_SECTIONS] = {
    {"data", "data.name", &tri_data_table, false},
    {"optimizer", "optimizer.name", &tri_optimizer_table, true},
    {"schedule", "schedule.name", &tri_schedule_table, true},
    {"loss", "loss.name", &tri_loss_table, true},
    {"average", "average.name", &tri_average_table, true},
};

static const char *default_name(const tri_option_table *table) {
    for (int i = 0; i < table->count; i++)
        if (!strcmp(table->rows[i].key, "name")) return table->rows[i].default_yaml;
    return NULL;
}

void tri_recipe_drop_renamed(tri_arena *arena, tri_tree *root, const char *path,
                             const tri_tree *value, tri_recipe_dropped *dropped) {
    for (size_t i = 0; i < TRI_RECIPE_NAMED_SECTIONS; i++) {
        if (strcmp(path, named[i].key) != 0) continue;
        tri_tree *section = tri_tree_get(root, named[i].section);
        if (!section || section->kind != TRI_TREE_MAP) return;
        const tri_tree *name = tri_tree_get(section, "name");
        const char *old = default_name(named[i].table);
        if (name && name->kind == TRI_TREE_SCALAR) old = name->text;
        if (!old) return; // the section has no keys that belong to an old name
        if (value->kind != TRI_TREE_SCALAR || !strcmp(old, value->text)) return;
        if (!dropped->sections[i]) dropped->sections[i] = tri_tree_copy(arena, section);
        section->count = 0;
    }
}

const tri_tree *tri_recipe_dropped_value(const tri_recipe_dropped *dropped, const char *path) {
    const char *dot = strchr(path, '.');
    for (size_t i = 0; dot && i < TRI_RECIPE_NAMED_SECTIONS; i++) {
        size_t length = strlen(named[i].section);
        if ((size_t)(dot - path) == length && !strncmp(path, named[i].section, length))
            return tri_tree_find(dropped->sections[i], dot + 1);
    }
    return NULL;
}

// Makes the note about the keys that one section has lost. `old` is the section with these keys,
// `given` is what the recipe now sets in it, and `now` is `given` with all defaults. The note lists
// the keys whose value is now another, and those that do not exist under the new name. NULL: no key
// has another value, even if some keys no longer exist.
static const char *note_of(tri_arena *arena, const char *section, const tri_tree *old,
                           const tri_tree *given, const tri_tree *now) {
    const char *changed = "", *gone = "", *keep = NULL;
    const tri_tree *name = tri_tree_get(now, "name");
    for (int i = 0; i < old->count; i++) {
        const tri_tree *was = old->items[i], *is = tri_tree_get(now, was->key);
        bool is_given = !tri_tree_is_null(tri_tree_get(given, was->key));
        if (!strcmp(was->key, "name") || tri_tree_is_null(was) || is_given) continue;
        const char *text = tri_yaml_flow(arena, was);
        if (!is) {
            gone = tri_arena_printf(arena, "%s, %s %s is gone", gone, was->key, text);
        } else if (!tri_tree_equal(was, is)) {
            changed = tri_arena_printf(arena, "%s%s%s %s is now %s", changed, *changed ? ", " : "",
                                       was->key, text, tri_yaml_flow(arena, is));
            if (!keep) keep = tri_arena_printf(arena, "%s.%s=%s", section, was->key, text);
        }
    }
    if (!keep) return NULL;
    return tri_arena_printf(arena,
                            "%s.name=%s drops the recipe's other keys of %s: %s%s; to keep one, "
                            "add it: %s",
                            section, name->text, section, changed, gone, keep);
}

const char *tri_recipe_replaced_note(tri_arena *arena, const tri_tree *root, const char *override) {
    size_t length = strcspn(override, "=");
    const char *path = tri_arena_printf(arena, "%.*s", (int)length, override), *gone = "";
    const tri_tree *old = tri_tree_get(root, path);
    tri_tree *value;
    if (!old || old->kind != TRI_TREE_MAP || !override[length]) return NULL;
    if (tri_yaml_parse_value(arena, override + length + 1, override, &value) != TRI_OK) return NULL;
    bool is_map = value->kind == TRI_TREE_MAP;
    if (!is_map && !tri_tree_is_null(value)) return NULL; // decoding rejects it later
    if (!strcmp(path, "data") && is_map && tri_tree_get(value, "name")) return NULL;
    for (int i = 0; i < old->count; i++) {
        const tri_tree *was = old->items[i];
        if (tri_tree_is_null(was) || (is_map && tri_tree_get(value, was->key))) continue;
        gone = tri_arena_printf(arena, "%s%s%s: %s", gone, *gone ? ", " : "", was->key,
                                tri_yaml_flow(arena, was));
    }
    if (!*gone) return NULL;
    return tri_arena_printf(arena,
                            "'%s' replaces the whole section, so that the recipe's {%s} no longer "
                            "holds; %s.KEY=VALUE changes one key",
                            override, gone, path);
}

tri_strings tri_recipe_dropped_notes(tri_arena *arena, const tri_recipe_dropped *dropped,
                                     const tri_tree *root, const tri_tree *resolved,
                                     tri_strings notes) {
    int count = notes.count;
    const char **all = TRI_NEW_ARRAY(arena, const char *, count + TRI_RECIPE_NAMED_SECTIONS);
    for (int i = 0; i < count; i++) all[i] = notes.items[i];
    for (int i = 0; i < TRI_RECIPE_NAMED_SECTIONS; i++) {
        if (!dropped->sections[i] || !named[i].is_told) continue;
        const char *note =
            note_of(arena, named[i].section, dropped->sections[i],
                    tri_tree_get(root, named[i].section), tri_tree_get(resolved, named[i].section));
        if (note) all[count++] = note;
    }
    return (tri_strings){all, count};
}
