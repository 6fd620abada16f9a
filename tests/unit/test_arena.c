// Checks allocations from an arena: how much memory they use, and that no two of them return the
// same pointer.
#include "base/arena.h"

#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_rounding(void **state) {
    const size_t unit = alignof(max_align_t);
    tri_arena *arena = tri_arena_create(NULL, "test");
    size_t used = 0;
    const char *before = NULL;
    for (size_t size = 0; size <= 3 * unit; size++) {
        const char *memory = tri_arena_alloc(arena, size);
        assert_true(memory != before);
        assert_int_equal((uintptr_t)memory % unit, 0);
        used += size == 0 ? unit : (size + unit - 1) / unit * unit;
        assert_int_equal(tri_arena_used(arena), used);
        before = memory;
    }
    tri_arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
