// `cpu` against `ref`: every op and a small network at random shapes, on one thread and on all.
#include "device/cpu/cpu.h"
#include "support/op_compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_one_thread(void **state) { op_compare_all(&tri_device_cpu, 1, TRI_F32, 2000, 24); }

static void test_halves(void **state) {
    op_compare_all(&tri_device_cpu, 1, TRI_BF16, 4000, 16);
    op_compare_all(&tri_device_cpu, 0, TRI_BF16, 5000, 8);
    op_compare_all(&tri_device_cpu, 1, TRI_F16, 6000, 4);
}

// As OMP_NUM_THREADS says, else one for each core.
static void test_all_threads(void **state) {
    op_compare_all(&tri_device_cpu, 0, TRI_F32, 3000, 12);
}

static void test_bad_labels(void **state) { op_compare_bad_labels(&tri_device_cpu); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_thread), cmocka_unit_test(test_all_threads),
        cmocka_unit_test(test_halves), cmocka_unit_test(test_bad_labels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
