// Tests how waiting threads spin and yield: on a core of their own, on one that they share with
// another rank, and on one that an unrelated program uses. The clock is a fake one, and the
// system's sched_yield is replaced by a function that only advances this clock.
#include "comm/progress/spin.h"

#include "base/limits.h"
#include "base/os.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

// How long it takes to look whether the wait is over (LOOK_NS), and how long a yield takes on a
// core that no other thread uses, that another rank uses, and that an unrelated program uses.
enum { LOOK_NS = 250, ALONE_NS = 300, RANK_NS = 8000, PROGRAM_NS = 3000000 };

static int64_t now_ns, yield_ns;
static int yields;

int __wrap_sched_yield(void);

int __wrap_sched_yield(void) {
    now_ns += yield_ns;
    yields++;
    return 0;
}

static int64_t clock_ns(void) { return now_ns; }

static int setup(void **state) {
    tri_os.monotonic_ns = clock_ns;
    now_ns = 1;
    return 0;
}

static int teardown(void **state) {
    tri_os = tri_os_system;
    return 0;
}

// Lets the thread wait until it has yielded `count` times; each yield takes `ns`. Returns how often
// the thread looked whether its wait is over before it yielded for the first time.
static int looks_before_yield(progress_family *family, int count, int64_t ns) {
    progress_spin spin = {0};
    int looks = 0;
    yields = 0;
    yield_ns = ns;
    while (yields < count) {
        looks += yields == 0;
        now_ns += LOOK_NS;
        (void)progress_spin_on(family, &spin);
    }
    return looks - 1; // the last look ended with the first yield, so it does not count
}

static void test_core_of_its_own(void **state) {
    progress_family family = {.can_spin = true, .yields_early = true};
    int first = looks_before_yield(&family, 1, ALONE_NS);
    assert_true(first >= 50); // a message over TCP takes less than that many looks
    for (int i = 0; i < 10; i++) assert_int_equal(looks_before_yield(&family, 3, ALONE_NS), first);
}

static void test_shared_with_a_rank(void **state) {
    progress_family family = {.can_spin = true, .yields_early = true};
    int first = looks_before_yield(&family, 1, RANK_NS);
    for (int i = 0; i < 10; i++) assert_true(looks_before_yield(&family, 1, RANK_NS) <= 2);
    // If one of the two ranks is now put on another core, this thread still yields early. This does
    // no harm, because such a yield takes little time.
    for (int i = 0; i < 10; i++) assert_true(looks_before_yield(&family, 1, ALONE_NS) <= 2);
    // An unrelated program now uses the core.
    assert_true(looks_before_yield(&family, 1, PROGRAM_NS) <= 2);
    for (int i = 0; i < 10; i++)
        assert_int_equal(looks_before_yield(&family, 1, PROGRAM_NS), first);
    assert_int_equal(looks_before_yield(&family, 1, RANK_NS), first);
    assert_true(looks_before_yield(&family, 1, RANK_NS) <= 2);
}

// Without yields_early, which is false with MPI (its calls may yield the core themselves), a thread
// spins for the same time, whether another rank shares its core or not.
static void test_transport_yields(void **state) {
    progress_family family = {.can_spin = true};
    int first = looks_before_yield(&family, 1, ALONE_NS);
    for (int i = 0; i < 10; i++) assert_int_equal(looks_before_yield(&family, 1, RANK_NS), first);
}

static int64_t time_until_sleep(progress_family *family, int64_t ns) {
    progress_spin spin = {0};
    int64_t begin = now_ns;
    yield_ns = ns;
    while (progress_spin_on(family, &spin)) now_ns += LOOK_NS;
    return now_ns - begin;
}

// However long the yields take, a thread sleeps at last, because its core may be needed.
static void test_sleeps(void **state) {
    progress_family family = {.can_spin = true, .yields_early = true},
                    crowded = {.can_spin = false};
    int64_t most = TRI_COMM_YIELD_US * 1000 + 200 * LOOK_NS;
    const int64_t durations[] = {0, ALONE_NS, RANK_NS, PROGRAM_NS};
    for (size_t i = 0; i < sizeof durations / sizeof *durations; i++) {
        int64_t took = time_until_sleep(&family, durations[i]);
        assert_true(took >= TRI_COMM_YIELD_US * 1000 && took <= most + durations[i]);
    }
    assert_int_equal(time_until_sleep(&crowded, RANK_NS), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_core_of_its_own, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shared_with_a_rank, setup, teardown),
        cmocka_unit_test_setup_teardown(test_transport_yields, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sleeps, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
