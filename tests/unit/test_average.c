// Which steps count in the averages of the weights, and how much.
#include "nn/average.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_none(void **state) {
    (void)state;
    tri_average_options o = {.name = "none"};
    assert_false(tri_average_is_on(&o) || tri_average_is_on(&(tri_average_options){0}));
    assert_false(tri_average_counts(&o, 0, 1));
}

static void test_ema(void **state) {
    (void)state;
    tri_average_options o = {.name = "ema", .decay = 0.75, .every_n_steps = 3, .start_step = 6};
    assert_int_equal(tri_average_start(&o, -1), 6); // whether or not the run has an end
    for (int64_t step = 1; step < 20; step++)
        assert_true(tri_average_counts(&o, 6, step) == (step > 6 && step % 3 == 0));
    assert_true(tri_average_weight(&o, 0) == 1);
    assert_true(tri_average_weight(&o, 1) == 0.25 && tri_average_weight(&o, 99) == 0.25);
}

// The steps above start × total steps, also where that product is rounded down in F64; their
// weights make the plain mean.
static void test_swa(void **state) {
    (void)state;
    tri_average_options o = {.name = "swa", .start = 0.29};
    assert_int_equal(tri_average_start(&o, 100), 29);
    assert_int_equal(tri_average_start(&o, 10), 2);
    assert_int_equal(tri_average_start(&o, 1), 0);
    assert_false(tri_average_counts(&o, 29, 29));
    assert_true(tri_average_counts(&o, 29, 30));
    double mean = 1e300, sum = 0;
    for (int i = 0; i < 10; i++) {
        double value = i * i, weight = tri_average_weight(&o, i);
        mean = weight == 1 ? value : mean + weight * (value - mean);
        sum += value;
        assert_float_equal(mean, sum / (i + 1), 1e-12);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_ema),
        cmocka_unit_test(test_swa),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
