// Reads arbitrary bytes as the config.json of a Hugging Face model, alone and under a recipe that
// has some of its values. One that is accepted is written again, where transformers have such a
// model, and has to be the same model then.
#include "nn/models/config_json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_again(tri_arena *arena, const model_config *first) {
    model_config second;
    tri_tree *config, *before, *after;
    if (model_config_write(arena, first->task, first->options, &config) != TRI_OK) return;
    const char *text = tri_json_emit(arena, config);
    TRI_ASSERT(tri_json_parse(arena, text, strlen(text), "again", &config) == TRI_OK);
    TRI_ASSERT(model_config_read(arena, config, NULL, &second) == TRI_OK);
    TRI_ASSERT(second.task == first->task);
    TRI_ASSERT(model_config_complete(arena, first->task, first->options, &before) == TRI_OK);
    TRI_ASSERT(model_config_complete(arena, first->task, second.options, &after) == TRI_OK);
    TRI_ASSERT(tri_tree_equal(before, after));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char own[] = "{hidden_size: 8, activation_function: gelu, sliding_window: 4, "
                              "rope_scaling: {rope_type: default}}";
    tri_arena *arena = tri_arena_create(NULL, "fuzz");
    tri_tree *config, *recipe;
    model_config found;
    TRI_ASSERT(tri_yaml_parse(arena, own, strlen(own), "own", &recipe) == TRI_OK);
    if (tri_json_parse(arena, (const char *)data, size, "fuzz", &config) == TRI_OK) {
        if (model_config_read(arena, config, NULL, &found) == TRI_OK) write_again(arena, &found);
        if (model_config_read(arena, config, recipe, &found) == TRI_OK)
            TRI_ASSERT(!tri_tree_get(found.options, "hidden_size"));
    }
    tri_arena_destroy(arena);
    return 0;
}
