// Threads spin while each has a core and yield where cores are shared: the choice, and that it is
// made beside others that take the cores.
#include "base/cpu_share.h"
#include "device/cpu/crowd.h"

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

static void choose_for(cpu_crowd_choice *c, int tenths, int percent) {
    for (int i = 0; i < tenths; i++) cpu_crowd_choose(c, SECOND / 10, SECOND / 1000 * percent);
}

static void test_choice(void **state) {
    cpu_crowd_choice c = {0};
    choose_for(&c, 100, 0);
    choose_for(&c, 100, 20); // a loader beside it is no crowd
    assert_false(c.yields);
    choose_for(&c, 1, 30);
    assert_true(c.yields);
    choose_for(&c, 9, 0); // not yet sure
    assert_true(c.yields);
    choose_for(&c, 1, 0);
    assert_false(c.yields);
    // Too early: the next trial comes later, and each failed one puts it off further.
    choose_for(&c, 1, 90);
    choose_for(&c, 19, 0);
    assert_true(c.yields);
    choose_for(&c, 1, 0);
    assert_false(c.yields);
    for (int i = 0; i < 20; i++) {
        choose_for(&c, 1, 90);
        choose_for(&c, 601, 0);
        assert_false(c.yields);
    }
    // A long quiet time makes it ready to try again soon.
    choose_for(&c, 700, 0);
    choose_for(&c, 1, 90);
    choose_for(&c, 10, 0);
    assert_false(c.yields);
}

static void test_chosen_by_the_user(void **state) {
    assert_null(cpu_crowd_start(1));
    setenv("OMP_WAIT_POLICY", "active", 1);
    assert_null(cpu_crowd_start(2));
    unsetenv("OMP_WAIT_POLICY");
    setenv("GOMP_SPINCOUNT", "1", 1);
    assert_null(cpu_crowd_start(2));
    unsetenv("GOMP_SPINCOUNT");
}

static void work(double seconds, const cpu_crowd *crowd) {
    volatile double sums[2] = {0};
    double end = omp_get_wtime() + seconds;
    while (omp_get_wtime() < end && !cpu_crowd_yields(crowd)) {
#pragma omp parallel for num_threads(2)
        for (int t = 0; t < 2; t++)
            for (int i = 0; i < 20000; i++) sums[t] += i;
    }
}

// Seconds of cores that two threads use for a region in which one sleeps for 20 ms.
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

// Two threads and another program, all on one core.
static void test_beside_others(void **state) {
    tri_cpu_share share;
    if (!tri_cpu_share_read(&share)) {
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
    cpu_crowd *crowd = cpu_crowd_start(2);
    assert_non_null(crowd);
    work(20, crowd);
    bool yields = cpu_crowd_yields(crowd);
    double used = used_by_waiting();
    cpu_crowd_stop(crowd);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    sched_setaffinity(0, sizeof before, &before);
    assert_true(yields);
    print_message("waiting for 20 ms took %.2f ms of a core\n", 1e3 * used);
    assert_true(used < 2e-3);
    tri_cpu_share now;
    assert_true(tri_cpu_share_read(&now));
    tri_cpu_share passed = tri_cpu_share_between(&share, &now);
    assert_true(passed.delayed_ns > 0 && passed.wall_ns > 0 && passed.used_ns > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_chosen_by_the_user),
        cmocka_unit_test(test_beside_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
