// `trireme run` with workers that do not end when they are killed, like processes that wait inside
// the kernel for a disk. To simulate that, SIGKILL is not sent at all. The launcher's clock runs
// fast, so that the test need not wait for the launcher's time limits.
#include "base/os.h"
#include "launch/launch.h"
#include "support/run_folder.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

int __real_kill(pid_t pid, int number);
int __wrap_kill(pid_t pid, int number);

// If not NULL, the launcher's process kills nothing by SIGKILL. It writes to this file the process
// groups that it would have killed, one per line.
static FILE *spared;

int __wrap_kill(pid_t pid, int number) {
    if (number != SIGKILL || !spared) return __real_kill(pid, number);
    if (pid > 0) return 0;
    fprintf(spared, "%d\n", (int)-pid);
    fflush(spared);
    return 0;
}

static int64_t fast_ns(void) { return 100 * tri_os_system.monotonic_ns(); }

// Becomes a launcher of two workers whose standard error is `fd`.
static _Noreturn void launch(int fd, FILE *groups, const char *script) {
    alarm(60); // ends the launcher if the test takes longer than 60 s
    dup2(fd, 2);
    spared = groups;
    tri_os.monotonic_ns = fast_ns;
    const char *argv[] = {"run",
                          "--standalone",
                          "--nproc-per-node=2",
                          "--max-restarts=3",
                          "--shutdown-timeout=1",
                          "sh",
                          "-c",
                          script,
                          NULL};
    _exit(tri_launch_main(8, (char **)argv));
}

// Reads what the launcher prints, until it ends. The launcher's own clock runs fast (fast_ns), but
// the time limits of its calls of poll do not pass faster. So this function often ends these calls
// by the signal SIGCHLD.
static void read_all(int fd, pid_t launcher, char *text, size_t size) {
    size_t used = 0;
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, 50) == 0) {
            kill(launcher, SIGCHLD);
            continue;
        }
        ssize_t got = read(fd, text + used, size - 1 - used);
        if (got <= 0) break;
        used += (size_t)got;
    }
    text[used] = 0;
}

static void a_worker_that_cannot_be_killed_is_left_behind(void **state) {
    // Rank 1 fails only after rank 0 ignores SIGTERM; rank 0 would otherwise end like any worker.
    char text[8192], script[512];
    int ends[2], status, group;
    snprintf(script, sizeof script,
             "exec 2>/dev/null; if test $RANK = 0; then trap '' TERM; touch %s/ready; sleep 100; "
             "else until test -e %s/ready; do sleep 0.01; done; exit 3; fi",
             run_dir, run_dir);
    FILE *groups = tmpfile();
    assert_non_null(groups);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) launch(ends[1], groups, script);
    close(ends[1]);
    read_all(ends[0], pid, text, sizeof text);
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    rewind(groups);
    while (fscanf(groups, "%d", &group) == 1) kill(-group, SIGKILL);
    fclose(groups);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || !strstr(text, "rank 0 (pid ") ||
        !strstr(text, "it is left behind") || strstr(text, "restart 1") ||
        !strstr(text, "root cause") || !strstr(text, ":\n  rank 1"))
        fail_msg("status %x: %s", (unsigned)status, text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_worker_that_cannot_be_killed_is_left_behind, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
