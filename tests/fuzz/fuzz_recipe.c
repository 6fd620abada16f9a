// Reads arbitrary bytes as a recipe; a first line with '=' is an override. If a recipe is accepted,
// its text with all defaults has to give the same recipe again. It is also planned and run for one
// step, with synthetic data on the device `null`, which computes nothing.
#include "../support/null_train.h"

#include "recipe/recipe.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Planning searches for settings that fit into memory. Its time grows with the square of the number
// of layers: seconds for hundreds of layers, and many seconds with sanitizers. So this test leaves
// deep models to tests/unit/test_extremes.c.
static bool is_shallow(const tri_recipe *recipe) {
    int64_t layers;
    const tri_tree *node = tri_tree_get(recipe->model.options, "num_hidden_layers");
    return !node || !tri_tree_to_int(node, &layers) || layers <= 32;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    const char *end = size ? memchr(text, '\n', size) : NULL;
    tri_arena *arena = tri_arena_create(NULL, "fuzz");
    const char *overrides[1] = {0};
    int count = 0;
    if (end && memchr(text, '=', (size_t)(end - text)) && !memchr(text, 0, (size_t)(end - text))) {
        overrides[count++] = tri_arena_printf(arena, "%.*s", (int)(end - text), text);
        size -= (size_t)(end + 1 - text);
        text = end + 1;
    }
    tri_recipe recipe, again;
    if (tri_recipe_parse(arena, text, size, "fuzz", overrides, count, "task", &recipe) == TRI_OK) {
        const char *resolved = tri_recipe_emit(arena, &recipe);
        if (tri_recipe_parse(arena, resolved, strlen(resolved), "again", NULL, 0, NULL, &again) !=
            TRI_OK)
            abort();
        if (strcmp(tri_recipe_emit(arena, &again), resolved) != 0) abort();
        if (tri_recipe_differences(arena, &recipe, &again).count != 0) abort();
        if (null_train_takes(&recipe) && is_shallow(&recipe) && null_train(&recipe) == TRI_INTERNAL)
            abort();
    }
    tri_tree *tree;
    tri_status status = tri_json_parse(arena, text, size, "fuzz", &tree);
    if (status == TRI_OK) {
        const char *json = tri_json_emit(arena, tree);
        tri_tree *back;
        if (tri_json_parse(arena, json, strlen(json), "again", &back) != TRI_OK) abort();
        if (!tri_tree_equal(tree, back)) abort();
    }
    tri_arena_destroy(arena);
    return 0;
}
