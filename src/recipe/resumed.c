// Reads the recipe of a resumed run with the values that were changed since the run began.
#include "recipe/resumed.h"

#include "base/os.h"
#include "checkpoint/checkpoint.h"

#include <string.h>

// Reads the recipe that the run to resume has recorded: that of the run folder or, if it has none,
// that of the checkpoint that is named. *found: there is one.
static tri_status read_older(tri_arena *arena, const tri_recipe_resumption *r, bool *found,
                             tri_recipe *out) {
    const char *path = tri_arena_printf(arena, "%s/recipe.yaml", r->run_dir);
    *found = false;
    if (strcmp(r->resume, "never") != 0) TRI_TRY(tri_os_exists(path, found));
    if (*found) return tri_recipe_load(arena, path, NULL, 0, r->task, out);
    if (!strcmp(r->resume, "never") || !strcmp(r->resume, "auto")) return TRI_OK;
    tri_checkpoint_info info;
    TRI_TRY(tri_checkpoint_read_info(arena, r->resume, &info));
    *found = info.recipe != NULL;
    return *found ? tri_recipe_parse(arena, info.recipe, strlen(info.recipe), r->resume, NULL, 0,
                                     r->task, out)
                  : TRI_OK;
}

// Finds the key under which the change of `key` is recorded: `key` itself or the section that
// contains it, whichever the tables let change as a whole. NULL: it is not recorded, because it
// may change freely or not at all.
static const char *recorded_key(tri_arena *arena, const char *key) {
    for (size_t length = strcspn(key, ".=");; length += 1 + strcspn(key + length + 1, ".=")) {
        const char *head = tri_arena_printf(arena, "%.*s", (int)length, key);
        tri_option_change change;
        tri_option_find(&tri_recipe_table, head, &change);
        if (change != TRI_CHANGE_NEVER) return change == TRI_CHANGE_ON_ORDER ? head : NULL;
        if (key[length] != '.') return NULL;
    }
}

static tri_tree *copy_of(tri_arena *arena, const tri_tree *node) {
    return node ? tri_tree_copy(arena, node) : tri_tree_null(arena);
}

// Finds the name that a change gives the section `key`: "linear" of "schedule.name=linear"; NULL:
// none does.
static const char *new_name(const tri_recipe_resumption *r, const char *key) {
    static const char set[] = ".name=";
    size_t length = strlen(key);
    for (int i = r->change_count - 1; i >= 0; i--)
        if (!strncmp(r->changes[i], key, length) &&
            !strncmp(r->changes[i] + length, set, sizeof set - 1))
            return r->changes[i] + length + sizeof set - 1;
    return NULL;
}

// Gets the section `key` of the recipe with all that it has by default if it has this name; NULL:
// it cannot have it.
static const tri_tree *defaults_of(tri_arena *arena, const tri_recipe_resumption *r,
                                   const char *key, const char *name) {
    const char **words = TRI_NEW_ARRAY(arena, const char *, r->count + 1);
    for (int i = 0; i < r->count; i++) words[i] = r->overrides[i];
    words[r->count] = tri_arena_printf(arena, "%s={name: %s}", key, name);
    tri_recipe recipe;
    if (tri_recipe_load(arena, r->path, words, r->count + 1, r->task, &recipe) != TRI_OK)
        return NULL;
    return tri_tree_find(tri_recipe_tree(arena, &recipe), key);
}

// Gets what stays of the section `key` if a change gives it another name: the values that were
// given, of keys that it has under the new name as well. A recorded section also has all defaults
// of its old name, which would be unknown keys, or wrong values, under the new one.
static const tri_tree *renamed(tri_arena *arena, const tri_recipe_resumption *r, const char *key,
                               const tri_tree *section) {
    const tri_tree *old_name = tri_tree_get(section, "name");
    const char *name = new_name(r, key);
    if (!name || !old_name || !strcmp(old_name->text, name)) return section;
    const tri_tree *before = defaults_of(arena, r, key, old_name->text),
                   *after = defaults_of(arena, r, key, name);
    if (!before || !after) return section;
    tri_tree *kept = tri_tree_map(arena);
    tri_tree_put_string(arena, kept, "name", name);
    for (int i = 0; i < section->count; i++) {
        const tri_tree *value = section->items[i];
        if (value != old_name && tri_tree_get(after, value->key) &&
            !tri_tree_equal(value, tri_tree_get(before, value->key)))
            tri_tree_put(arena, kept, value->key, tri_tree_copy(arena, value));
    }
    return kept;
}

// Keeps the values of earlier changes, where this recipe has the value with which the run began.
// Adds the overrides that set them to `words`, and returns how many there are.
static int keep_earlier(tri_arena *arena, const tri_recipe_resumption *r, const tri_recipe *older,
                        const tri_recipe *own, const char **words, tri_tree *began) {
    const tri_tree *now = tri_recipe_tree(arena, older), *here = tri_recipe_tree(arena, own);
    int count = 0;
    for (int i = 0; older->began_with && i < older->began_with->count; i++) {
        const tri_tree *first = older->began_with->items[i],
                       *value = tri_tree_find(now, first->key);
        const tri_tree *wanted = tri_tree_find(here, first->key);
        if (!value || !(tri_tree_equal(wanted, first) || tri_tree_equal(wanted, value))) continue;
        value = renamed(arena, r, first->key, value);
        words[count++] = tri_arena_printf(arena, "%s=%s", first->key, tri_yaml_flow(arena, value));
        tri_tree_put(arena, began, first->key, tri_tree_copy(arena, first));
    }
    return count;
}

static tri_status apply(tri_arena *arena, const tri_recipe_resumption *r, const tri_recipe *older,
                        tri_recipe *out) {
    tri_tree *began = tri_tree_map(arena);
    int earlier = older->began_with ? older->began_with->count : 0;
    const char **words =
        TRI_NEW_ARRAY(arena, const char *, r->count + earlier + r->change_count + 1);
    int count = r->count;
    for (int i = 0; i < r->count; i++) words[i] = r->overrides[i];
    count += keep_earlier(arena, r, older, out, words + count, began);
    const tri_tree *now = tri_recipe_tree(arena, older);
    for (int i = 0; i < r->change_count; i++) {
        words[count++] = r->changes[i];
        const char *key = recorded_key(arena, r->changes[i]);
        if (!key || tri_tree_get(began, key)) continue;
        const tri_tree *first = tri_tree_get(older->began_with, key);
        tri_tree_put(arena, began, key, copy_of(arena, first ? first : tri_tree_find(now, key)));
    }
    if (count > r->count) TRI_TRY(tri_recipe_load(arena, r->path, words, count, r->task, out));
    out->began_with = began->count ? began : NULL;
    return TRI_OK;
}

tri_status tri_recipe_resume(tri_arena *arena, const tri_recipe_resumption *r, tri_recipe *out) {
    tri_recipe older;
    bool found;
    TRI_TRY(tri_recipe_load(arena, r->path, r->overrides, r->count, r->task, out));
    const char *run_dir = r->run_dir ? r->run_dir : tri_arena_printf(arena, "runs/%s", out->name);
    tri_recipe_resumption whole = *r;
    whole.run_dir = run_dir;
    tri_status status = read_older(arena, &whole, &found, &older);
    // Without changes, the comparison of the recipes reports what is wrong with the older one.
    if (r->change_count == 0 && (status != TRI_OK || !found)) {
        out->began_with = NULL;
        return TRI_OK;
    }
    if (status != TRI_OK) return tri_status_context(status, "--resume-with");
    if (!found)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "--resume-with: there is no run to resume in %s; begin one with %s as an "
                        "override, without the flag",
                        run_dir, r->changes[0]);
    return apply(arena, &whole, &older, out);
}

const tri_tree *tri_recipe_changes(tri_arena *arena, const tri_recipe *older,
                                   const tri_recipe *recipe) {
    const tri_tree *before = tri_recipe_tree(arena, older), *now = tri_recipe_tree(arena, recipe);
    tri_tree *list = NULL;
    for (int i = 0; recipe->began_with && i < recipe->began_with->count; i++) {
        const char *key = recipe->began_with->items[i]->key;
        const tri_tree *from = tri_tree_find(before, key), *to = tri_tree_find(now, key);
        if (tri_tree_equal(from, to)) continue;
        tri_tree *change = tri_tree_map(arena);
        tri_tree_put(arena, change, "key", tri_tree_string(arena, key));
        tri_tree_put(arena, change, "from", copy_of(arena, from));
        tri_tree_put(arena, change, "to", copy_of(arena, to));
        if (!list) list = tri_tree_list(arena);
        tri_tree_append(arena, list, change);
    }
    return list;
}
