// An arena for the tests of one program: cmocka's set-up and tear-down of the group.
#ifndef TESTS_SUPPORT_ARENA_FIXTURE_H
#define TESTS_SUPPORT_ARENA_FIXTURE_H

#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static tri_arena *arena;

static inline int make_arena(void **state) {
    arena = tri_arena_create(NULL, "test");
    return 0;
}

static inline int drop_arena(void **state) {
    tri_arena_destroy(arena);
    return 0;
}

#endif
