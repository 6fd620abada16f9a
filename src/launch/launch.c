// `trireme run` from its command line to its exit code: the attempts of a run and their workers.
// Next to read: watch.c, the loop while the workers run.
#include "launch/launch.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "launch/bind.h"
#include "launch/command.h"
#include "launch/failure.h"
#include "launch/folder.h"
#include "launch/guardian.h"
#include "launch/watch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_BAD_INPUT = 2, EXIT_STOPPED = 75, EXIT_SIGNAL = 128 };

// How an attempt ended.
typedef enum outcome { DONE, STOPPED, FAILED } outcome;

typedef struct run {
    const launch_options *options;
    launch_command command;
    launch_members members;
    launch_folder folder;
    launch_guardian guardian;
    launch_console consoles[LAUNCH_STREAMS];
    launch_worker *workers;
    launch_place *places; // of the workers; NULL: not bound
    sigset_t mask;        // the signal mask from before the run
    sigset_t handled;     // the signals that signal_fd reads
    int signal_fd;
    int stdin_fd;    // of the workers; -1: inherited
    bool own_groups; // each worker leads a process group
    int signal;      // the signal that ended the run; 0: none
    char host[256];
} run;

static tri_status start_worker(run *r, tri_arena *arena, int attempt, int local_rank) {
    launch_worker *w = &r->workers[local_rank];
    *w = (launch_worker){.local_rank = local_rank,
                         .rank = r->members.first_rank + local_rank,
                         .own_group = r->own_groups};
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        w->streams[k] = (launch_stream){.worker_fd = -1, .pipe = -1, .file = -1};
    TRI_TRY(launch_folder_add(&r->folder, attempt, w));
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        TRI_TRY(launch_stream_open(r->options, local_rank, k == 0 ? LAUNCH_STDOUT : LAUNCH_STDERR,
                                   w->folder, &r->consoles[k], &w->streams[k]));
    launch_worker_start start = {
        .path = r->command.path,
        .argv = launch_command_arguments(arena, &r->command, local_rank),
        .environment = launch_command_environment(arena, r->options, &r->members, attempt,
                                                  local_rank, w->error_file),
        .mask = r->mask,
        .handled = &r->handled,
        .stdin_fd = r->stdin_fd,
    };
    if (r->places) start.cpus = r->places[local_rank].cpus;
    TRI_TRY(launch_worker_spawn(w, &start));
    if (w->own_group) launch_guardian_add(&r->guardian, w->pid);
    return TRI_OK;
}

static void end_workers(run *r, int started) {
    for (int i = 0; i < started; i++) {
        launch_worker *w = &r->workers[i];
        for (int k = 0; k < LAUNCH_STREAMS; k++) launch_stream_end(&w->streams[k]);
        pid_t group = w->own_group ? w->pid : 0;
        launch_worker_reap(w);
        if (group) launch_guardian_remove(&r->guardian, group);
    }
}

static outcome outcome_of(const run *r) {
    outcome result = DONE;
    for (int i = 0; i < r->options->workers; i++) {
        if (launch_worker_failed(&r->workers[i]) || r->workers[i].lost) return FAILED;
        if (r->workers[i].exit_code == EXIT_STOPPED) result = STOPPED;
    }
    return result;
}

// The worker whose exit code says what went wrong: the cause, unless the launcher stopped it while
// it was still writing its error file. Then it is the worker that ended by itself first.
static const launch_worker *worker_with_exit_code(const run *r, const launch_worker *cause) {
    const launch_worker *first = cause;
    if (cause && !cause->signal && cause->exit_code == EXIT_BAD_INPUT) return cause;
    for (int i = 0; cause && cause->asked_to_end && i < r->options->workers; i++) {
        const launch_worker *w = &r->workers[i];
        if (launch_worker_failed(w) && !w->asked_to_end &&
            (first->asked_to_end || w->end_order < first->end_order))
            first = w;
    }
    return first;
}

// Whether bad usage, a bad recipe or bad input was the cause. A restart would fail in the same way.
static bool is_bad_input(const run *r, const launch_worker *cause) {
    const launch_worker *w = worker_with_exit_code(r, cause);
    return w && !w->signal && w->exit_code == EXIT_BAD_INPUT;
}

// The exit code of a run that is not started again; prints the report of a failure.
static int exit_code_of(run *r, tri_arena *arena, outcome result, int attempt) {
    if (result == DONE) return 0;
    if (result == STOPPED) return EXIT_STOPPED;
    // If a signal to the launcher ended the run, workers that ended on it did not fail; the report
    // names only those that failed before.
    const launch_worker *cause = launch_failure_report(
        arena, r->workers, r->options->workers, r->host, attempt + 1, r->options->max_restarts + 1);
    if (r->signal) return EXIT_SIGNAL + r->signal;
    return is_bad_input(r, cause) ? EXIT_BAD_INPUT : EXIT_FAILED;
}

static bool may_retry(const run *r, tri_arena *arena, outcome result, int attempt) {
    if (result != FAILED || r->signal || attempt >= r->options->max_restarts) return false;
    for (int i = 0; i < r->options->workers; i++)
        if (r->workers[i].lost) return false; // it may hold what the next attempt needs
    return !is_bad_input(r, launch_failure_cause(arena, r->workers, r->options->workers));
}

// Runs one attempt. *retry: it failed, and another attempt may follow; otherwise *code is the run's
// exit code.
static tri_status run_attempt(run *r, tri_arena *arena, int attempt, bool *retry, int *code) {
    TRI_TRY(launch_members_join(r->options, &r->members));
    int started = 0;
    tri_status status = TRI_OK;
    while (status == TRI_OK && started < r->options->workers)
        status = start_worker(r, arena, attempt, started++);
    if (status != TRI_OK) {
        end_workers(r, started);
        return status;
    }
    launch_watch watch = {.options = r->options,
                          .workers = r->workers,
                          .count = started,
                          .consoles = r->consoles,
                          .signal_fd = r->signal_fd};
    launch_watch_run(&watch);
    r->signal = watch.signal;
    outcome result = outcome_of(r);
    *retry = may_retry(r, arena, result, attempt);
    if (*retry)
        tri_log(TRI_LOG_INFO, "starting %s again (restart %d of %d)",
                tri_counted(started, "worker"), attempt + 1, r->options->max_restarts);
    else
        *code = exit_code_of(r, arena, result, attempt);
    end_workers(r, started);
    return TRI_OK;
}

static tri_status run_attempts(run *r, int *code) {
    bool retry = true;
    for (int attempt = 0; retry; attempt++) {
        tri_arena *arena = tri_arena_create(NULL, "attempt");
        tri_status status = run_attempt(r, arena, attempt, &retry, code);
        tri_arena_destroy(arena);
        TRI_TRY(status);
    }
    return TRI_OK;
}

// If this process was started with closed standard files, the next files that it opens would get
// their numbers: opens /dev/null in their stead.
static void open_standard_files(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && tri_os.open("/dev/null", O_RDWR, 0) < 0) return;
}

static tri_status prepare_signals(run *r, launch_options *options) {
    // Started by nohup, for instance: the run is to survive a hang-up.
    struct sigaction hang_up;
    if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler == SIG_IGN)
        sigdelset(&options->signals, SIGHUP);
    r->handled = options->signals;
    sigaddset(&r->handled, SIGCHLD);
    sigaddset(&r->handled, SIGUSR1);
    sigaddset(&r->handled, SIGUSR2);
    signal(SIGCHLD, SIG_DFL); // if it were ignored, waitid would not report how workers ended
    sigprocmask(SIG_BLOCK, &r->handled, &r->mask);
    r->signal_fd = signalfd(-1, &r->handled, SFD_CLOEXEC | SFD_NONBLOCK);
    return r->signal_fd < 0 ? tri_os_fail("read", "signals") : TRI_OK;
}

// A single worker keeps the terminal, so that a debugger works in it. Several workers are in
// process groups of their own, and would be suspended when they read from the terminal.
static tri_status prepare_terminal(run *r) {
    bool terminal = isatty(STDIN_FILENO) == 1;
    r->own_groups = !terminal || r->options->workers > 1;
    r->stdin_fd = -1;
    if (!terminal || !r->own_groups) return TRI_OK;
    r->stdin_fd = tri_os.open("/dev/null", O_RDONLY | O_CLOEXEC, 0);
    return r->stdin_fd < 0 ? tri_os_fail("open", "/dev/null") : TRI_OK;
}

static tri_status run_guarded(run *r, int *code) {
    TRI_TRY(prepare_terminal(r));
    TRI_TRY(launch_folder_create(r->options, r->members.run_id, &r->folder));
    if (r->options->workers > 1 && !getenv("OMP_NUM_THREADS") &&
        r->options->binding != LAUNCH_BIND_AUTO)
        tri_log(TRI_LOG_INFO,
                "OMP_NUM_THREADS=1 for each of %d workers; set the variable to change that",
                r->options->workers);
    tri_status status = launch_guardian_start(&r->guardian);
    if (status == TRI_OK) {
        status = run_attempts(r, code);
        launch_guardian_stop(&r->guardian);
    }
    launch_folder_end(&r->folder);
    return status;
}

// Chooses the workers' CPUs and prints the map where --show-binding asks for it: on standard output
// if nothing else is to be done.
static tri_status plan_binding(run *r, tri_arena *arena) {
    const launch_options *o = r->options;
    launch_topology topology;
    if (o->binding == LAUNCH_BIND_NONE) return TRI_OK;
    r->places = TRI_NEW_ARRAY(arena, launch_place, o->workers);
    TRI_TRY(launch_bind_host(arena, o->binding, o->workers, &topology, r->places));
    if (o->shows_binding)
        launch_bind_print(arena, &topology, r->places, o->workers, *o->program ? stderr : stdout);
    return TRI_OK;
}

static tri_status run_program(launch_options *options, tri_arena *arena, int *code) {
    run *r = TRI_NEW(arena, run);
    r->options = options;
    r->signal_fd = r->stdin_fd = -1;
    r->workers = TRI_NEW_ARRAY(arena, launch_worker, options->workers);
    for (int k = 0; k < LAUNCH_STREAMS; k++) r->consoles[k].fd = STDOUT_FILENO + k;
    if (gethostname(r->host, sizeof r->host - 1) != 0) return tri_os_fail("read", "host name");
    open_standard_files();
    TRI_TRY(plan_binding(r, arena));
    if (!*options->program) return TRI_OK;
    TRI_TRY(launch_members_join(options, &r->members)); // refuses bad flags before files are made
    TRI_TRY(launch_command_find(arena, options, &r->command));
    launch_options_warn_idle(options);
    struct sigaction ignore = {.sa_handler = SIG_IGN}, pipe_before, child_before;
    sigaction(SIGPIPE, &ignore, &pipe_before);
    sigaction(SIGCHLD, NULL, &child_before);
    tri_status status = prepare_signals(r, options);
    if (status == TRI_OK) status = run_guarded(r, code);
    if (r->signal_fd >= 0) tri_os.close(r->signal_fd);
    if (r->stdin_fd >= 0) tri_os.close(r->stdin_fd);
    for (int k = 0; k < LAUNCH_STREAMS; k++) launch_console_free(&r->consoles[k]);
    sigprocmask(SIG_SETMASK, &r->mask, NULL);
    sigaction(SIGPIPE, &pipe_before, NULL);
    sigaction(SIGCHLD, &child_before, NULL);
    return status;
}

static const char *from_environment(const char *name) { return getenv(name); }

int tri_launch_main(int argc, char **argv) {
    launch_options options;
    int code = 0;
    tri_status status = launch_options_parse(argc, argv, from_environment, &options);
    if (status == TRI_OK && options.help) {
        launch_options_help();
        return 0;
    }
    tri_arena *arena = tri_arena_create(NULL, "launch");
    if (status == TRI_OK) status = run_program(&options, arena, &code);
    tri_arena_destroy(arena);
    if (status == TRI_OK) return code;
    tri_log(TRI_LOG_ERROR, "run: %s", tri_error_message());
    return tri_status_exit_code(status);
}
