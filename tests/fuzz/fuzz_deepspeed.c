// Reads arbitrary bytes as a DeepSpeed configuration and merges it into a recipe. If the result is
// a valid recipe, its text has to give the same recipe again. The batch sizes that it gives for
// one, two and three replicas have to be possible ones, unless they are refused.
#include "recipe/batch.h"
#include "recipe/deepspeed.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_batch(const tri_recipe *recipe) {
    for (int64_t replicas = 1; replicas <= 3; replicas++) {
        tri_batch_options batch;
        if (tri_recipe_settle_batch(recipe, replicas, &batch) != TRI_OK) continue;
        if (batch.global < 1 || batch.micro < 0 || batch.micro > batch.global) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char recipe_text[] = "data: {name: idx}\n";
    tri_arena *arena = tri_arena_create(NULL, "fuzz");
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = 0;
    tri_deepspeed deepspeed;
    tri_tree *root;
    if (tri_deepspeed_parse(arena, text, size, "fuzz", &deepspeed) == TRI_OK &&
        tri_yaml_parse(arena, recipe_text, strlen(recipe_text), "recipe", &root) == TRI_OK) {
        if (tri_deepspeed_merge(arena, &deepspeed, root, false, NULL, 0) != TRI_OK) abort();
        const char *whole = tri_yaml_emit(arena, root);
        tri_recipe recipe, again;
        if (tri_recipe_parse(arena, whole, strlen(whole), "recipe", NULL, 0, "task", &recipe) ==
            TRI_OK) {
            recipe.rounds = deepspeed.rounds;
            check_batch(&recipe);
            const char *resolved = tri_recipe_emit(arena, &recipe);
            if (tri_recipe_parse(arena, resolved, strlen(resolved), "again", NULL, 0, NULL,
                                 &again) != TRI_OK)
                abort();
            if (strcmp(tri_recipe_emit(arena, &again), resolved) != 0) abort();
        }
    }
    free(text);
    tri_arena_destroy(arena);
    return 0;
}
