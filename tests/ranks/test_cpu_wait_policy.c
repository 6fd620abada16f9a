// Tests the choice whether OpenMP threads that wait for each other spin or yield their cores: first
// the rule that chooses, with made-up times, then in a process that shares its core with another
// program. In a trial, threads wait in the other way for a moment, to find out which way is faster.
#include "base/cpu_time.h"
#include "device/cpu/wait_policy.h"

#include <omp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000000)

// A machine on which threads are delayed for `percent` of the time, and which runs `spinning` or
// `yielding` parallel loops in a tenth of a second, depending on how threads wait.
typedef struct machine {
    int percent;
    uint64_t spinning, yielding;
} machine;

// Lets the rule choose on machine m for `tenths` tenths of a second, and returns in how many of
// them threads yielded.
static int choose_for(cpu_wait_choice *c, int tenths, machine m) {
    int yielded = 0;
    for (int i = 0; i < tenths; i++) {
        yielded += c->yields;
        cpu_wait_window window = {SECOND / 10, SECOND / 1000 * m.percent,
                                  c->yields ? m.yielding : m.spinning};
        cpu_wait_choose(c, &window);
    }
    return yielded;
}

static void test_free_cores(void **state) {
    cpu_wait_choice c = {0};
    assert_int_equal(choose_for(&c, 6000, (machine){20, 1000, 100}), 0);
}

static void test_shared_cores(void **state) {
    cpu_wait_choice c = {0};
    choose_for(&c, 2, (machine){90, 50, 1000});
    assert_true(c.yields); // a trial begins at once
    assert_int_equal(choose_for(&c, 15, (machine){90, 50, 1000}), 15);
    // Spinning is tried again from time to time, but rarely.
    int yielded = choose_for(&c, 6000, (machine){90, 50, 1000});
    assert_in_range(yielded, 5950, 5999);
    // When the cores are free again, threads soon spin.
    choose_for(&c, 60, (machine){0, 1000, 100});
    assert_false(c.yields);
}

// Threads are delayed for some of the time, but spinning is still faster.
static void test_delayed_and_faster(void **state) {
    cpu_wait_choice c = {0};
    assert_in_range(choose_for(&c, 6000, (machine){40, 1000, 400}), 1, 50);
    // Yielding must be clearly faster; 5 % is not enough.
    cpu_wait_choice other = {0};
    assert_in_range(choose_for(&other, 6000, (machine){40, 1000, 1050}), 1, 50);
}

// Parallel loops take so long that only a few run in a tenth of a second, the time between two
// updates of the choice.
static void test_little_work(void **state) {
    cpu_wait_choice c = {0};
    choose_for(&c, 40, (machine){90, 2, 4});
    assert_true(c.yields);
    // While no parallel loops run, no trial begins.
    cpu_wait_choice idle = {0};
    assert_int_equal(choose_for(&idle, 600, (machine){90, 0, 0}), 0);
}

static void test_chosen_by_the_user(void **state) {
    assert_null(cpu_wait_policy_start(1));
    setenv("OMP_WAIT_POLICY", "active", 1);
    assert_null(cpu_wait_policy_start(2));
    unsetenv("OMP_WAIT_POLICY");
    setenv("GOMP_SPINCOUNT", "1", 1);
    assert_null(cpu_wait_policy_start(2));
    unsetenv("GOMP_SPINCOUNT");
}

// Runs parallel loops until the threads have yielded for a second without a break. No trial takes
// so long here, so yielding was then chosen. Gives up after `seconds`.
static void work(double seconds, cpu_wait_policy *policy) {
    volatile double sums[2] = {0};
    double now = omp_get_wtime(), end = now + seconds, last_spun = now;
    while (now < end && now - last_spun < 1) {
        cpu_wait_policy_count(policy);
#pragma omp parallel for num_threads(2)
        for (int t = 0; t < 2; t++)
            for (int i = 0; i < 20000; i++) sums[t] += i;
        now = omp_get_wtime();
        if (!cpu_wait_policy_yields(policy)) last_spun = now;
    }
}

// Measures how many seconds of CPU time two threads use for a parallel region in which one of them
// sleeps for 20 ms, while the other one waits for it.
static double used_by_waiting(void) {
    enum { ROUNDS = 20 };
    struct timespec from, to;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    for (int i = 0; i < ROUNDS; i++) {
#pragma omp parallel for num_threads(2)
        for (int t = 0; t < 2; t++)
            if (t == i % 2) usleep(20000);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    double used = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    return used / ROUNDS;
}

// Two threads and another program share one core: the threads must begin to yield, and then use
// little CPU time while they wait for each other.
static void test_beside_others(void **state) {
    tri_cpu_time before_work;
    if (!tri_cpu_time_read(&before_work)) {
        print_message("skipped: /proc/self/task/TID/schedstat is not there\n");
        skip();
    }
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    pid_t other = fork();
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(60);
        for (;;) {
        }
    }
    cpu_wait_policy *policy = cpu_wait_policy_start(2);
    assert_non_null(policy);
    work(20, policy);
    bool yields = cpu_wait_policy_yields(policy);
    double used = used_by_waiting();
    cpu_wait_policy_stop(policy);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    sched_setaffinity(0, sizeof before, &before);
    assert_true(yields);
    print_message("waiting for 20 ms took %.2f ms of a core\n", 1e3 * used);
    assert_true(used < 2e-3);
    tri_cpu_time now;
    assert_true(tri_cpu_time_read(&now));
    tri_cpu_time passed = tri_cpu_time_between(&before_work, &now);
    assert_true(passed.delayed_ns > 0 && passed.wall_ns > 0 && passed.used_ns > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_free_cores),         cmocka_unit_test(test_shared_cores),
        cmocka_unit_test(test_delayed_and_faster), cmocka_unit_test(test_little_work),
        cmocka_unit_test(test_chosen_by_the_user), cmocka_unit_test(test_beside_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
