// `trireme run` from its command line to its exit code. A worker is the process of one rank; an
// attempt is one start of all workers. If the run has several nodes, each node has a launcher, its
// agent, and one of them, the serving agent, decides what all nodes do. Read next: watch.c, the
// loop while the workers run.
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_BAD_INPUT = 2, EXIT_STOPPED = 75, EXIT_SIGNAL = 128 };

// How an attempt has ended. STOPPED: workers have ended early with a checkpoint.
typedef enum outcome { DONE, STOPPED, FAILED } outcome;

typedef struct run {
    const launch_options *options;
    launch_command command;
    launch_members members;
    launch_nodes *nodes; // NULL: the run has only this node
    launch_folder folder;
    launch_guardian guardian;
    launch_console consoles[LAUNCH_STREAMS];
    launch_worker *workers;
    launch_assignment *assignments; // the CPUs and GPU of each worker; NULL: workers are not bound
    sigset_t mask;                  // the signal mask from before the run
    sigset_t handled;               // the signals that signal_fd reads
    int signal_fd;
    int stdin_fd;    // standard input of the workers; -1: they inherit it
    bool own_groups; // each worker is the leader of a process group
    int signal;      // the signal that ended the run; 0: none did
    char host[256];
} run;

static tri_status start_worker(run *r, tri_arena *arena, int local_rank) {
    launch_worker *w = &r->workers[local_rank];
    *w = (launch_worker){.local_rank = local_rank,
                         .rank = r->members.first_rank + local_rank,
                         .own_group = r->own_groups};
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        w->streams[k] = (launch_stream){.worker_fd = -1, .pipe = -1, .file = -1};
    TRI_TRY(launch_folder_add(&r->folder, r->members.generation, w));
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        TRI_TRY(launch_stream_open(r->options, local_rank, k == 0 ? LAUNCH_STDOUT : LAUNCH_STDERR,
                                   w->folder, &r->consoles[k], &w->streams[k]));
    launch_worker_start start = {
        .path = r->command.path,
        .argv = launch_command_arguments(arena, &r->command, local_rank),
        .environment =
            launch_command_environment(arena, r->options, &r->members, local_rank, w->error_file),
        .mask = r->mask,
        .handled = &r->handled,
        .stdin_fd = r->stdin_fd,
        .guardian = &r->guardian,
    };
    if (r->assignments) start.cpus = r->assignments[local_rank].cpus;
    return launch_worker_spawn(w, &start);
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

// Finds the worker whose exit code tells what went wrong. Usually that is `cause`, the worker whose
// failure ended the run. But the launcher may have stopped it while it still wrote its error file.
// Then its exit code shows only that it was stopped, so this returns the first other worker that
// failed without being stopped.
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

// Whether bad usage, a bad recipe or bad input was the cause. Then the run is not restarted,
// because it would fail in the same way.
static bool is_bad_input(const run *r, const launch_worker *cause) {
    const launch_worker *w = worker_with_exit_code(r, cause);
    return w && !w->signal && w->exit_code == EXIT_BAD_INPUT;
}

// Returns the exit code of a run that is not started again, and prints the report of a failure.
static int exit_code_of(run *r, tri_arena *arena, outcome result, int attempt) {
    if (result == DONE) return 0;
    if (result == STOPPED) return EXIT_STOPPED;
    // If a signal to the launcher ended the run, workers that ended because of it did not fail. The
    // report names only those that failed before.
    const launch_worker *cause = launch_failure_report(
        arena, r->workers, r->options->workers, r->host, attempt + 1, r->options->max_restarts + 1);
    if (r->signal) return EXIT_SIGNAL + r->signal;
    return is_bad_input(r, cause) ? EXIT_BAD_INPUT : EXIT_FAILED;
}

static bool may_retry(const run *r, tri_arena *arena, outcome result, int attempt) {
    if (result != FAILED || r->signal || attempt >= r->options->max_restarts) return false;
    for (int i = 0; i < r->options->workers; i++)
        // A lost worker, which did not end when it was killed, may still hold what the next attempt
        // needs, for example memory or a port.
        if (r->workers[i].lost) return false;
    return !is_bad_input(r, launch_failure_cause(arena, r->workers, r->options->workers));
}

static tri_status start_workers(run *r, tri_arena *arena) {
    int started = 0;
    tri_status status = TRI_OK;
    while (status == TRI_OK && started < r->options->workers)
        status = start_worker(r, arena, started++);
    if (status != TRI_OK) end_workers(r, started);
    return status;
}

// What follows an attempt that has ended.
typedef struct verdict {
    bool retry; // another attempt follows
    // This node was cut off: another attempt follows if it can join the other nodes again.
    bool may_rejoin;
    int code; // the exit code of the run, if no attempt follows
} verdict;

// Decides what follows an attempt of a run on one node.
static verdict decide(run *r, tri_arena *arena, outcome result) {
    int attempt = r->members.restarts;
    if (!may_retry(r, arena, result, attempt))
        return (verdict){.code = exit_code_of(r, arena, result, attempt)};
    tri_log_line(TRI_LOG_INFO, "starting %s again (restart %d of %d)",
                 tri_counted(r->options->workers, "worker"), attempt + 1, r->options->max_restarts);
    r->members.generation = ++r->members.restarts;
    return (verdict){.retry = true};
}

// Takes over what the serving agent (the launcher that decides for all nodes) has decided about a
// run on several nodes.
static verdict obey(const nodes_message *message) {
    const nodes_order *order = &message->order;
    if (message->head.kind == NODES_AGAIN) {
        tri_log_line(TRI_LOG_INFO, "%s", order->text);
        return (verdict){.retry = true};
    }
    if (order->is_report)
        (void)!tri_os_write_all(STDERR_FILENO, order->text, strlen(order->text), "standard error");
    else if (order->text[0])
        tri_log_line(order->code == EXIT_FAILED || order->code == EXIT_BAD_INPUT ? TRI_LOG_ERROR
                                                                                 : TRI_LOG_INFO,
                     "run: %s", order->text);
    return (verdict){.code = order->code, .may_rejoin = order->is_cut_off};
}

// Tells the serving agent (the launcher that decides for all nodes) how this node's workers have
// ended, and waits for its decision, which it makes when all nodes have reported. If the decision
// has already arrived, in `last`, this function only carries it out.
static verdict report(run *r, tri_arena *arena, outcome result, const nodes_message *last) {
    static const nodes_outcome outcomes[] = {
        [DONE] = NODES_DONE, [STOPPED] = NODES_STOPPED, [FAILED] = NODES_FAILED};
    const int count = r->options->workers;
    nodes_message answer = *last;
    if (answer.head.kind) return obey(&answer);
    nodes_report report = {.outcome = (int32_t)outcomes[result]};
    report.failed = launch_failure_describe(arena, r->workers, count, r->host, &report.cause,
                                            report.text, sizeof report.text);
    const launch_worker *cause = launch_failure_cause(arena, r->workers, count);
    if (cause) snprintf(report.name, sizeof report.name, "rank %d on %.80s", cause->rank, r->host);
    if (is_bad_input(r, cause)) report.cause.flags |= LAUNCH_BAD_INPUT;
    for (int i = 0; i < count; i++) report.is_final |= r->workers[i].lost;
    launch_nodes_report(r->nodes, &report);
    launch_nodes_wait(r->nodes, &r->signal, &answer);
    return obey(&answer);
}

// Waits until this node takes part in a round (a start of the workers on all nodes). False: the run
// has ended, with the exit code in the verdict.
static bool join_round(run *r, verdict *out) {
    nodes_message message;
    launch_nodes_wait(r->nodes, &r->signal, &message);
    if (message.head.kind != NODES_ROUND) {
        *out = obey(&message);
        return false;
    }
    launch_members_take(r->options, &message, &r->members);
    const launch_members *m = &r->members;
    tri_log_line(TRI_LOG_INFO, "node %d of %d: ranks %d to %d of %d; rank 0 is at %s port %d",
                 m->group_rank, m->group_size, m->first_rank,
                 m->first_rank + r->options->workers - 1, m->world_size, m->master_addr,
                 m->master_port);
    return true;
}

// Lets this node, which lost the connection to the other nodes, join them again if they are still
// there. If they are not, the run has ended for this node, with the exit code that is already in
// the verdict.
static void join_again(run *r, verdict *out) {
    tri_status status = launch_nodes_return(r->nodes, &r->signal);
    out->retry = status == TRI_OK && !r->signal;
    if (r->signal) out->code = EXIT_SIGNAL + r->signal;
    if (status != TRI_OK && status != TRI_UNSUPPORTED)
        tri_log_line(TRI_LOG_ERROR, "run: %s", tri_error_message());
}

static tri_status run_attempt(run *r, tri_arena *arena, verdict *out) {
    if (!r->nodes) TRI_TRY(launch_members_join(r->options, &r->members));
    if (r->nodes && !join_round(r, out)) return TRI_OK;
    TRI_TRY(start_workers(r, arena));
    launch_watch watch = {.options = r->options,
                          .workers = r->workers,
                          .count = r->options->workers,
                          .consoles = r->consoles,
                          .signal_fd = r->signal_fd,
                          .signal = r->signal,
                          .nodes = r->nodes};
    launch_watch_run(&watch);
    r->signal = watch.signal;
    outcome result = outcome_of(r);
    *out = r->nodes ? report(r, arena, result, &watch.last) : decide(r, arena, result);
    end_workers(r, r->options->workers);
    return TRI_OK;
}

static tri_status run_attempts(run *r, int *code) {
    verdict next = {.retry = true};
    while (next.retry) {
        tri_arena *arena = tri_arena_create(NULL, "attempt");
        tri_status status = run_attempt(r, arena, &next);
        tri_arena_destroy(arena);
        TRI_TRY(status);
        if (next.may_rejoin && !r->signal) join_again(r, &next);
    }
    *code = next.code;
    return TRI_OK;
}

// Runs all attempts. If the run has several nodes, first connects this launcher with those of the
// other nodes.
static tri_status run_with_others(run *r, int *code) {
    if (r->options->nodes_max > 1)
        TRI_TRY(launch_nodes_open(r->options, r->signal_fd, &r->signal, &r->nodes));
    if (r->signal) {
        *code = EXIT_SIGNAL + r->signal;
        return TRI_OK;
    }
    tri_status status = run_attempts(r, code);
    launch_nodes_close(r->nodes);
    return status;
}

// Opens /dev/null in place of standard files (0, 1 or 2) that were closed when this process was
// started. Otherwise the next files that the process opens would get these numbers, and messages
// would be written into them.
static void open_standard_files(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && tri_os.open("/dev/null", O_RDWR, 0) < 0) return;
}

static tri_status prepare_signals(run *r, launch_options *options) {
    // Under nohup SIGHUP is ignored, so that the run survives the end of its terminal. Then it
    // stays ignored.
    struct sigaction hang_up;
    if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler == SIG_IGN)
        sigdelset(&options->signals, SIGHUP);
    struct sigaction suspend;
    bool is_suspendable = sigaction(SIGTSTP, NULL, &suspend) == 0 && suspend.sa_handler != SIG_IGN;
    r->handled = options->signals;
    if (is_suspendable) sigaddset(&r->handled, SIGTSTP);
    sigaddset(&r->handled, SIGCHLD);
    sigaddset(&r->handled, SIGUSR1);
    sigaddset(&r->handled, SIGUSR2);
    sigaddset(&r->handled, SIGXCPU);
    signal(SIGCHLD, SIG_DFL); // if it were ignored, waitid could not report how workers ended
    sigprocmask(SIG_BLOCK, &r->handled, &r->mask);
    r->signal_fd = signalfd(-1, &r->handled, SFD_CLOEXEC | SFD_NONBLOCK);
    return r->signal_fd < 0 ? tri_os_fail("read", "signals") : TRI_OK;
}

// Decides whether workers may read from the terminal. A single worker may, so that a debugger works
// in it. Several workers may not: they are in process groups of their own, and the system would
// suspend a worker that reads from the terminal.
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
        tri_log_line(TRI_LOG_INFO,
                     "OMP_NUM_THREADS=1 for each of %d workers; set the variable to change that",
                     r->options->workers);
    tri_status status = launch_guardian_start(&r->guardian);
    if (status == TRI_OK) {
        status = run_with_others(r, code);
        launch_guardian_stop(&r->guardian);
    }
    launch_folder_end(&r->folder);
    return status;
}

// Chooses the workers' CPUs, so that workers do not run on each other's cores. With --show-binding
// the table of these CPUs is printed: on standard error if there is a PROGRAM, so that the table
// does not mix with the PROGRAM's output.
static tri_status plan_binding(run *r, tri_arena *arena) {
    const launch_options *o = r->options;
    launch_topology topology;
    if (o->binding == LAUNCH_BIND_NONE) return TRI_OK;
    r->assignments = TRI_NEW_ARRAY(arena, launch_assignment, o->workers);
    TRI_TRY(launch_bind_host(arena, o->binding, o->workers, &topology, r->assignments));
    if (o->shows_binding)
        launch_bind_print(arena, &topology, r->assignments, o->workers,
                          *o->program ? stderr : stdout);
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
    TRI_TRY(launch_members_check(options, &r->members)); // before any file is created
    if (options->nodes_max > 1) TRI_TRY(launch_nodes_check(options));
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
    // The handled signals stay blocked: a signal that arrives now, after the run's exit code was
    // decided, must not end this process with another exit code.
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
    tri_log_line(TRI_LOG_ERROR, "run: %s", tri_error_message());
    return tri_status_exit_code(status);
}
