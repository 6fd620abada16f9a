// Starts the process of one worker, that is, of one rank, and finds out how it ended. Read next:
// watch.c.
#include "launch/worker.h"

#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// What the new process sends to the launcher, through a pipe, if it cannot start the program. It
// does not print this, because its standard error may already be a log file, where the user would
// not see the reason.
typedef struct child_error {
    int error; // value of errno
    char what[24];
} child_error;

static _Noreturn void report_and_exit(int fd, const char *what) {
    child_error e = {.error = errno};
    strncpy(e.what, what, sizeof e.what - 1);
    if (write(fd, &e, sizeof e) < 0) _exit(126);
    _exit(127);
}

// Turns the new process into the worker's program. It calls only functions that are safe between
// fork and exec.
static _Noreturn void exec_program(const launch_worker *worker, const launch_worker_start *start,
                                   pid_t launcher, int error_fd) {
    // The kernel kills the worker when the launcher ends for any reason, so that no worker remains.
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) report_and_exit(error_fd, "watch its parent");
    if (getppid() != launcher) _exit(1);
    // The guardian is told before the program runs: a child of the program would else remain if the
    // launcher were killed at once.
    if (worker->own_group) {
        setpgid(0, 0);
        launch_guardian_add(start->guardian, getpid());
    }
    const int given[] = {start->stdin_fd, worker->streams[0].worker_fd,
                         worker->streams[1].worker_fd};
    for (int i = 0; i < 3; i++)
        if (given[i] >= 0 && dup2(given[i], i) < 0) report_and_exit(error_fd, "open its files");
    if (launch_bind_apply(&start->cpus) != 0) report_and_exit(error_fd, "bind to its CPUs");
    for (int number = 1; number < NSIG; number++)
        if (number == SIGPIPE || number == SIGXFSZ || sigismember(start->handled, number) == 1)
            signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, &start->mask, NULL);
    execve(start->path, start->argv, start->environment);
    report_and_exit(error_fd, "execute");
}

tri_status launch_worker_spawn(launch_worker *worker, const launch_worker_start *start) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return tri_os_fail("make a pipe", start->path);
    pid_t launcher = getpid(), pid = fork();
    if (pid == 0) exec_program(worker, start, launcher, ends[1]);
    tri_os.close(ends[1]);
    if (pid < 0) {
        tri_status status = tri_os_fail("start a process", start->path);
        tri_os.close(ends[0]);
        return status;
    }
    worker->pid = pid;
    // Parent and child both put the child into a process group of its own, so that neither has to
    // wait until the other has done so.
    if (worker->own_group) setpgid(pid, pid);
    for (int i = 0; i < LAUNCH_STREAMS; i++) launch_stream_close_worker_end(&worker->streams[i]);
    child_error e;
    ssize_t got;
    do got = tri_os.read(ends[0], &e, sizeof e);
    while (got < 0 && errno == EINTR);
    tri_os.close(ends[0]);
    if (got != sizeof e) return TRI_OK;
    if (worker->own_group) launch_guardian_remove(start->guardian, pid);
    launch_worker_reap(worker);
    return TRI_FAIL(e.error == ENOENT                         ? TRI_NOT_FOUND
                    : e.error == EACCES || e.error == ENOEXEC ? TRI_BAD_INPUT
                                                              : TRI_IO,
                    "%.400s: rank %d cannot %.24s: %s%s", start->path, worker->rank, e.what,
                    strerror(e.error),
                    e.error == ENOEXEC ? " (a script begins with #! and its interpreter)" : "");
}

bool launch_worker_check(launch_worker *worker) {
    siginfo_t info = {0};
    if (!worker->pid || worker->ended) return false;
    if (waitid(P_PID, (id_t)worker->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
        return false;
    worker->ended = true;
    worker->ended_ns = tri_os.realtime_ns();
    if (info.si_code == CLD_EXITED)
        worker->exit_code = info.si_status;
    else
        worker->signal = info.si_status;
    return true;
}

bool launch_worker_is_suspended(const launch_worker *worker) {
    siginfo_t info = {0};
    return worker->pid && !worker->ended &&
           waitid(P_PID, (id_t)worker->pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
}

void launch_worker_signal(const launch_worker *worker, int number) {
    if (!worker->pid || (worker->ended && !worker->own_group)) return;
    bool is_sent = worker->own_group && kill(-worker->pid, number) == 0;
    // A worker may have left its group, so SIGKILL is sent to the worker as well. Other signals
    // must not arrive twice, because the worker may have a handler for them.
    if (!is_sent || number == SIGKILL) kill(worker->pid, number);
}

void launch_worker_reap(launch_worker *worker) {
    if (!worker->pid) return;
    launch_worker_signal(worker, SIGKILL);
    while (waitpid(worker->pid, NULL, worker->lost ? WNOHANG : 0) < 0 && errno == EINTR) continue;
    worker->pid = 0;
}
