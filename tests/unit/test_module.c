// Checks that tri_module_load refuses a module (a shared object with a table of functions) that is
// missing or of another version, and a file that is no module, with a line that says what to do.
#include "base/module.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const void *table;

static void check_refused(const char *name, const char *interface, tri_status status,
                          const char *says) {
    assert_int_equal(tri_module_load(name, interface, 7, &table), status);
    assert_null(table);
    if (!strstr(tri_error_message(), says)) fail_msg("%s", tri_error_message());
}

static void test_refused(void **state) {
    setenv("TRIREME_MODULES", TRIREME_BUILD_DIR "/lib/test-modules", 1);
    assert_int_equal(tri_module_load("toy", "toys", 7, &table), TRI_OK);
    assert_string_equal(table, "a table");
    check_refused("old", "toys", TRI_UNSUPPORTED,
                  "old.so is of another version of trireme (interface 6, this program has 7)");
    check_refused("toy", "transport", TRI_UNSUPPORTED, "toy.so is the toys toy, and not the");
    check_refused("none", "toys", TRI_UNSUPPORTED, "none.so is not a module of trireme");
    check_refused("lost", "toys", TRI_NOT_FOUND,
                  "there is no lost.so in " TRIREME_BUILD_DIR "/lib/test-modules, the only");
}

static void test_folders(void **state) {
    unsetenv("TRIREME_MODULES");
    check_refused("lost", "toys", TRI_NOT_FOUND, "/bin/../lib/trireme, ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
