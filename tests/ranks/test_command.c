// Tests how a command runs of which the program wants the output: its end, its signals, and a
// command that does not answer.
#include "base/command.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_commands(void **state) {
    (void)state;
    char out[8];
    assert_int_equal(tri_command_run((char *[]){"echo", "12345", NULL}, 5000, out, sizeof out),
                     TRI_OK);
    assert_string_equal(out, "12345\n");
    assert_int_equal(tri_command_run((char *[]){"echo", "123456789", NULL}, 5000, out, sizeof out),
                     TRI_OK);
    assert_string_equal(out, "1234567");
    assert_int_equal(
        tri_command_run((char *[]){"sh", "-c", "echo no >&2; exit 3", NULL}, 5000, out, sizeof out),
        TRI_IO);
    assert_string_equal(tri_error_message(), "sh ended with exit code 3: no");
    assert_int_equal(tri_command_run((char *[]){"no-such-program", NULL}, 5000, out, sizeof out),
                     TRI_NOT_FOUND);
    assert_int_equal(tri_command_run((char *[]){"sleep", "20", NULL}, 100, out, sizeof out),
                     TRI_TIMEOUT);
    assert_string_equal(tri_error_message(), "sleep does not answer");
    // Signals by which a job is asked to end do not end it; what is killed may have done its work.
    char *const asked[] = {"sh", "-c", "kill -TERM $$; kill -INT $$; kill -USR2 $$; echo yes",
                           NULL};
    assert_int_equal(tri_command_run(asked, 5000, out, sizeof out), TRI_OK);
    assert_string_equal(out, "yes\n");
    char *const killed[] = {"sh", "-c", "kill -KILL $$", NULL};
    assert_int_equal(tri_command_run(killed, 5000, out, sizeof out), TRI_TIMEOUT);
    assert_string_equal(tri_error_message(), "sh was ended by signal 9");
    // The command has closed its output, but still runs.
    char *const silent[] = {"sh", "-c", "exec >&- 2>&-; sleep 20", NULL};
    assert_int_equal(tri_command_run(silent, 100, out, sizeof out), TRI_TIMEOUT);
    // The command writes more than a pipe holds.
    assert_int_equal(tri_command_run((char *[]){"sh", "-c", "yes | head -c 300000", NULL}, 5000,
                                     out, sizeof out),
                     TRI_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_commands)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
