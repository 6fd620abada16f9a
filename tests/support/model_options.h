// The options of a model as a recipe has them, for tests that build its graph themselves.
#ifndef TESTS_SUPPORT_MODEL_OPTIONS_H
#define TESTS_SUPPORT_MODEL_OPTIONS_H

#include "base/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

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

#endif
