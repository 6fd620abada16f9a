// Finds which worker (a rank's process) caused the failure of a run, from exit codes, signals and
// error files, and prints the report. A worker that fails writes into its error file why.
#include "launch/failure.h"

#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "base/tree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_BAD_INPUT = 2, EXIT_STOPPED = 75, SHOWN_LINES = 30, SHOWN_WORKERS = 16 };

typedef struct failure {
    const launch_worker *worker;
    launch_error error;
    launch_cause cause;
} failure;

// Reads the time stamp of an error file: seconds since 1970, as text or as a number, depending on
// the program that wrote the file. 0: there is none.
static double seconds_of(const tri_tree *node) {
    if (!node || node->kind != TRI_TREE_SCALAR) return 0;
    char *end;
    double value = strtod(node->text, &end);
    return end != node->text && !*end && isfinite(value) && value > 0 ? value : 0;
}

tri_status launch_error_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                              launch_error *out) {
    *out = (launch_error){0};
    tri_tree *root;
    TRI_TRY(tri_json_parse(arena, text, size, file, &root));
    const tri_tree *message = tri_tree_get(root, "message");
    const tri_tree *text_node = message;
    if (message && message->kind == TRI_TREE_MAP) {
        text_node = tri_tree_get(message, "message");
        out->seconds = seconds_of(tri_tree_find(message, "extraInfo.timestamp"));
        tri_tree_to_bool(tri_tree_find(message, "extraInfo.said"), &out->is_printed);
        int64_t code;
        if (tri_tree_to_int(tri_tree_get(message, "errorCode"), &code) && code > 0 && code < 256)
            out->code = (int)code;
    }
    if (!text_node || text_node->kind != TRI_TREE_SCALAR)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: has no message", file);
    out->message = text_node->text;
    return TRI_OK;
}

bool launch_worker_failed(const launch_worker *w) {
    if (!w->ended) return false;
    return w->signal != 0 || (w->exit_code != 0 && w->exit_code != EXIT_STOPPED);
}

static launch_error read_error(tri_arena *arena, const launch_worker *w) {
    launch_error error = {0};
    char *text;
    size_t size;
    if (access(w->error_file, F_OK) != 0) return error;
    tri_status status = tri_os_check_file(w->error_file);
    if (status == TRI_OK)
        status = tri_os_read_file(w->error_file, TRI_MAX_ERROR_FILE_BYTES, &text, &size);
    if (status == TRI_OK) {
        status = launch_error_parse(arena, text, size, w->error_file, &error);
        free(text);
    }
    if (status != TRI_OK) tri_log_line(TRI_LOG_WARNING, "%s", tri_error_message());
    return error;
}

static bool crashed(const launch_worker *w) { return w->signal != 0 && w->signal != SIGABRT; }

// Whether the worker only reports that another rank failed, was lost or has bad input. Then this
// worker is not the cause.
static bool is_consequence(const failure *f) {
    static const char *const names[] = {"TRI_PEER_LOST: ", "TRI_REFUSED: "};
    for (size_t i = 0; f->error.message && i < sizeof names / sizeof *names; i++)
        if (!strncmp(f->error.message, names[i], strlen(names[i]))) return true;
    return false;
}

static bool has(const launch_cause *cause, int flag) { return (cause->flags & flag) != 0; }

bool launch_cause_comes_before(const launch_cause *a, const launch_cause *b) {
    static const int before = LAUNCH_SUSPENDED, after = LAUNCH_CONSEQUENCE;
    if (has(a, before) != has(b, before)) return has(a, before);
    if (has(a, after) != has(b, after)) return has(b, after);
    if (floor(a->seconds) != floor(b->seconds)) return a->seconds < b->seconds;
    if (has(a, LAUNCH_ASKED) != has(b, LAUNCH_ASKED)) return has(b, LAUNCH_ASKED);
    if (has(a, LAUNCH_CRASHED) != has(b, LAUNCH_CRASHED)) return has(a, LAUNCH_CRASHED);
    return a->end_order < b->end_order;
}

static launch_cause cause_of(const failure *f) {
    const launch_worker *w = f->worker;
    bool is_error_file = f->error.seconds > 0;
    return (launch_cause){
        .seconds = is_error_file ? f->error.seconds : (double)w->ended_ns * 1e-9,
        .flags = (w->was_suspended ? LAUNCH_SUSPENDED : 0) |
                 (is_consequence(f) ? LAUNCH_CONSEQUENCE : 0) |
                 (w->asked_to_end ? LAUNCH_ASKED : 0) | (crashed(w) ? LAUNCH_CRASHED : 0),
        .end_order = w->end_order,
    };
}

// Fills out[] with the failures, the cause first, and returns their number. A worker that the
// launcher stopped counts as failed only if it wrote an error file, or if it was suspended, because
// then the other workers were waiting for it.
static int collect_failures(tri_arena *arena, const launch_worker *workers, int count,
                            failure *out) {
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (!launch_worker_failed(&workers[i])) continue;
        failure f = {&workers[i], read_error(arena, &workers[i]), {0, 0, 0}};
        if (workers[i].was_suspended)
            f.error = (launch_error){0}; // an error that it wrote followed from its suspension
        else if (workers[i].asked_to_end && !f.error.message)
            continue;
        f.cause = cause_of(&f);
        int at = found++;
        for (; at > 0 && launch_cause_comes_before(&f.cause, &out[at - 1].cause); at--)
            out[at] = out[at - 1];
        out[at] = f;
    }
    return found;
}

// Prints text that a worker wrote: indented, and with control characters replaced, because these
// must not reach the terminal.
static void print_text(FILE *to, const char *text) {
    int lines = 0;
    while (*text && lines++ < SHOWN_LINES) {
        size_t length = strcspn(text, "\n");
        fputs("      ", to);
        for (size_t i = 0; i < length && i < 2000; i++) {
            unsigned char c = (unsigned char)text[i];
            fputc((c < ' ' && c != '\t') || c == 0x7f ? '?' : c, to);
        }
        fputc('\n', to);
        text += length + (text[length] == '\n');
    }
    if (*text) fputs("      …\n", to);
}

static bool stderr_is_on_console(const launch_worker *w) {
    return w->streams[LAUNCH_STREAMS - 1].goes_to_console;
}

// Gets the message without the name of its status: "disk full" of "TRI_IO: disk full". Ranks may
// report the same cause with different statuses; compared without them, the messages are equal.
static const char *message_text(const failure *f) {
    const char *colon = strstr(f->error.message, ": ");
    return !strncmp(f->error.message, "TRI_", 4) && colon ? colon + 2 : f->error.message;
}

// Whether the failure's text need not be printed: a worker has already printed it on the console,
// or it is the same as the text of a failure nearer to the cause, which is printed.
static bool is_repeated(const failure *failures, int count, int index) {
    const char *own = message_text(&failures[index]);
    for (int i = 0; i < count; i++) {
        const failure *f = &failures[i];
        bool is_elsewhere = i < index || (f->error.is_printed && stderr_is_on_console(f->worker));
        if (is_elsewhere && f->error.message && !strcmp(message_text(f), own)) return true;
    }
    return false;
}

// Whether bad input was the cause, and a worker has already printed a line about it.
static bool is_told(const failure *failures, int count) {
    const failure *f = &failures[0];
    bool has_bad_input = !f->worker->signal && f->worker->exit_code == EXIT_BAD_INPUT;
    return has_bad_input && f->error.message && is_repeated(failures, count, 0);
}

static void print_failure(FILE *to, const failure *failures, int count, int index,
                          const char *host) {
    const failure *f = &failures[index];
    const launch_worker *w = f->worker;
    char how[96], when[32];
    if (w->was_suspended)
        snprintf(how, sizeof how, "suspended by a signal when the others failed");
    else if (w->signal)
        snprintf(how, sizeof how, "ended by %s", launch_signal_name(w->signal));
    else
        snprintf(how, sizeof how, "exit code %d", w->exit_code);
    time_t seconds = (time_t)f->cause.seconds;
    struct tm local;
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r(&seconds, &local));
    fprintf(to, "  rank %d (local rank %d) on %s, pid %ld: %s at %s\n", w->rank, w->local_rank,
            host, (long)w->pid, how, when);
    if (f->error.message) {
        if (!is_repeated(failures, count, index))
            print_text(to, f->error.message);
        else if (f->error.is_printed)
            fprintf(to, "      see its message above\n");
        else if (index == 0) // another worker has printed the cause's message already
            fprintf(to, "      see the message above, which is also this rank's\n");
    } else if (w->was_suspended) {
        fprintf(to, "      SIGSTOP, a debugger, or job control\n");
    } else if (w->signal == SIGKILL) {
        fprintf(to,
                "      killed from outside: by hand, by the batch system, or for lack of memory\n");
    } else {
        fprintf(to, "      it wrote no error file; see its own output\n");
    }
    for (int i = LAUNCH_STREAMS - 1; i >= 0; i--)
        if (w->streams[i].path[0]) fprintf(to, "      log: %s\n", w->streams[i].path);
}

const launch_worker *launch_failure_cause(tri_arena *arena, const launch_worker *workers,
                                          int count) {
    failure *failures = TRI_NEW_ARRAY(arena, failure, count);
    return collect_failures(arena, workers, count, failures) > 0 ? failures[0].worker : NULL;
}

const launch_worker *launch_failure_report(tri_arena *arena, const launch_worker *workers,
                                           int count, const char *host, int attempt, int attempts) {
    failure *failures = TRI_NEW_ARRAY(arena, failure, count);
    int found = collect_failures(arena, workers, count, failures);
    if (found == 0) return NULL;
    if (is_told(failures, found)) return failures[0].worker;
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    TRI_ASSERT(to);
    fprintf(to, "trireme: run failed: %d of %s, attempt %d of %d\n", found,
            tri_counted(count, "worker"), attempt, attempts);
    int shown = found < SHOWN_WORKERS ? found : SHOWN_WORKERS;
    if (found > 1) fprintf(to, "later failures, most of them consequences:\n");
    for (int i = shown - 1; i > 0; i--) print_failure(to, failures, found, i, host);
    if (found > shown) fprintf(to, "  … and %d more\n", found - shown);
    fprintf(to, "root cause, the first to fail:\n");
    print_failure(to, failures, found, 0, host);
    fclose(to);
    // If standard error is closed or full, only the exit code can report the failure.
    (void)!tri_os_write_all(STDERR_FILENO, text, size, "standard error");
    free(text);
    return failures[0].worker;
}

int launch_failure_describe(tri_arena *arena, const launch_worker *workers, int count,
                            const char *host, launch_cause *cause, char *text, size_t size) {
    failure *failures = TRI_NEW_ARRAY(arena, failure, count);
    int found = collect_failures(arena, workers, count, failures);
    if (found == 0) return 0;
    *cause = failures[0].cause;
    if (is_told(failures, found)) cause->flags |= LAUNCH_TOLD;
    FILE *to = fmemopen(text, size, "w");
    TRI_ASSERT(to);
    print_failure(to, failures, found, 0, host);
    fclose(to);
    text[size - 1] = 0;
    return found;
}
