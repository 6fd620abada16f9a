// Checks that tri_module_load refuses a module (a shared object with a table of functions) that is
// missing or of another version, and a file that is no module, with a line that says what to do.
#include "base/module.h"
#include "support/message.h"

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
    message_check(tri_error_message(), says);
}

static void test_refused(void **state) {
    setenv("TRIREME_MODULES", TRIREME_BUILD_DIR "/lib/test-modules", 1);
    assert_int_equal(tri_module_load("toy", "toys", 7, &table), TRI_OK);
    assert_string_equal(table, "a table");
    check_refused("old", "toys", TRI_UNSUPPORTED, "old.so|version|6|7");
    check_refused("toy", "transport", TRI_UNSUPPORTED, "toy.so|toys toy|transport toy");
    check_refused("none", "toys", TRI_UNSUPPORTED, "none.so|module");
    check_refused("lost", "toys", TRI_NOT_FOUND, "lost.so|" TRIREME_BUILD_DIR "/lib/test-modules");
}

static void test_folders(void **state) {
    unsetenv("TRIREME_MODULES");
    check_refused("lost", "toys", TRI_NOT_FOUND, "/bin/../lib/trireme");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
