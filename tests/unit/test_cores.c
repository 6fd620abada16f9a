// Checks how many cores a process may use, with files of control groups that the test writes.
#include "base/cores.h"
#include "base/parallel.h"
#include "device/cpu/cpu.h"
#include "launch/options.h"

#include <limits.h>
#include <omp.h>

#include "support/control_group_fixture.h"

static void test_no_quota(void **state) {
    (void)state;
    assert_int_equal(tri_cores_quota(), INT_MAX); // no file tells of one
    assert_int_equal(tri_cores(), tri_os_cpus());
    put("self", "0::/job\n");
    put("job/cpu.max", "max 100000\n");
    put("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_int_equal(tri_cores_quota(), INT_MAX);
    put("mountinfo", "");
    put("job/cpu.max", "100000 100000\n");
    assert_int_equal(tri_cores_quota(), INT_MAX);
}

// A quota of a fraction of a core is worth a thread, too.
static void test_rounds_up(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int cores;
    } cases[] = {{"100000 100000\n", 1},  {"100001 100000\n", 2}, {"150000 100000\n", 2},
                 {"1000 100000\n", 1},    {"20000 10000\n", 2},   {"6400000 100000\n", 64},
                 {"0 100000\n", INT_MAX}, {"100000\n", INT_MAX},  {"x y\n", INT_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("self", "0::/\n");
        put("cpu.max", cases[i].text);
        assert_int_equal(tri_cores_quota(), cases[i].cores);
        int cpus = tri_os_cpus();
        assert_int_equal(tri_cores(), cpus < cases[i].cores ? cpus : cases[i].cores);
    }
}

// The tightest of the process's group and of those around it, in both versions.
static void test_tightest(void **state) {
    (void)state;
    put("self", "12:cpuset:/none\n4:cpu,cpuacct:/uid_0/job_1\n0::/slice/job_1/step_0\n");
    put("slice/job_1/step_0/cpu.max", "700000 100000\n");
    assert_int_equal(tri_cores_quota(), 7);
    put("slice/job_1/cpu.max", "600000 100000\n");
    assert_int_equal(tri_cores_quota(), 6);
    put("slice/cpu.max", "max 100000\n");
    put("slice/job_1/step_0/cpu.max", "500000 100000\n");
    assert_int_equal(tri_cores_quota(), 5);
    put("cpu,cpuacct/uid_0/cpu.cfs_quota_us", "200000\n");
    put("cpu,cpuacct/uid_0/cpu.cfs_period_us", "50000\n");
    assert_int_equal(tri_cores_quota(), 4);
    put("cpu,cpuacct/uid_0/job_1/cpu.cfs_quota_us", "300000\n");
    put("cpu,cpuacct/uid_0/job_1/cpu.cfs_period_us", "100000\n");
    assert_int_equal(tri_cores_quota(), 3);
    put("elsewhere/cpu.max", "100000 100000\n"); // not a group of this process
    assert_int_equal(tri_cores_quota(), 3);
}

// A container sees its own group at the mounted root, or a path that lies elsewhere.
static void test_container(void **state) {
    (void)state;
    put("mountinfo", "32 22 0:28 /docker/ab /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
    put("cpu/cpu.cfs_quota_us", "400000\n");
    put("cpu/cpu.cfs_period_us", "100000\n");
    put("cpu/task/cpu.cfs_quota_us", "250000\n");
    put("cpu/task/cpu.cfs_period_us", "100000\n");
    static const struct {
        const char *own;
        int cores;
    } cases[] = {{"4:cpu:/docker/ab\n", 4},
                 {"4:cpu:/docker/ab/task\n", 3},
                 {"4:cpu:/docker/abc/task\n", 4},
                 {"4:cpu:/../other\n", 4},
                 {"", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("self", cases[i].own);
        assert_int_equal(tri_cores_quota(), cases[i].cores);
    }
}

static void test_threads(void **state) {
    (void)state;
    put("self", "0::/\n");
    put("cpu.max", "100000 100000\n");
    unsetenv("OMP_NUM_THREADS");
    omp_set_num_threads(3);
    assert_int_equal(tri_parallel_threads(), 1);
    tri_device_description device;
    assert_int_equal(tri_device_cpu.describe(&(tri_device_config){0}, &device), TRI_OK);
    assert_int_equal(device.threads, 1);
    int workers;
    assert_int_equal(launch_workers_parse("--nproc-per-node", "cpu", &workers), TRI_OK);
    assert_int_equal(workers, 1);
    setenv("OMP_NUM_THREADS", "3", 1); // what the user has chosen
    assert_int_equal(tri_parallel_threads(), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_quota, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rounds_up, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tightest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_container, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
