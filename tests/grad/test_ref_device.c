// Runs every op on the reference device `ref` twice at random shapes: once with outputs in memory
// of their own, and once with outputs that lie over the inputs which the op may overwrite. Checks
// that the results are the same, that an op writes all of its outputs, and that it does not change
// other inputs.
#include "device/ref/ref.h"
#include "support/op_compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_families(void **state) { op_compare_all(&tri_device_ref, 1, TRI_F32, 1000, 24); }

static void test_bad_labels(void **state) { op_compare_bad_labels(&tri_device_ref); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families),
                                       cmocka_unit_test(test_bad_labels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
