// The launcher's loop while the workers (the ranks' processes) of one attempt run. An attempt is
// one start of all workers. Read next: failure.c, which finds the cause if a worker failed.
#include "launch/watch.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "launch/failure.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>

enum { EXIT_BAD_INPUT = 2 };
enum { FDS_MAX = 2 + LAUNCH_STREAMS + LAUNCH_STREAMS * TRI_MAX_LOCAL_RANKS };

typedef struct state {
    launch_watch *watch;
    int running, ended;
    bool stopping;
    bool killed; // workers that did not end in time have been killed
    // When workers that still run are killed or, if `killed`, given up; INT64_MAX: not decided yet.
    int64_t kill_ns;
    bool flushing; // all workers have ended, and only output for the console is left to write
    // After all workers have ended: until when their output is read or, if `flushing`, written;
    // INT64_MAX: without a limit.
    int64_t drain_ns;
    int64_t first_interrupt_ns;
    // Signals that the launcher has passed on to the workers and that do not end the run.
    sigset_t passed_on;
} state;

static int grace_ms(const state *s) { return (int)(s->watch->options->shutdown_s * 1e3); }

static void signal_all(state *s, int number) {
    for (int i = 0; i < s->watch->count; i++)
        if (!s->watch->workers[i].ended) launch_worker_signal(&s->watch->workers[i], number);
}

static void stop_all(state *s, int number, int grace_ms) {
    if (s->stopping) return;
    s->stopping = true;
    for (int i = 0; i < s->watch->count; i++) {
        launch_worker *w = &s->watch->workers[i];
        w->asked_to_end = w->asked_to_end || !w->ended;
        w->was_suspended = !s->watch->signal && launch_worker_is_suspended(w);
    }
    signal_all(s, number);
    signal_all(s, SIGCONT); // a suspended process does not handle other signals
    s->kill_ns = tri_os.monotonic_ns() + (int64_t)grace_ms * 1000000;
}

static void describe_end(const launch_worker *w, char *text, size_t size) {
    if (w->signal)
        snprintf(text, size, "was ended by %s", launch_signal_name(w->signal));
    else
        snprintf(text, size, "ended with exit code %d", w->exit_code);
}

// Checks whether worker i has just ended. If it ended by a signal that the launcher had passed on,
// the worker had no handler for that signal, or not yet; then the signal ends the run.
static bool check_worker(state *s, int i) {
    launch_worker *w = &s->watch->workers[i];
    if (!launch_worker_check(w)) return false;
    if (w->signal && sigismember(&s->passed_on, w->signal) == 1) {
        w->asked_to_end = true;
        if (!s->watch->signal && s->watch->nodes) launch_nodes_leave(s->watch->nodes, w->signal);
        if (!s->watch->signal) s->watch->signal = w->signal;
    }
    w->end_order = ++s->ended;
    s->running--;
    return true;
}

// How much time the other workers get to end after one has failed. It is short, because they cannot
// finish their work: they wait for the rank that is gone.
static int short_grace_ms(const state *s) {
    return grace_ms(s) < TRI_MAX_SHUTDOWN_MS ? grace_ms(s) : TRI_MAX_SHUTDOWN_MS;
}

// Tells the serving agent, the launcher that decides what all nodes do, of a failure, so that it
// stops the workers of the other nodes at the same time.
static void tell_failure(state *s, const launch_worker *w, const char *how) {
    char text[128];
    snprintf(text, sizeof text, "rank %d %s", w->rank, how);
    if (s->watch->nodes) launch_nodes_failing(s->watch->nodes, text);
}

// Checks which workers have ended. After the first failure, begins to stop the other workers.
static void check_workers(state *s) {
    for (int i = 0; i < s->watch->count; i++) {
        launch_worker *w = &s->watch->workers[i];
        if (!check_worker(s, i) || !launch_worker_failed(w) || s->stopping) continue;
        char how[64];
        describe_end(w, how, sizeof how);
        // If input is bad, all ranks end by themselves, and one of them has printed why.
        bool is_told = !w->signal && w->exit_code == EXIT_BAD_INPUT;
        if (s->running && !is_told)
            tri_log_line(TRI_LOG_INFO, "rank %d (pid %ld) %s: stopping the other %d", w->rank,
                         (long)w->pid, how, s->running);
        // Workers that have ended by now did so by themselves. To record that, this checks all
        // workers before any is stopped.
        for (int j = 0; j < s->watch->count; j++) check_worker(s, j);
        if (!is_told) tell_failure(s, w, how);
        stop_all(s, SIGTERM, short_grace_ms(s));
    }
}

// Suspends the workers and this launcher, until the user continues it. The terminal's signal has
// not reached workers in process groups of their own.
static void suspend(state *s) {
    signal_all(s, SIGTSTP);
    tri_os_suspend();
    signal_all(s, SIGCONT);
}

static void handle_signal(state *s, int number) {
    if (number == SIGCHLD) return; // SIGCHLD only wakes the loop, for check_workers
    if (number == SIGTSTP && sigismember(&s->watch->options->signals, number) != 1) {
        suspend(s);
        return;
    }
    if (sigismember(&s->watch->options->signals, number) != 1) {
        sigaddset(&s->passed_on, number);
        signal_all(s, number);
        return;
    }
    int64_t now_ns = tri_os.monotonic_ns();
    if (!s->watch->signal) {
        s->watch->signal = number;
        s->first_interrupt_ns = now_ns;
        if (s->running)
            tri_log_line(TRI_LOG_INFO, "%s: passed on to %s, with %s to end",
                         launch_signal_name(number), tri_counted(s->running, "worker"),
                         tri_seconds_text(s->watch->options->shutdown_s));
        if (s->watch->nodes) launch_nodes_leave(s->watch->nodes, number);
        stop_all(s, number, grace_ms(s));
        if (s->flushing) s->drain_ns = now_ns + grace_ms(s) * INT64_C(1000000);
    } else if (number == SIGINT && now_ns - s->first_interrupt_ns > 1000000000) {
        tri_log_line(TRI_LOG_INFO, "second SIGINT: killing the workers");
        if (!s->killed) s->kill_ns = now_ns;
        s->drain_ns = s->drain_ns == INT64_MAX ? INT64_MAX : now_ns;
    }
}

static void read_signals(state *s) {
    struct signalfd_siginfo info;
    while (tri_os.read(s->watch->signal_fd, &info, sizeof info) == sizeof info)
        handle_signal(s, (int)info.ssi_signo);
}

// Reads messages of the serving agent (the launcher that decides for all nodes). They may end this
// attempt of the run, and with it this node's workers. The attempt also ends if the connection to
// the serving agent was lost.
static void read_nodes(state *s) {
    nodes_message message;
    while (launch_nodes_next(s->watch->nodes, &message)) {
        bool is_stop = message.head.kind == NODES_STOP;
        if (!is_stop) s->watch->last = message;
        if (!s->running || (!is_stop && !message.order.text[0])) continue;
        int time_ms = is_stop && message.order.is_graceful ? grace_ms(s) : short_grace_ms(s);
        int64_t end_ns = tri_os.monotonic_ns() + time_ms * INT64_C(1000000);
        if (!s->stopping && message.order.text[0])
            tri_log_line(TRI_LOG_INFO, "%s: stopping %s", message.order.text,
                         tri_counted(s->running, "worker"));
        stop_all(s, SIGTERM, time_ms);
        if (!s->killed && end_ns < s->kill_ns) s->kill_ns = end_ns;
    }
}

static bool has_output(const state *s) {
    for (int i = 0; i < s->watch->count; i++)
        for (int k = 0; k < LAUNCH_STREAMS; k++)
            if (s->watch->workers[i].streams[k].pipe >= 0) return true;
    return false;
}

// Closes all output. Children of the workers may still hold the pipes open, and the launcher does
// not wait for them, because they might never end.
static void end_output(state *s) {
    for (int i = 0; i < s->watch->count; i++)
        for (int k = 0; k < LAUNCH_STREAMS; k++) {
            launch_stream *stream = &s->watch->workers[i].streams[k];
            if (stream->console) launch_stream_end(stream);
        }
}

static int wait_ms(const state *s) {
    int64_t until = s->running ? s->kill_ns : s->drain_ns;
    if (until == INT64_MAX) return -1;
    int64_t left = (until - tri_os.monotonic_ns()) / 1000000 + 1;
    return left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

// Waits for a signal, output, a message of the serving agent (see read_nodes) or a time limit. Then
// handles what has arrived, and forwards output that can be read and written.
static void wait_and_forward(state *s) {
    struct pollfd fds[FDS_MAX];
    launch_stream *streams[FDS_MAX] = {NULL};
    int count = 0;
    fds[count++] = (struct pollfd){.fd = s->watch->signal_fd, .events = POLLIN};
    fds[count++] = (struct pollfd){.fd = s->watch->nodes ? launch_nodes_fd(s->watch->nodes) : -1,
                                   .events = POLLIN};
    for (int k = 0; k < LAUNCH_STREAMS; k++, count++) {
        launch_console *c = &s->watch->consoles[k];
        fds[count] = (struct pollfd){.fd = c->size ? c->fd : -1, .events = POLLOUT};
    }
    for (int i = 0; i < s->watch->count; i++)
        for (int k = 0; k < LAUNCH_STREAMS; k++) {
            launch_stream *stream = &s->watch->workers[i].streams[k];
            if (stream->pipe < 0 || launch_stream_must_wait(stream)) continue;
            streams[count] = stream;
            fds[count++] = (struct pollfd){.fd = stream->pipe, .events = POLLIN};
        }
    if (poll(fds, (nfds_t)count, wait_ms(s)) <= 0) return;
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        if (fds[2 + k].revents) launch_console_write(&s->watch->consoles[k]);
    for (int i = 2 + LAUNCH_STREAMS; i < count; i++)
        if (fds[i].revents) launch_stream_read(streams[i]);
    if (fds[0].revents) read_signals(s);
    if (fds[1].revents) read_nodes(s);
}

// Gives up workers that do not end even when they are killed, such as a process that waits inside
// the kernel for a disk or a network file system that does not answer.
static void leave_behind(state *s) {
    for (int i = 0; i < s->watch->count; i++) {
        launch_worker *w = &s->watch->workers[i];
        if (w->ended) continue;
        tri_log_line(TRI_LOG_WARNING,
                     "rank %d (pid %ld) was killed %s ago and has not ended: it waits inside the "
                     "kernel, perhaps for a file system that does not answer; it is left behind",
                     w->rank, (long)w->pid, tri_seconds_text(TRI_LAUNCH_KILLED_MS * 1e-3));
        w->lost = true;
    }
    s->running = 0;
}

static void kill_late(state *s) {
    int64_t now_ns = tri_os.monotonic_ns();
    if (!s->running || now_ns < s->kill_ns) return;
    if (s->killed) {
        leave_behind(s);
        return;
    }
    tri_log_line(TRI_LOG_INFO, "killing %s that did not end in time",
                 tri_counted(s->running, "worker"));
    signal_all(s, SIGKILL);
    s->killed = true;
    s->kill_ns = now_ns + TRI_LAUNCH_KILLED_MS * INT64_C(1000000);
}

static bool consoles_are_empty(const state *s) {
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        if (s->watch->consoles[k].size) return false;
    return true;
}

void launch_watch_run(launch_watch *watch) {
    state s = {
        .watch = watch, .running = watch->count, .kill_ns = INT64_MAX, .drain_ns = INT64_MAX};
    sigemptyset(&s.passed_on);
    // The caller may have received a signal already. Then this attempt ends at once.
    s.first_interrupt_ns = tri_os.monotonic_ns();
    if (watch->signal) stop_all(&s, watch->signal, grace_ms(&s));
    for (;;) {
        check_workers(&s);
        kill_late(&s);
        if (!s.running && s.drain_ns == INT64_MAX) {
            for (int i = 0; i < watch->count; i++)
                launch_worker_signal(&watch->workers[i], SIGKILL);
            s.drain_ns = tri_os.monotonic_ns() + TRI_LAUNCH_DRAIN_MS * 1000000ll;
        }
        if (!s.running && (!has_output(&s) || tri_os.monotonic_ns() >= s.drain_ns)) break;
        wait_and_forward(&s);
    }
    end_output(&s);
    read_signals(&s); // records the signal that ended workers, if the launcher got it too
    // The program that reads the console's output may be slow, so the launcher waits for it; after
    // a signal only for a limited time.
    s.flushing = true;
    s.drain_ns =
        watch->signal ? tri_os.monotonic_ns() + grace_ms(&s) * INT64_C(1000000) : INT64_MAX;
    while (!consoles_are_empty(&s) && tri_os.monotonic_ns() < s.drain_ns) wait_and_forward(&s);
}
