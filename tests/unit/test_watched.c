// Checks how monitored metrics are followed: the schedule plateau against PyTorch's.
#include "train/watched.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { EVALUATIONS = 16 };

// What torch.optim.lr_scheduler.ReduceLROnPlateau of PyTorch 1.13 makes of a rate of 0.5: the
// options, the values of the metric, and the rate after each.
static const struct {
    tri_schedule_options o;
    double values[EVALUATIONS], rates[EVALUATIONS];
} rows[] = {
    {{.name = "plateau",
      .mode = TRI_MONITOR_MIN,
      .threshold_mode = TRI_THRESHOLD_REL,
      .factor = 0.5,
      .patience = 1,
      .threshold = 0.0001,
      .cooldown = 0,
      .min_lr = 0,
      .eps = 1e-08},
     {1.94, 1.94, 1.94, 1.882, 1.825, NAN, 1.806, 1.806, 1.806, 1.842, 1.842, 1.842, 1.879, 1.879,
      1.823, 1.768},
     {0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.125, 0.125, 0.0625, 0.0625, 0.03125, 0.03125,
      0.015625, 0.015625}},
    {{.name = "plateau",
      .mode = TRI_MONITOR_MAX,
      .threshold_mode = TRI_THRESHOLD_REL,
      .factor = 0.3,
      .patience = 0,
      .threshold = 0.0001,
      .cooldown = 2,
      .min_lr = 0,
      .eps = 1e-08},
     {0.1, 0.1, 0.1, 0.103, 0.103, NAN, 0.1061, 0.1093, 0.1126, 0.1126, 0.1126, 0.1126, 0.1159,
      0.1159, 0.1159, 0.1159},
     {0.5, 0.15, 0.15, 0.15, 0.045, 0.045, 0.045, 0.045, 0.045, 0.0135, 0.0135, 0.0135, 0.0135,
      0.00405, 0.00405, 0.00405}},
    {{.name = "plateau",
      .mode = TRI_MONITOR_MIN,
      .threshold_mode = TRI_THRESHOLD_ABS,
      .factor = 0.1,
      .patience = 1,
      .threshold = 0.05,
      .cooldown = 0,
      .min_lr = 0.001,
      .eps = 1e-08},
     {2, 1.94, 1.94, 1.94, 1.979, NAN, 1.919, 1.862, 1.862, 1.806, 1.806, 1.752, 1.699, 1.699,
      1.648, 1.681},
     {0.5, 0.5, 0.5, 0.05, 0.05, 0.005, 0.005, 0.005, 0.005, 0.005, 0.005, 0.005, 0.005, 0.005,
      0.005, 0.005}},
    {{.name = "plateau",
      .mode = TRI_MONITOR_MAX,
      .threshold_mode = TRI_THRESHOLD_REL,
      .factor = 0.5,
      .patience = 2,
      .threshold = 0.02,
      .cooldown = 0,
      .min_lr = 0,
      .eps = 1e-08},
     {0.1, 0.1, 0.1, 0.103, 0.1061, NAN, 0.1071, 0.1071, 0.1103, 0.1136, 0.1136, 0.1136, 0.117,
      0.117, 0.117, 0.117},
     {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.125}},
    {{.name = "plateau",
      .mode = TRI_MONITOR_MAX,
      .threshold_mode = TRI_THRESHOLD_ABS,
      .factor = 0.1,
      .patience = 0,
      .threshold = 0.001,
      .cooldown = 0,
      .min_lr = 0,
      .eps = 0.001},
     {0.1, 0.1, 0.103, 0.1061, 0.1061, NAN, 0.104, 0.1071, 0.1071, 0.1103, 0.1103, 0.1103, 0.1103,
      0.1136, 0.117, 0.117},
     {0.5, 0.05, 0.05, 0.05, 0.005, 0.0005, 0.0005, 0.0005, 0.0005, 0.0005, 0.0005, 0.0005, 0.0005,
      0.0005, 0.0005, 0.0005}},
    {{.name = "plateau",
      .mode = TRI_MONITOR_MIN,
      .threshold_mode = TRI_THRESHOLD_REL,
      .factor = 0.2,
      .patience = 0,
      .threshold = 0.5,
      .cooldown = 1,
      .min_lr = 0.01,
      .eps = 1e-08},
     {1.94, 1.94, 1.882, 1.825, 1.771, NAN, 1.717, 1.666, 1.699, 1.699, 1.648, 1.599, 1.631, 1.582,
      1.582, 1.534},
     {0.5, 0.1, 0.1, 0.02, 0.02, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01}},
};

static void test_lowers_the_rate_as_pytorch_does(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_plateau plateau = {.factor = 0};
        tri_rate rate = {.schedule = &rows[i].o, .lr = 0.5, .steps_per_epoch = 1};
        for (int k = 0; k < EVALUATIONS; k++) {
            const double *value = &rows[i].values[k];
            double before = tri_rate_lowered(&rate);
            bool lowers = tri_plateau_follow(&plateau, &rate, isfinite(*value) ? value : NULL, "");
            assert_int_equal(tri_rate_lowered(&rate) < before, lowers);
            assert_true(rate.factor == plateau.factor);
            double lr = tri_rate_at(&rate, k, k);
            if (fabs(lr - rows[i].rates[k]) > 1e-9)
                fail_msg("row %zu, evaluation %d: %.9g, not %.9g", i, k, lr, rows[i].rates[k]);
        }
    }
}

// A warm-up rises to the lowered rate.
static void test_lowers_in_a_warmup(void **state) {
    (void)state;
    tri_schedule_options o = {.name = "plateau", .factor = 0.5, .warmup_steps.value = 4};
    tri_rate rate = {.schedule = &o, .lr = 0.8, .steps_per_epoch = 1, .factor = 0.5};
    assert_float_equal(tri_rate_at(&rate, 1, 1), 0.2, 1e-12);
    assert_float_equal(tri_rate_at(&rate, 4, 4), 0.4, 1e-12);
}

// The best value and how long ago it was; a value that is not finite counts as none better.
static void test_keeps_the_best(void **state) {
    (void)state;
    static const double values[] = {2, 1.5, 1.45, 3, 1.3};
    tri_watched w = {.waited = 0};
    for (int i = 0; i < 5; i++) {
        tri_watch(&w, TRI_MONITOR_MIN, 0.1, i == 3 ? NULL : &values[i], "it");
        assert_int_equal(w.waited, ((int[]){0, 0, 1, 2, 0})[i]);
        assert_int_equal(w.has_last, i != 3);
    }
    assert_float_equal(w.best, 1.3, 0);
    assert_true(tri_gain(TRI_MONITOR_MAX, 2, 1) > 0 && tri_gain(TRI_MONITOR_MIN, 2, 1) < 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lowers_the_rate_as_pytorch_does),
        cmocka_unit_test(test_lowers_in_a_warmup),
        cmocka_unit_test(test_keeps_the_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
