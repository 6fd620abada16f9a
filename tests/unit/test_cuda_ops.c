// Compares `cuda`, on an emulated GPU, with `ref`: every op at random shapes.
#include "device/cuda/cuda.h"
#include "support/op_compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_f32(void **state) { op_compare_all(&tri_device_cuda, 1, TRI_F32, 2000, 4); }

static void test_halves(void **state) {
    op_compare_all(&tri_device_cuda, 1, TRI_BF16, 4000, 4);
    op_compare_all(&tri_device_cuda, 1, TRI_F16, 6000, 2);
}

static void test_bad_labels(void **state) { op_compare_bad_labels(&tri_device_cuda); }

int main(void) {
    setenv("TRIREME_MODULES", TRIREME_BUILD_DIR "/lib/emulated", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_halves),
                                       cmocka_unit_test(test_bad_labels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
