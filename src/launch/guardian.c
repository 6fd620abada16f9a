// Starts and stops the guardian, a process that kills the process groups of the workers (the ranks'
// processes) if the launcher dies. Through a pipe the launcher tells the guardian which groups
// these are.
#include "launch/guardian.h"

#include "base/limits.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

// Reads one message. A positive number adds that process group, a negative one removes it, and 0
// means that the launcher ends in good order (and will kill the guardian). False: the other end of
// the pipe was closed, so the launcher is gone.
static bool read_message(int fd, pid_t *message) {
    ssize_t got;
    do got = read(fd, message, sizeof *message);
    while (got < 0 && errno == EINTR);
    return got == sizeof *message;
}

static _Noreturn void guard(int fd) {
    pid_t groups[TRI_MAX_LOCAL_RANKS];
    int count = 0;
    pid_t message;
    while (read_message(fd, &message)) {
        if (message == 0) _exit(0);
        if (message > 0 && count < TRI_MAX_LOCAL_RANKS) groups[count++] = message;
        for (int i = 0; i < count; i++)
            if (groups[i] == -message) groups[i--] = groups[--count];
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
        // Signals to the launcher's process group or terminal must not end the guardian, and the
        // guardian must not keep the launcher's files and pipes open.
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        setsid();
        if (dup2(ends[0], STDIN_FILENO) < 0) _exit(1);
        close_range(1, ~0u, 0);
        guard(STDIN_FILENO);
    }
    tri_os.close(ends[0]);
    out->pipe = ends[1];
    return TRI_OK;
}

static void send_message(const launch_guardian *guardian, pid_t message) {
    // This fails only if the guardian was killed. The run continues without it, because the
    // workers' processes still end with their parent.
    (void)!tri_os.write(guardian->pipe, &message, sizeof message);
}

void launch_guardian_add(const launch_guardian *guardian, pid_t group) {
    send_message(guardian, group);
}

void launch_guardian_remove(const launch_guardian *guardian, pid_t group) {
    send_message(guardian, -group);
}

void launch_guardian_stop(launch_guardian *guardian) {
    send_message(guardian, 0);
    tri_os.close(guardian->pipe);
    // The guardian may be suspended by a user's SIGSTOP, and then does not read the message.
    // SIGKILL ends a suspended process too.
    kill(guardian->pid, SIGKILL);
    while (waitpid(guardian->pid, NULL, 0) < 0 && errno == EINTR) continue;
}
