// Checks the learning rates of all schedules, and the error if a schedule depends on the run's
// length but the run has no end.
#include "train/rate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_follows_the_schedule(void **state) {
    (void)state;
    tri_schedule_options step = {
        .name = "step", .every = TRI_EVERY_EPOCH, .gamma = 0.5, .step_size = 1};
    tri_rate rate = {.schedule = &step, .lr = 1, .steps_per_epoch = 10, .total_updates = 30};
    assert_float_equal(tri_rate_at(&rate, 9, 0), 1, 1e-12);
    assert_float_equal(tri_rate_at(&rate, 10, 1), 0.5, 1e-12);
    assert_float_equal(tri_rate_at(&rate, 29, 2), 0.25, 1e-12);
    tri_schedule_options linear = {
        .name = "linear", .every = TRI_EVERY_STEP, .start_factor = 1, .end_factor = 0};
    linear.warmup_steps = (tri_amount){.value = 0.2, .is_fraction = true};
    rate = (tri_rate){.schedule = &linear, .lr = 1, .steps_per_epoch = 10, .total_updates = 10};
    assert_float_equal(tri_rate_at(&rate, 0, 0), 0.5, 1e-12);
    assert_float_equal(tri_rate_at(&rate, 2, 0), 1, 1e-12);
    assert_float_equal(tri_rate_at(&rate, 6, 0), 0.5, 1e-12);
}

// Steps that changed nothing, and a warm-up, do not move the epochs at which a schedule of epochs
// changes the rate. A schedule of steps follows the updates.
static void test_follows_epochs_whatever_was_skipped(void **state) {
    (void)state;
    tri_schedule_options step = {
        .name = "step", .every = TRI_EVERY_EPOCH, .gamma = 0.5, .step_size = 5};
    tri_rate rate = {.schedule = &step, .lr = 1, .steps_per_epoch = 4, .total_updates = 80};
    for (int64_t warmup = 0; warmup <= 6; warmup += 3)
        for (int64_t i = 16; i < 80; i++) { // the first 10 steps were skipped
            step.warmup_steps.value = (double)warmup;
            step.every = TRI_EVERY_EPOCH;
            assert_float_equal(tri_rate_at(&rate, i - 10, i / 4), pow(0.5, (double)(i / 4 / 5)),
                               1e-12);
            step.every = TRI_EVERY_STEP;
            assert_float_equal(tri_rate_at(&rate, i - 10, i / 4),
                               pow(0.5, (double)((i - 10 - warmup) / 5)), 1e-12);
        }
    tri_schedule_options linear = {
        .name = "linear", .every = TRI_EVERY_EPOCH, .start_factor = 1, .end_factor = 0};
    linear.warmup_steps.value = 3;
    rate.schedule = &linear;
    assert_float_equal(tri_rate_at(&rate, 33, 10), 0.5, 1e-12);
}

// The learning rate rises linearly over the warm-up to the first rate (`first`) of the schedule
// that follows, even if the run ends soon after the warm-up or before the warm-up's end.
static void test_warms_up_to_where_the_schedule_begins(void **state) {
    (void)state;
    static const struct {
        tri_schedule_options o;
        double first;
    } rows[] = {
        {{.name = "constant"}, 0.5},
        {{.name = "step", .gamma = 0.1, .step_size = 1}, 0.5},
        {{.name = "cosine", .eta_min = 0.05}, 0.5},
        {{.name = "cosine", .eta_min = 0.05, .T_max = 7}, 0.5},
        {{.name = "linear", .start_factor = 1, .end_factor = 0.1}, 0.5},
        {{.name = "polynomial", .power = 2, .end_lr = 0.1}, 0.5},
        {{.name = "cosine_restarts", .T_0 = 3, .T_mult = 2}, 0.5},
        {{.name = "inverse_sqrt"}, 0.5},
        {{.name = "plateau", .factor = 0.1}, 0.5},
        {{.name = "linear", .start_factor = 0.2, .end_factor = 1}, 0.1},
        {{.name = "onecycle", .pct_start = 0.3, .div_factor = 25, .final_div_factor = 1e4}, 0.02},
        {{.name = "onecycle",
          .pct_start = 0.3,
          .div_factor = 25,
          .final_div_factor = 1e4,
          .max_lr = 0.1},
         0.004},
    };
    static const int64_t totals[] = {0, 1, 30, 49, 50, 51, 52, 53, 60, 1000};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int unit = TRI_EVERY_EPOCH; unit <= TRI_EVERY_STEP; unit++)
            for (size_t k = 0; k < sizeof totals / sizeof *totals; k++) {
                tri_schedule_options o = rows[i].o;
                o.every = (tri_schedule_unit)unit;
                o.warmup_steps.value = 50;
                tri_rate rate = {
                    .schedule = &o, .lr = 0.5, .steps_per_epoch = 10, .total_updates = totals[k]};
                bool endless = totals[k] > 0 && totals[k] <= 50;
                assert_int_equal(tri_rate_endless_warmup(&rate), endless ? 50 : 0);
                for (int s = 1; s <= 50; s++) {
                    double wanted = rows[i].first * s / 50,
                           got = tri_rate_at(&rate, s - 1, (s - 1) / 10);
                    if (fabs(got - wanted) > 1e-12)
                        fail_msg("%s (%zu), %d updates, step %d: %.17g, not %.17g", o.name, i,
                                 (int)totals[k], s, got, wanted);
                }
            }
}

static void test_upside_down(void **state) {
    (void)state;
    static const struct {
        tri_schedule_options o;
        const char *key;
    } rows[] = {{{.name = "constant"}, NULL},
                {{.name = "cosine", .eta_min = 0.5}, NULL},
                {{.name = "cosine", .eta_min = 0.6}, "eta_min"},
                {{.name = "triangle", .min_lr = 0.6, .max_lr = 0.7}, NULL},
                {{.name = "triangle", .min_lr = 0.4, .max_lr = 0.3}, "min_lr"},
                {{.name = "warmup", .warmup_min_lr = 0.6}, "warmup_min_lr"},
                {{.name = "warmup-decay", .warmup_min_lr = 0.6}, "warmup_min_lr"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double least, most;
        tri_rate rate = {.schedule = &rows[i].o, .lr = 0.5, .steps_per_epoch = 1};
        const char *key = tri_rate_inverted(&rate, &least, &most);
        assert_int_equal(key != NULL, rows[i].key != NULL);
        if (key) assert_string_equal(key, rows[i].key);
    }
}

static void test_refuses_an_end_that_is_not_there(void **state) {
    (void)state;
    static const char *const reaching[] = {"linear",   "polynomial",   "cosine",
                                           "onecycle", "warmup-decay", "warmup-cosine"};
    for (size_t i = 0; i < sizeof reaching / sizeof *reaching; i++) {
        tri_schedule_options o = {.name = reaching[i], .every = TRI_EVERY_STEP};
        tri_rate open = {.schedule = &o, .lr = 1, .steps_per_epoch = 10};
        assert_int_equal(tri_rate_check(&open), TRI_BAD_INPUT);
        assert_non_null(strstr(tri_error_message(), "trainer.max_epochs"));
        o.total_iters = o.T_max = o.total_steps = 5;
        assert_int_equal(tri_rate_check(&open), TRI_OK);
        o.warmup_steps = (tri_amount){.value = 0.1, .is_fraction = true};
        assert_int_equal(tri_rate_check(&open), TRI_BAD_INPUT);
        open.total_updates = 100;
        assert_int_equal(tri_rate_check(&open), TRI_OK);
    }
}

typedef struct course {
    tri_schedule_options o;
    int64_t warmup_steps;
    struct {
        int64_t update;
        double lr;
    } at[13];
} course;

#define D .every = TRI_EVERY_EPOCH, .second_stairs = -1
// Learning rates that DeepSpeed's own classes give for an optimizer of lr 0.5, if the scheduler
// steps after each update. A row has the schedule's options, the steps of its warm-up, and then
// pairs of the number of an update and its learning rate.
static const course deepspeeds[] = {
    {{.name = "warmup", D, .warmup_min_lr = 0.001, .max_lr = 0.01},
     100,
     {{0, 0.001},
      {1, 0.001},
      {2, 0.0023546349804879152},
      {3, 0.0031470456462384809},
      {11, 0.0056862670832120129},
      {99, 0.0099803583756889747},
      {100, 0.01},
      {101, 0.01},
      {500, 0.01}}},
    {{.name = "warmup", D, .warmup_type = TRI_WARMUP_LINEAR},
     100,
     {{0, 0}, {1, 0}, {2, 0.005}, {51, 0.25}, {100, 0.495}, {101, 0.5}, {500, 0.5}}},
    {{.name = "warmup", D}, 1, {{0, 0}, {1, 0}, {2, 0.5}, {3, 0.5}}},
    {{.name = "warmup", D, .max_lr = 0.001},
     1000,
     {{0, 0}, {2, 0.00010034333188799373}, {10, 0.00033333333333333338}, {1000, 0.001}}},
    {{.name = "warmup-decay",
      D,
      .warmup_type = TRI_WARMUP_LINEAR,
      .warmup_min_lr = 0.001,
      .max_lr = 0.01,
      .total_steps = 100},
     10,
     {{0, 0.001},
      {1, 0.001},
      {2, 0.0019},
      {10, 0.0091},
      {11, 0.01},
      {12, 0.0099},
      {50, 0.0061},
      {100, 0.0011},
      {101, 0.001},
      {150, 0.001}}},
    {{.name = "warmup-decay", D, .max_lr = 0.001},
     10,
     {{0, 0},
      {2, 0.00030102999566398113},
      {10, 0.001},
      {12, 0.00098888888888888898},
      {50, 0.00056666666666666671},
      {100, 1.1111111111111112e-05},
      {150, 0}}},
    {{.name = "warmup-decay", D, .max_lr = 0.001, .total_steps = 5},
     10,
     {{9, 0.00095424250943932482}, {10, 0.001}, {11, 0}, {12, 0}}},
    {{.name = "warmup-cosine", D, .warmup_min_ratio = 0.1, .cos_min_ratio = 0.01},
     10,
     {{0, 0},
      {1, 0.05},
      {2, 0.18546349804879153},
      {10, 0.5},
      {11, 0.49984922968722623},
      {12, 0.49939710243930646},
      {50, 0.29547792397256528},
      {100, 0.005},
      {150, 0.005}}},
    {{.name = "warmup-cosine", D, .warmup_type = TRI_WARMUP_LINEAR, .cos_min_ratio = 0.0001},
     10,
     {{0, 0},
      {1, 0},
      {2, 0.05},
      {10, 0.45},
      {11, 0.49984772198409849},
      {12, 0.49939107346369954},
      {50, 0.29343270321229098},
      {100, 5e-5}}},
    {{.name = "triangle",
      D,
      .min_lr = 0.001,
      .max_lr = 0.01,
      .first_steps = 10,
      .second_steps = 20,
      .decay_steps = 5,
      .decay_rate = 0.5},
     0,
     {{0, 0.001},
      {1, 0.0019},
      {5, 0.0055},
      {10, 0.01},
      {11, 0.00955},
      {20, 0.0055},
      {30, 0.001},
      {31, 0.00090909090909090909},
      {35, 0.00066666666666666664},
      {130, 9.0909090909090917e-05}}},
    {{.name = "triangle", D, .min_lr = 0.001, .max_lr = 0.01, .first_steps = 2000},
     0,
     {{0, 0.001}, {1000, 0.0055}, {2000, 0.01}, {3000, 0.0055}, {4000, 0.001}, {9000, 0.001}}},
    {{.name = "triangle", D, .min_lr = 0.001, .max_lr = 0.01, .first_steps = 10, .first_stairs = 4},
     0,
     {{2, 0.001},
      {3, 0.00325},
      {5, 0.0055},
      {9, 0.00775},
      {10, 0.01},
      {11, 0.00775},
      {15, 0.0055},
      {19, 0.001},
      {21, 0.001}}},
    {{.name = "triangle",
      .min_lr = 0.001,
      .max_lr = 0.01,
      .first_steps = 10,
      .first_stairs = 4,
      .second_stairs = 0},
     0,
     {{3, 0.00325}, {9, 0.00775}, {10, 0.01}, {11, 0.0091}, {12, 0.0082}, {19, 0.0019}}},
};

static void test_follows_deepspeeds_schedulers(void **state) {
    for (size_t i = 0; i < sizeof deepspeeds / sizeof *deepspeeds; i++) {
        tri_schedule_options o = deepspeeds[i].o;
        o.warmup_steps.value = (double)deepspeeds[i].warmup_steps;
        tri_rate rate = {.schedule = &o, .lr = 0.5, .steps_per_epoch = 7, .total_updates = 100};
        for (int k = 0; k == 0 || deepspeeds[i].at[k].update > 0; k++) {
            double lr = tri_rate_at(&rate, deepspeeds[i].at[k].update, 0);
            if (fabs(lr - deepspeeds[i].at[k].lr) > 1e-12)
                fail_msg("%s (%zu), update %d: %.17g", o.name, i, (int)deepspeeds[i].at[k].update,
                         lr);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follows_the_schedule),
        cmocka_unit_test(test_follows_epochs_whatever_was_skipped),
        cmocka_unit_test(test_warms_up_to_where_the_schedule_begins),
        cmocka_unit_test(test_follows_deepspeeds_schedulers),
        cmocka_unit_test(test_upside_down),
        cmocka_unit_test(test_refuses_an_end_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
