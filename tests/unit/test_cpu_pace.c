// Tests which loops the CPU device divides among its threads: those for which that is faster, as
// trials on a clock of the test's show.
#include "base/os.h"
#include "device/cpu/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static int64_t clock_ns;
static int64_t read_clock(void) { return clock_ns; }

// Starts loops for this long, which take so long divided and alone. Returns the part of the time in
// which they were alone.
static double run(cpu_pace *pace, double for_s, double divided_us, double alone_us) {
    int64_t begin_ns = clock_ns, alone_ns = 0;
    while (clock_ns - begin_ns < 1e9 * for_s) {
        bool is_alone = cpu_pace_is_alone(pace);
        int64_t loop_ns = (int64_t)(1e3 * (is_alone ? alone_us : divided_us));
        clock_ns += loop_ns;
        if (is_alone) alone_ns += loop_ns;
    }
    return (double)alone_ns / (double)(clock_ns - begin_ns);
}

static void test_faster_way_is_used(void **state) {
    (void)state;
    cpu_pace near = {0}, far = {0}, equal = {0};
    run(&near, 0.1, 10, 13);
    assert_true(run(&near, 10, 10, 13) < 0.02);
    run(&far, 0.1, 24, 13);
    assert_true(run(&far, 1, 24, 13) > 0.85);
    assert_true(run(&far, 10, 24, 13) > 0.95);
    assert_true(run(&equal, 10, 10, 9.5) < 0.02); // a gain that noise may be
}

// Cores become far ones and near ones again, which is seen within a second.
static void test_changes_are_followed(void **state) {
    (void)state;
    cpu_pace pace = {0};
    for (int i = 0; i < 3; i++) {
        run(&pace, 20, 10, 13);
        run(&pace, 0.5, 24, 13);
        assert_true(run(&pace, 1, 24, 13) > 0.9);
        run(&pace, 1, 10, 13);
        assert_true(run(&pace, 1, 10, 13) < 0.1);
    }
}

// Long loops are divided without a trial.
static void test_long_loops_are_divided(void **state) {
    (void)state;
    cpu_pace pace = {0};
    assert_true(run(&pace, 10, 2000, 4000) == 0);
    run(&pace, 1, 24, 13);
    run(&pace, 0.1, 2000, 4000);
    assert_true(run(&pace, 10, 2000, 4000) == 0);
}

// With many threads a trial of one costs little.
static void test_trials_cost_little(void **state) {
    (void)state;
    cpu_pace pace = {0};
    run(&pace, 1, 5, 80);
    assert_true(run(&pace, 60, 5, 80) < 0.005);
}

static int use_clock(void **state) {
    (void)state;
    tri_os.monotonic_ns = read_clock;
    clock_ns = 1;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faster_way_is_used),
        cmocka_unit_test(test_changes_are_followed),
        cmocka_unit_test(test_long_loops_are_divided),
        cmocka_unit_test(test_trials_cost_little),
    };
    return cmocka_run_group_tests(tests, use_clock, NULL);
}
