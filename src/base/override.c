// Applies values from the command line: "trainer.max_epochs=3" sets one value in the tree (the
// parsed YAML, base/tree.h) of a recipe.
#include "base/limits.h"
#include "base/tree.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

// Sets `value` at `path` below `node`, and makes missing maps on the way, because the recipe need
// not contain the section that the path names.
static tri_status set_at(tri_arena *arena, tri_tree *node, const char *path, tri_tree *value) {
    const char *whole = path;
    for (int depth = 0;; depth++) {
        size_t length = strcspn(path, ".");
        if (length == 0) return tri_tree_fail(value, "the key '%s' has an empty part", whole);
        if (depth >= TRI_MAX_TREE_DEPTH) return tri_tree_fail(value, "the key is too deep");
        char *name = tri_arena_printf(arena, "%.*s", (int)length, path);
        bool is_last = !path[length];
        path += length + 1;
        tri_tree *next = tri_tree_entry(node, name, length);
        if (node->kind == TRI_TREE_LIST) {
            if (!next)
                return tri_tree_fail(value, "'%s' is not a position of a list of %d", name,
                                     node->count);
            if (is_last) {
                for (int i = 0; i < node->count; i++)
                    if (node->items[i] == next) node->items[i] = value;
                return TRI_OK;
            }
        } else if (is_last) {
            tri_tree_put(arena, node, name, value);
            return TRI_OK;
        }
        if (tri_tree_is_null(next)) {
            next = tri_tree_map(arena);
            next->file = value->file;
            tri_tree_put(arena, node, name, next);
        }
        if (next->kind == TRI_TREE_SCALAR)
            return tri_tree_fail(value, "'%.*s' is '%s' and has no keys of its own",
                                 (int)(path - whole - 1), whole, next->text);
        node = next;
    }
}

tri_status tri_tree_override(tri_arena *arena, tri_tree *root, const char *assignment) {
    TRI_ASSERT(root->kind == TRI_TREE_MAP);
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment)
        return TRI_FAIL(TRI_BAD_INPUT, "override '%.200s': write it as key.path=value", assignment);
    if (!equals[1])
        return TRI_FAIL(TRI_BAD_INPUT,
                        "override '%.200s': the value is missing; null stands for the default",
                        assignment);
    // With line feeds, the value could be a whole YAML document instead of one value.
    if (strpbrk(assignment, "\r\n"))
        return TRI_FAIL(TRI_BAD_INPUT, "override '%.200s': has to be one line", assignment);
    char *source = tri_arena_printf(arena, "override '%.200s'", assignment);
    char *path = tri_arena_printf(arena, "%.*s", (int)(equals - assignment), assignment);
    tri_tree *value;
    if (strlen(equals + 1) > TRI_MAX_RECIPE_BYTES)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: is too long", source);
    // json_string returns NULL for a key that is not UTF-8. Such a key is rejected, because a run
    // writes the recipe with its overrides into a file, which could not be read again.
    json_t *text = json_string(path);
    if (!text) return TRI_FAIL(TRI_BAD_INPUT, "%s: the key is not UTF-8", source);
    json_decref(text);
    TRI_TRY(tri_yaml_parse_value(arena, equals + 1, source, &value));
    return set_at(arena, root, path, value);
}
