// Tests that random numbers for initial weights that are drawn many at a time have the bits of
// those that are drawn one at a time, which define them.
#include "base/philox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 1000, GUARD = 3 };

// Compares numbers `first` to `first + count - 1`, and checks that nothing around them is written.
static void compare(uint64_t key, uint64_t first, int64_t count, float a, float b) {
    float uniform[MOST + 2 * GUARD], normal[MOST + 2 * GUARD], guard;
    memset(uniform, 0xa5, sizeof uniform);
    memset(normal, 0xa5, sizeof normal);
    memcpy(&guard, uniform, sizeof guard);
    tri_philox_init_uniforms(key, first, count, a, b, uniform + GUARD);
    tri_philox_init_normals(key, first, count, a, b, normal + GUARD);
    for (int64_t i = -GUARD; i < count + GUARD; i++) {
        bool inside = i >= 0 && i < count;
        uint64_t element = first + (uint64_t)i;
        float u = inside ? tri_philox_init_uniform(key, element, a, b) : guard;
        float n = inside ? tri_philox_init_normal(key, element, a, b) : guard;
        if (memcmp(&u, &uniform[GUARD + i], sizeof u) || memcmp(&n, &normal[GUARD + i], sizeof n))
            fail_msg("element %lld of %lld + %lld, %a %a: uniform %a, not %a; normal %a, not %a",
                     (long long)i, (long long)first, (long long)count, (double)a, (double)b,
                     (double)uniform[GUARD + i], (double)u, (double)normal[GUARD + i], (double)n);
    }
}

// Every offset in a block of four numbers, every length up to more than a tile of blocks, also
// beyond 2^34 elements, where the number of the block has more than 32 bits.
static void test_ranges(void **state) {
    (void)state;
    static const uint64_t starts[] = {0, 1u << 20, (1ull << 34) - 64, 1ull << 40};
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
        for (uint64_t offset = 0; offset < 5; offset++)
            for (int64_t count = 0; count < 300; count += count < 140 ? 1 : 37)
                compare(tri_philox_key(s, "range"), starts[s] + offset, count, 0.0f, 0.02f);
}

// Many numbers, because few are so near to the middle of two floats that the C library decides.
static void test_many(void **state) {
    (void)state;
    for (uint64_t first = 0; first < 1000000; first += MOST) {
        compare(tri_philox_key(1, "many"), first, MOST, 0.0f, 0.02f);
        compare(tri_philox_key(2, "many"), first, MOST, 1.0f, 0.25f);
    }
}

// Means and deviations at the ends of what a float holds: zero, numbers that round to zero or to
// infinity, a mean near which all numbers are equal.
static void test_extremes(void **state) {
    (void)state;
    static const float values[] = {0,     -0.0f,  1e-45f, 1e-38f,   -0.5f, 1e-6f,
                                   1e20f, -3e38f, 3e38f,  INFINITY, NAN};
    enum { VALUES = sizeof values / sizeof *values };
    for (int a = 0; a < VALUES; a++)
        for (int b = 0; b < VALUES; b++)
            for (uint64_t first = 0; first < 20 * MOST; first += MOST)
                compare(tri_philox_key(first, "extremes"), first, MOST, values[a], values[b]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranges), cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_extremes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
