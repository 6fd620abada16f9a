// Compares every op of the device `cuda` with that of the reference device `ref` (plain C), at
// random shapes. It runs on an emulated GPU or, if TRIREME_TEST_GPU is set (tests/gpu/test-gpu), on
// the GPU of this host.
#include "device/cuda/cuda.h"
#include "support/op_compare.h"
#include "support/test_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static int rounds(void) { return test_gpu_rounds(4, 24); }

static void test_f32(void **state) { op_compare_all(&tri_device_cuda, 1, TRI_F32, 2000, rounds()); }

static void test_bf16(void **state) {
    op_compare_all(&tri_device_cuda, 1, TRI_BF16, 4000, rounds());
}

static void test_f16(void **state) { op_compare_all(&tri_device_cuda, 1, TRI_F16, 6000, rounds()); }

static void test_bad_labels(void **state) { op_compare_bad_labels(&tri_device_cuda); }

int main(void) {
    test_gpu_choose();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_bf16),
                                       cmocka_unit_test(test_f16),
                                       cmocka_unit_test(test_bad_labels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
