// Tests that a process which is suspended (Ctrl-Z) does not count the time until it goes on.
#include "base/os.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

// Suspended by SIGTSTP (Ctrl-Z), a process stops its clock until it is continued.
static void test_suspension(void **state) {
    (void)state;
    const int64_t pause_ns = 50000000;
    int done;
    pid_t pid = fork();
    if (pid == 0) {
        tri_os_handle_suspension();
        int64_t begin_ns = tri_os.monotonic_ns();
        raise(SIGTSTP);
        int64_t lasted_ns = tri_os.monotonic_ns() - begin_ns;
        _exit(lasted_ns >= 0 && lasted_ns < pause_ns ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &done, WUNTRACED), pid);
    assert_true(WIFSTOPPED(done));
    tri_os.sleep_ns(pause_ns);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(waitpid(pid, &done, 0), pid);
    assert_true(WIFEXITED(done) && WEXITSTATUS(done) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_suspension)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
