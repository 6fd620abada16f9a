// Tests a team of threads in a process that was forked, and that OpenMP's regions run on it in the
// program, unless the process was started with a setting that the team does not follow.
#include "base/team.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void add(void *context) { ++*(_Atomic int *)context; }

static void check_team(void) {
    _Atomic int sum = 0;
    assert_int_equal(tri_team_run(4, add, (void *)&sum), TRI_OK);
    assert_int_equal(sum, 4);
}

static void test_fork(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    return; // it allows no threads in a process that was forked
#endif
    check_team();
    pid_t child = fork();
    if (child == 0) {
        check_team();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    check_team();
}

// Returns how many of the calls of a region knew of the team, and in *sum their indices' sum.
static int region(int *sum, int *count) {
    int on_team = 0, indices = 0, threads = 0;
#pragma omp parallel num_threads(4) reduction(+ : on_team, indices, threads)
    {
        on_team += tri_team_is_inside();
        indices += omp_get_thread_num();
        threads += omp_get_num_threads() * omp_in_parallel();
#pragma omp barrier
    }
    *sum = indices;
    *count = threads;
    return on_team;
}

static void test_openmp(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    return; // it does not see by what libgomp's threads wait
#endif
    int sum, count;
    assert_int_equal(region(&sum, &count), 4);
    assert_int_equal(sum, 0 + 1 + 2 + 3);
    assert_int_equal(count, 4 * 4);
    // With a setting that the team does not follow, libgomp runs the regions.
    pid_t child = fork();
    if (child == 0) {
        setenv("OMP_WAIT_POLICY", "passive", 1);
        execl("/proc/self/exe", "test_team", "region", (char *)NULL);
        _exit(9);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        int sum, count, on_team = region(&sum, &count);
        return on_team == 0 && sum == 6 && count == 16 ? 0 : 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fork), cmocka_unit_test(test_openmp)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
