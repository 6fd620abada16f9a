// Runs another program and gets its output through pipes.
#include "base/command.h"

#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { OUT, ERR, STREAMS, ERROR_BYTES = 512 };

// Signals that a batch system sends to all processes of a job. The program runs with them blocked:
// a job that asks to be put back into the queue is sent SIGTERM before the program that asked has
// its answer.
static const int of_jobs[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

typedef struct command {
    char *const *argv;
    pid_t pid;
    int pipes[STREAMS];
    char *text[STREAMS];
    size_t size[STREAMS], used[STREAMS];
    int64_t until_ns;
} command;

static tri_status start(command *c, int timeout_ms) {
    int ends[STREAMS][2];
    if (pipe2(ends[OUT], O_CLOEXEC) != 0) return tri_os_fail("make a pipe for", c->argv[0]);
    if (pipe2(ends[ERR], O_CLOEXEC) != 0) {
        tri_status status = tri_os_fail("make a pipe for", c->argv[0]);
        tri_os.close(ends[OUT][0]);
        tri_os.close(ends[OUT][1]);
        return status;
    }
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t ending;
    sigemptyset(&ending);
    for (size_t i = 0; i < sizeof of_jobs / sizeof *of_jobs; i++) sigaddset(&ending, of_jobs[i]);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, ends[OUT][1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, ends[ERR][1], STDERR_FILENO);
    posix_spawnattr_setsigmask(&attributes, &ending);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int error = posix_spawnp(&c->pid, c->argv[0], &files, &attributes, c->argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    for (int i = 0; i < STREAMS; i++) {
        tri_os.close(ends[i][1]);
        c->pipes[i] = ends[i][0];
        if (error) tri_os.close(ends[i][0]);
    }
    c->until_ns = tri_os.monotonic_ns() + (int64_t)timeout_ms * 1000000;
    if (!error) return TRI_OK;
    return TRI_FAIL(error == ENOENT ? TRI_NOT_FOUND : TRI_IO, "cannot run %s: %s", c->argv[0],
                    strerror(error));
}

// Reads what the program has written to one of its output streams, and appends it to the stream's
// text. If the memory of the text is full, reads the bytes and drops them, because a full pipe
// would block the program. False: the program has closed its end of the pipe, or reading failed.
static bool take(command *c, int stream) {
    char dropped[512];
    size_t room = c->size[stream] - 1 - c->used[stream];
    char *to = room > 0 ? c->text[stream] + c->used[stream] : dropped;
    ssize_t got = tri_os.read(c->pipes[stream], to, room > 0 ? room : sizeof dropped);
    if (got < 0) return errno == EINTR || errno == EAGAIN;
    if (room > 0) c->used[stream] += (size_t)got;
    return got > 0;
}

// Reads standard output and standard error of the program until both are closed. False: the time
// limit was reached first, or poll failed.
static bool read_all(command *c) {
    bool open[STREAMS] = {true, true};
    while (open[OUT] || open[ERR]) {
        int64_t left_ms = (c->until_ns - tri_os.monotonic_ns()) / 1000000;
        if (left_ms <= 0) return false;
        struct pollfd fds[STREAMS];
        for (int i = 0; i < STREAMS; i++)
            fds[i] = (struct pollfd){.fd = open[i] ? c->pipes[i] : -1, .events = POLLIN};
        if (poll(fds, STREAMS, left_ms > INT_MAX ? INT_MAX : (int)left_ms) < 0 && errno != EINTR)
            return false;
        for (int i = 0; i < STREAMS; i++)
            if (open[i] && fds[i].revents) open[i] = take(c, i);
    }
    return true;
}

// Waits until the program has ended, which may be long after it has closed its output. False: the
// time limit was reached before.
static bool wait_for_end(const command *c, int *how) {
    const int64_t pause_ns = 1000000;
    pid_t ended;
    while ((ended = waitpid(c->pid, how, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
        if (tri_os.monotonic_ns() >= c->until_ns) return false;
        tri_os.sleep_ns(pause_ns);
    }
    return true;
}

static tri_status end(command *c, bool in_time) {
    int how = 0;
    in_time = in_time && wait_for_end(c, &how);
    if (!in_time) {
        kill(c->pid, SIGKILL);
        while (waitpid(c->pid, &how, 0) < 0 && errno == EINTR) {
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        c->text[i][c->used[i]] = 0;
        tri_os.close(c->pipes[i]);
    }
    if (!in_time) return TRI_FAIL(TRI_TIMEOUT, "%s does not answer", c->argv[0]);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return TRI_OK;
    char *line = c->text[ERR];
    line[strcspn(line, "\n")] = 0;
    if (WIFSIGNALED(how))
        return TRI_FAIL(TRI_TIMEOUT, "%s was ended by signal %d", c->argv[0], WTERMSIG(how));
    return TRI_FAIL(TRI_IO, "%s ended with exit code %d%s%s", c->argv[0], WEXITSTATUS(how),
                    *line ? ": " : "", line);
}

tri_status tri_command_run(char *const argv[], int timeout_ms, char *out, size_t size) {
    char errors[ERROR_BYTES];
    command c = {.argv = argv, .text = {out, errors}, .size = {size, sizeof errors}};
    out[0] = 0;
    TRI_TRY(start(&c, timeout_ms));
    return end(&c, read_all(&c));
}
