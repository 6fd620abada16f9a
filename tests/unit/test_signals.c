// Tests what a run remembers of the signals that ask it to end (train/signals.h).
#include "train/signals.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const int announcing[] = {SIGUSR1, SIGUSR2, SIGXCPU}, others[] = {SIGTERM, SIGHUP};
enum { ANNOUNCING = sizeof announcing / sizeof *announcing };
enum { OTHERS = sizeof others / sizeof *others };

static void begin(void) {
    tri_signals_watch_start("/dev/null/none", NULL, false, false);
    tri_signals_watch();
}

// The end of the job's time stays announced when the signal of that end follows.
static void test_announced(void **state) {
    for (int a = 0; a < ANNOUNCING; a++)
        for (int o = 0; o < OTHERS; o++) {
            begin();
            raise(others[o]);
            assert_int_equal(tri_signals_seen(), others[o]);
            assert_false(tri_signals_job_ends());
            raise(announcing[a]);
            assert_true(tri_signals_job_ends());
            raise(others[o]);
            assert_int_equal(tri_signals_seen(), others[o]);
            assert_true(tri_signals_job_ends());
            tri_signals_unwatch();
        }
}

// A run does not know of the signals of an earlier one.
static void test_again(void **state) {
    begin();
    raise(SIGUSR1);
    tri_signals_unwatch();
    begin();
    assert_int_equal(tri_signals_seen(), 0);
    assert_false(tri_signals_job_ends());
    tri_signals_unwatch();
}

static int ended_with;

static void end(int code) { ended_with = code; }

// A signal before the first step of a run without a checkpoint ends it with the code for which it
// is started again.
static void test_at_start(void **state) {
    static const int numbers[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        ended_with = 0;
        tri_signals_watch_start("/dev/null/none", end, false, false);
        raise(numbers[i]);
        assert_int_equal(ended_with, 75);
        tri_signals_unwatch();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_announced),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_at_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
