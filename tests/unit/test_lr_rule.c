// Compares the rules of `trireme lr-find` with those of Lightning 2.4.0 (_LRFinder.suggestion) and
// fastai 2.8.12 (valley): the indices below are what their own code gave for the same curves.
#include "train/lr_rule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 100 };

static tri_lr_point points[MOST];

// A loss that stays, falls in a valley, and rises in the end, with ripples.
static double rippled(double t) {
    return 2 - 1.5 / (1 + exp(-20 * (t - 0.6))) + 0.05 * sin(70 * t) + exp(30 * (t - 0.9));
}
static double rising(double t) { return 1 + t * t; }
static double falling(double t) { return 2.3 - 2 * t * t; }

static tri_lr_curve unsmoothed(double (*loss)(double), int count, int steps) {
    for (int i = 0; i < count; i++)
        points[i] =
            (tri_lr_point){tri_lr_of_step(1e-8, 1, steps, i), loss((double)i / (steps - 1))};
    return (tri_lr_curve){.points = points, .count = count};
}

static void test_published_rules(void **state) {
    const struct {
        double (*loss)(double);
        int count, steps, steepest, valley;
    } rows[] = {{rippled, 100, 100, 58, 58}, {rippled, 83, 100, 58, 57}, {rippled, 37, 40, 23, 21},
                {rippled, 20, 20, 12, 9},    {rising, 60, 60, 10, 6},    {falling, 60, 60, 58, 29}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_lr_curve c = unsmoothed(rows[i].loss, rows[i].count, rows[i].steps);
        assert_int_equal(tri_lr_steepest(&c, rows[i].steps), rows[i].steepest);
        assert_int_equal(tri_lr_valley(&c, rows[i].steps), rows[i].valley);
    }
}

static void test_too_few_points(void **state) {
    tri_lr_curve c = unsmoothed(falling, 12, 100);
    assert_int_equal(tri_lr_steepest(&c, 100), -1);
    assert_int_equal(tri_lr_valley(&c, 100), -1);
    c.count = 13;
    assert_true(tri_lr_steepest(&c, 100) >= 10);
}

static void test_rates(void **state) {
    assert_true(tri_lr_of_step(1e-8, 1, 100, 0) == 1e-8 && tri_lr_of_step(1e-8, 1, 100, 99) == 1);
    assert_true(tri_lr_of_step(1e-8, 1, 100, 120) == 1);
    double factor = tri_lr_of_step(1e-8, 1, 100, 41) / tri_lr_of_step(1e-8, 1, 100, 40);
    assert_true(fabs(factor - pow(1e8, 1.0 / 99)) < 1e-12);
}

static void test_smoothing(void **state) {
    tri_lr_curve c = {.points = points};
    const double losses[] = {3, 1, 2};
    for (int i = 0; i < 3; i++) assert_false(tri_lr_curve_add(&c, 0.1, losses[i]));
    // By hand: means with the weights 1; 0.98, 1; 0.98^2, 0.98, 1.
    assert_true(fabs(points[0].loss - 3) < 1e-12);
    assert_true(fabs(points[1].loss - (0.98 * 3 + 1) / 1.98) < 1e-12);
    assert_true(fabs(points[2].loss - (0.9604 * 3 + 0.98 + 2) / 2.9404) < 1e-12);
}

static void test_end(void **state) {
    tri_lr_curve c = {.points = points};
    assert_false(tri_lr_curve_add(&c, 0.1, 1));
    assert_true(tri_lr_curve_add(&c, 0.1, NAN) && c.count == 1);
    assert_true(tri_lr_curve_add(&c, 0.1, INFINITY) && c.count == 1);
    assert_false(tri_lr_curve_add(&c, 0.1, 6.9)); // (0.98 + 6.9) / 1.98 is 3.98
    c = (tri_lr_curve){.points = points};
    assert_false(tri_lr_curve_add(&c, 0.1, 1));
    assert_true(tri_lr_curve_add(&c, 0.1, 7) && c.count == 2); // 4.03
    c = (tri_lr_curve){.points = points};
    for (int i = 0; i < 5; i++) assert_false(tri_lr_curve_add(&c, 0.1, -1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_rules), cmocka_unit_test(test_too_few_points),
        cmocka_unit_test(test_rates), cmocka_unit_test(test_smoothing), cmocka_unit_test(test_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
