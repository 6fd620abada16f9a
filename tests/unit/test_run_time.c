// Tests how long a run takes: against what can be counted by hand.
#include "plan/run_time.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void check(double got, double wanted) {
    if (!(fabs(got - wanted) <= 1e-9 * (1 + fabs(wanted)))) fail_msg("%g, not %g", got, wanted);
}

static void check_sum(tri_run_time t) {
    check(t.total_s, t.start_s + t.train_s + t.evaluate_s + t.data_s);
}

// 3 epochs of 25 samples, 10 a step, and evaluations of 4 after each second one.
static tri_run_model small_run(void) {
    return (tri_run_model){.epochs = 3,
                           .epochs_between = 2,
                           .train = {.samples = 25, .batch = 10, .batch_s = 2},
                           .evaluate = {.samples = 4, .batch = 8, .batch_s = 1},
                           .start_s = 7,
                           .workers = 2};
}

static void counts_steps(void **state) {
    tri_run_model model = small_run();
    tri_run_time t = tri_run_time_of(&model);
    check(t.start_s, 7);
    check(t.train_s, 3 * 5); // the last step of an epoch has half the samples
    check(t.evaluate_s, 0.5);
    check(t.data_s, 0);
    check_sum(t);
    model.epochs_between = 0;
    check(tri_run_time_of(&model).evaluate_s, 0);
    model.epochs = 64; // are not all simulated
    check(tri_run_time_of(&model).train_s, 64 * 5);
}

// With fast steps a loader delivers what its workers can, and the first batch is late by the time
// of one worker.
static void waits_for_data(void **state) {
    tri_run_model model = {.epochs = 1,
                           .train = {.samples = 60, .batch = 5, .batch_s = 0},
                           .workers = 3,
                           .sample_s = 0.2};
    tri_run_time t = tri_run_time_of(&model); // 12 batches of 1 s, 3 at a time
    check(t.data_s, 4);
    model.train.batch_s = 0.5; // of 3 batches in a second 2 are used
    t = tri_run_time_of(&model);
    check(t.data_s, 1);
    check(t.total_s, 1 + 12 * 0.5);
    model.train.batch_s = 0.25; // after 4 s, three are left to use
    check(tri_run_time_of(&model).total_s, 4 + 3 * 0.25);
    model.workers = 0; // the rank loads by itself
    check(tri_run_time_of(&model).total_s, 12 * (1 + 0.25));
    check_sum(tri_run_time_of(&model));
}

static void begins_anew(void **state) {
    tri_run_model model = {.epochs = 5,
                           .epochs_between = 1,
                           .train = {.samples = 60, .batch = 5, .batch_s = 0.5},
                           .evaluate = {.samples = 10, .batch = 5, .batch_s = 0.5},
                           .workers = 3,
                           .sample_s = 0.2};
    check(tri_run_time_of(&model).data_s, 1);
    model.is_cold = true;
    check(tri_run_time_of(&model).data_s, 10); // of each epoch and each evaluation
}

// An epoch of more batches than are simulated one by one.
static void takes_long_epochs(void **state) {
    tri_run_model model = {.epochs = 2,
                           .train = {.samples = 3e6, .batch = 1, .batch_s = 0.1},
                           .workers = 4,
                           .sample_s = 0.8};
    tri_run_time t = tri_run_time_of(&model);
    check(t.train_s, 6e5);
    assert_true(fabs(t.data_s / 6e5 - 1) < 1e-4);
    check_sum(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_steps), cmocka_unit_test(waits_for_data),
        cmocka_unit_test(begins_anew), cmocka_unit_test(takes_long_epochs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
