// Learning rates of schedules, and schedules that need an end which the run has not.
#include "train/rate.h"

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
    assert_float_equal(tri_rate_at(&rate, 9), 1, 1e-12);
    assert_float_equal(tri_rate_at(&rate, 10), 0.5, 1e-12);
    assert_float_equal(tri_rate_at(&rate, 29), 0.25, 1e-12);
    tri_schedule_options linear = {
        .name = "linear", .every = TRI_EVERY_STEP, .start_factor = 1, .end_factor = 0};
    linear.warmup_steps = (tri_amount){.value = 0.2, .is_fraction = true};
    rate = (tri_rate){.schedule = &linear, .lr = 1, .steps_per_epoch = 10, .total_updates = 10};
    assert_float_equal(tri_rate_at(&rate, 0), 0.5, 1e-12);
    assert_float_equal(tri_rate_at(&rate, 2), 1, 1e-12);
    assert_float_equal(tri_rate_at(&rate, 6), 0.5, 1e-12);
}

static void test_refuses_an_end_that_is_not_there(void **state) {
    (void)state;
    static const char *const reaching[] = {"linear", "cosine", "onecycle"};
    for (size_t i = 0; i < 3; i++) {
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follows_the_schedule),
        cmocka_unit_test(test_refuses_an_end_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
