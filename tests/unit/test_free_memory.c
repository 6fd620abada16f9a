// Checks how much memory is found to be free, with files of control groups that the test writes.
#include "base/free_memory.h"

#include "support/control_group_fixture.h"

static void test_group(void **state) {
    int64_t host = tri_free_memory(1, NULL);
    assert_true(host > 1 << 20);
    put("memory.max", "max\n");
    put("memory.current", "5000000\n");
    put("memory.stat", "anon 1\ninactive_file 300000\n");
    assert_true(tri_free_memory(1, NULL) > 1 << 20);
    put("memory.max", "6000000\n");
    assert_int_equal(tri_free_memory(1, NULL), 1300000);
    assert_int_equal(tri_free_memory(4, NULL), 325000);
}

// If the control group has no free memory, tri_free_memory returns 1 byte. 0 would mean that
// nothing is known, and then a run that needs more would not be rejected.
static void test_full_group(void **state) {
    const char *whose = NULL;
    put("memory.current", "6000000\n");
    put("memory.stat", "anon 1\n");
    const char *limits[] = {"6000000\n", "5999999\n", "0\n"};
    for (int i = 0; i < 3; i++) {
        put("memory.max", limits[i]);
        assert_int_equal(tri_free_memory(1, &whose), 1);
        assert_non_null(strstr(whose, "free"));
    }
    put("memory.max", "6000003\n");
    assert_int_equal(tri_free_memory(8, &whose), 1);
}

// A batch system limits the memory of the job's control group (job_1). This process is in a control
// group inside of it (job_1/step_0).
static void test_job_group(void **state) {
    put("self", "0::/job_1/step_0\n");
    put("job_1/memory.max", "7000000\n");
    put("job_1/memory.current", "5000000\n");
    put("job_1/memory.stat", "anon 1\ninactive_file 500000\n");
    put("job_1/step_0/memory.max", "max\n");
    put("job_1/step_0/memory.current", "4000000\n");
    assert_int_equal(tri_free_memory(1, NULL), 2500000);
    put("job_1/step_0/memory.max", "4900000\n");
    assert_int_equal(tri_free_memory(3, NULL), 300000);
    put("memory.max", "5100000\n");
    put("memory.current", "5000000\n");
    assert_int_equal(tri_free_memory(1, NULL), 100000);
    // Control groups of version 1. A host may have some controllers of version 1 beside version 2.
    put("self", "12:cpuset,memory_other:/none\n4:cpu,memory:/uid_0/job_1\n0::/elsewhere\n");
    put("memory.max", "max\n");
    put("memory/uid_0/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/uid_0/memory.usage_in_bytes", "5000000\n");
    put("memory/uid_0/job_1/memory.limit_in_bytes", "6000000\n");
    put("memory/uid_0/job_1/memory.usage_in_bytes", "5000000\n");
    put("memory/uid_0/job_1/memory.stat", "cache 3\ntotal_inactive_file 200000\n");
    assert_int_equal(tri_free_memory(1, NULL), 1200000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_group, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_group, setup, teardown),
        cmocka_unit_test_setup_teardown(test_job_group, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
