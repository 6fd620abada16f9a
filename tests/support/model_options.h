// The options of a model as a recipe has them, for tests that build its graph themselves.
#ifndef TESTS_SUPPORT_MODEL_OPTIONS_H
#define TESTS_SUPPORT_MODEL_OPTIONS_H

#include "base/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

// Parses a formatted map in YAML's flow style: "{vocab_size: %d}". The tree lies in `arena`.
__attribute__((format(printf, 2, 3))) static inline tri_tree *
model_options(tri_arena *arena, const char *format, ...) {
    char text[1024];
    tri_tree *map;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    assert_int_equal(tri_yaml_parse_value(arena, text, "the test's options", &map), TRI_OK);
    return map;
}

enum { SMALL_IMAGE = 16 };
// Options that make the built-in model of this name small, for images of SMALL_IMAGE pixels a side;
// NULL: its defaults are small enough.
__attribute__((unused)) static tri_tree *small_model_options(tri_arena *arena, const char *name) {
    if (!strcmp(name, "resnet")) return model_options(arena, "{depth: 18, stem: cifar}");
    if (!strcmp(name, "vit"))
        return model_options(arena, "{image_size: 16, patch_size: 8, num_layers: 2, num_heads: 2, "
                                    "hidden_dim: 32, mlp_dim: 48}");
    if (!strcmp(name, "gpt2"))
        return model_options(
            arena, "{vocab_size: 256, n_positions: 64, n_embd: 32, n_layer: 2, n_head: 2}");
    if (!strcmp(name, "weather-vit"))
        return model_options(arena, "{img_size: [16, 16], embed_dim: 32, depth: 2, num_heads: 4}");
    return NULL;
}

#endif
