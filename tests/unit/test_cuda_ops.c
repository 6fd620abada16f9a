// Compares `cuda` with `ref`: every op at random shapes. On an emulated GPU, or, if
// TRIREME_TEST_GPU is set, on the one that is here (scripts/test-gpu).
#include "device/cuda/cuda.h"
#include "support/op_compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

// Rounds of each family: few on an emulated GPU, unless TEST_ROUNDS says how many.
static int rounds(void) {
    const char *wanted = getenv("TEST_ROUNDS");
    if (wanted) return atoi(wanted);
    return getenv("TRIREME_TEST_GPU") ? 24 : 4;
}

static void test_f32(void **state) { op_compare_all(&tri_device_cuda, 1, TRI_F32, 2000, rounds()); }

static void test_halves(void **state) {
    op_compare_all(&tri_device_cuda, 1, TRI_BF16, 4000, rounds());
    op_compare_all(&tri_device_cuda, 1, TRI_F16, 6000, rounds());
}

static void test_bad_labels(void **state) { op_compare_bad_labels(&tri_device_cuda); }

int main(void) {
    if (!getenv("TRIREME_TEST_GPU"))
        setenv("TRIREME_MODULES", TRIREME_BUILD_DIR "/lib/emulated", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_halves),
                                       cmocka_unit_test(test_bad_labels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
