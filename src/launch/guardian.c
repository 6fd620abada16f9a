#include "launch/guardian.h"

#include "base/limits.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

// One write() of a word: positive adds a group, negative forgets it, 0 is the launcher's farewell.
static bool next_word(int fd, pid_t *word) {
    ssize_t got;
    do got = read(fd, word, sizeof *word);
    while (got < 0 && errno == EINTR);
    return got == sizeof *word;
}

static _Noreturn void guard(int fd) {
    pid_t groups[TRI_MAX_LOCAL_RANKS];
    int count = 0;
    pid_t word;
    while (next_word(fd, &word)) {
        if (word == 0) _exit(0);
        if (word > 0 && count < TRI_MAX_LOCAL_RANKS) groups[count++] = word;
        for (int i = 0; i < count; i++)
            if (groups[i] == -word) groups[i--] = groups[--count];
    }
    for (int i = 0; i < count; i++) kill(-groups[i], SIGKILL);
    _exit(0);
}

tri_status launch_guardian_start(launch_guardian *out) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return tri_os_fail("make a pipe", "guardian");
    out->pid = fork();
    if (out->pid < 0) {
        tri_os.close(ends[0]);
        tri_os.close(ends[1]);
        return tri_os_fail("start a process", "guardian");
    }
    if (out->pid == 0) {
        // Out of reach of what is meant for the launcher, and holding none of its files.
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        setsid();
        if (dup2(ends[0], STDIN_FILENO) < 0) _exit(1);
        close_range(1, ~0u, 0);
        guard(STDIN_FILENO);
    }
    tri_os.close(ends[0]);
    out->line = ends[1];
    return TRI_OK;
}

static void say(launch_guardian *guardian, pid_t word) {
    // A guardian that is gone guards no more; the workers still end with their parent.
    if (tri_os.write(guardian->line, &word, sizeof word) < 0) return;
}

void launch_guardian_add(launch_guardian *guardian, pid_t group) { say(guardian, group); }
void launch_guardian_forget(launch_guardian *guardian, pid_t group) { say(guardian, -group); }

void launch_guardian_stop(launch_guardian *guardian) {
    say(guardian, 0);
    tri_os.close(guardian->line);
    while (waitpid(guardian->pid, NULL, 0) < 0 && errno == EINTR) continue;
}
