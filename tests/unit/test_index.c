// Checks the index, a hash table that finds a number by a name: many names, names that are parts of
// longer texts, and numbers that are set again.
#include "base/index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { NAMES = 5000 };

static int find(const tri_index *index, const char *name) {
    return tri_index_find(index, name, strlen(name));
}

static void test_many(void **state) {
    (void)state;
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_index index = {0};
    assert_int_equal(find(&index, "0"), TRI_NOT_IN_INDEX);
    for (int i = 0; i < NAMES; i++) {
        const char *name = tri_arena_printf(arena, "layer%d", i);
        assert_int_equal(find(&index, name), TRI_NOT_IN_INDEX);
        tri_index_put(arena, &index, name, strlen(name), i);
    }
    assert_int_equal(index.count, NAMES);
    for (int i = 0; i < NAMES; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer%d", i);
        assert_int_equal(find(&index, name), i);
    }
    assert_int_equal(find(&index, "layer"), TRI_NOT_IN_INDEX);
    assert_int_equal(find(&index, ""), TRI_NOT_IN_INDEX);
    tri_arena_destroy(arena);
}

static void test_again(void **state) {
    (void)state;
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_index index = {0};
    const char *text = "fc1.weight";
    tri_index_put(arena, &index, text, 3, 7);
    tri_index_put(arena, &index, text, strlen(text), 8);
    tri_index_put(arena, &index, "", 0, 9);
    assert_int_equal(find(&index, "fc1"), 7);
    assert_int_equal(find(&index, text), 8);
    assert_int_equal(find(&index, ""), 9);
    tri_index_put(arena, &index, "fc1", 3, 10);
    assert_int_equal(find(&index, "fc1"), 10);
    assert_int_equal(index.count, 3);
    tri_arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many), cmocka_unit_test(test_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
