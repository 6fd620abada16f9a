// Compares recipes key by key.
#include "views/differences.h"

#include "base/index.h"

#include <string.h>

typedef struct settings {
    tri_arena *arena;
    int recipe_count;
    views_difference *items;
    int count, capacity;
    tri_index index; // of the items, by key
} settings;

static views_difference *setting_of(settings *s, const char *key) {
    int at = tri_index_find(&s->index, key, strlen(key));
    if (at != TRI_NOT_IN_INDEX) return &s->items[at];
    tri_index_put(s->arena, &s->index, key, strlen(key), s->count);
    views_difference *item = &TRI_PUSH(s->arena, s->items, s->count, s->capacity);
    item->key = key;
    item->values = TRI_NEW_ARRAY(s->arena, const tri_tree *, s->recipe_count);
    return item;
}

static bool is_nothing(const tri_tree *value) {
    return tri_tree_is_null(value) || (value->kind != TRI_TREE_SCALAR && value->count == 0);
}

static void collect(settings *s, int recipe, const tri_tree *node, const char *prefix) {
    for (int i = 0; i < node->count; i++) {
        const tri_tree *item = node->items[i];
        const char *key = *prefix ? tri_arena_printf(s->arena, "%s.%s", prefix, item->key)
                                  : tri_arena_strdup(s->arena, item->key);
        if (item->kind == TRI_TREE_MAP && item->count > 0)
            collect(s, recipe, item, key);
        else if (!is_nothing(item) && strcmp(key, "recorded_in") != 0)
            setting_of(s, key)->values[recipe] = item;
    }
}

static bool differ(const tri_tree *a, const tri_tree *b) {
    return !a != !b || (a && !tri_tree_equal(a, b));
}

int views_differences_find(tri_arena *arena, const tri_tree *const *recipes, int count,
                           views_difference **out) {
    settings s = {.arena = arena, .recipe_count = count};
    for (int r = 0; r < count; r++)
        if (recipes[r] && recipes[r]->kind == TRI_TREE_MAP) collect(&s, r, recipes[r], "");
    int kept = 0;
    for (int i = 0; i < s.count; i++) {
        bool is_kept = false;
        for (int r = 1; r < count; r++)
            is_kept = is_kept || differ(s.items[i].values[0], s.items[i].values[r]);
        if (is_kept) s.items[kept++] = s.items[i];
    }
    *out = s.items;
    return kept;
}
