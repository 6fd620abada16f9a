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

// So many tenths of a second in which threads are delayed for a part of the time. A tenth gets
// `spinning` or `yielding` pieces of work done.
typedef struct machine {
    int percent;
    uint64_t spinning, yielding;
} machine;

static int choose_for(cpu_crowd_choice *c, int tenths, machine m) {
    int yielded = 0;
    for (int i = 0; i < tenths; i++) {
        yielded += c->yields;
        cpu_crowd_window window = {SECOND / 10, SECOND / 1000 * m.percent,
                                   c->yields ? m.yielding : m.spinning};
        cpu_crowd_choose(c, &window);
    }
    return yielded;
}

static void test_free_cores(void **state) {
    cpu_crowd_choice c = {0};
    assert_int_equal(choose_for(&c, 6000, (machine){20, 1000, 100}), 0);
}

static void test_shared_cores(void **state) {
    cpu_crowd_choice c = {0};
    choose_for(&c, 2, (machine){90, 50, 1000});
    assert_true(c.yields); // a trial, at once
    assert_int_equal(choose_for(&c, 15, (machine){90, 50, 1000}), 15);
    // From time to time spinning is tried again, for a small part of the time.
    int yielded = choose_for(&c, 6000, (machine){90, 50, 1000});
    assert_in_range(yielded, 5950, 5999);
    // The cores are free again.
    choose_for(&c, 60, (machine){0, 1000, 100});
    assert_false(c.yields);
}

// The delays are those of a small thread beside the others: spinning stays faster.
static void test_delayed_and_faster(void **state) {
    cpu_crowd_choice c = {0};
    assert_in_range(choose_for(&c, 6000, (machine){40, 1000, 400}), 1, 50);
    // As fast as spinning is not enough.
    cpu_crowd_choice other = {0};
    assert_in_range(choose_for(&other, 6000, (machine){40, 1000, 1050}), 1, 50);
}

// Long kernels: few of them in a window.
static void test_little_work(void **state) {
    cpu_crowd_choice c = {0};
    choose_for(&c, 40, (machine){90, 2, 4});
    assert_true(c.yields);
    // Nothing is learned while nothing runs.
    cpu_crowd_choice idle = {0};
    assert_int_equal(choose_for(&idle, 600, (machine){90, 0, 0}), 0);
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

// Until the threads yield, and have done so for longer than a trial.
static void work(double seconds, cpu_crowd *crowd) {
    volatile double sums[2] = {0};
    double now = omp_get_wtime(), end = now + seconds, last_spun = now;
    while (now < end && now - last_spun < 1) {
        cpu_crowd_count(crowd);
#pragma omp parallel for num_threads(2)
        for (int t = 0; t < 2; t++)
            for (int i = 0; i < 20000; i++) sums[t] += i;
        now = omp_get_wtime();
        if (!cpu_crowd_yields(crowd)) last_spun = now;
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
        cmocka_unit_test(test_free_cores),         cmocka_unit_test(test_shared_cores),
        cmocka_unit_test(test_delayed_and_faster), cmocka_unit_test(test_little_work),
        cmocka_unit_test(test_chosen_by_the_user), cmocka_unit_test(test_beside_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
