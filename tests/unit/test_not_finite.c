// NaN and infinity go through every kernel of the devices `cpu` and `cuda` as through those of the
// reference device `ref`. The device cuda is an emulated GPU, or the host's if TRIREME_TEST_GPU is
// set. tests/CMakeLists.txt runs this test for several instruction sets of the CPU.
#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"
#include "support/op_compare.h"
#include "support/test_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#ifdef __SANITIZE_ADDRESS__ // what a number is decides about no address
enum { F32_CASES = 3, BF16_CASES = 2, F16_CASES = 1 };
#else
enum { F32_CASES = 12, BF16_CASES = 8, F16_CASES = 2 };
#endif

static void test_cpu(void **state) {
    op_compare_not_finite(&tri_device_cpu, TRI_F32, 1000, F32_CASES);
    op_compare_not_finite(&tri_device_cpu, TRI_BF16, 2000, BF16_CASES);
    op_compare_not_finite(&tri_device_cpu, TRI_F16, 3000, F16_CASES);
}

static void test_cuda(void **state) {
    if (getenv("TRIREME_CPU_ISA")) {
        puts("skipped: the kernels of the GPU do not depend on the CPU's instructions");
        skip();
    }
    op_compare_not_finite(&tri_device_cuda, TRI_F32, 4000, test_gpu_rounds(1, 12));
    op_compare_not_finite(&tri_device_cuda, TRI_BF16, 5000, test_gpu_rounds(1, 12));
    // An emulated GPU is slow, and the kernels of F16 are those of BF16 with other conversions.
    op_compare_not_finite(&tri_device_cuda, TRI_F16, 6000, test_gpu_rounds(0, 12));
}

int main(void) {
    test_gpu_choose();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cpu), cmocka_unit_test(test_cuda)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
