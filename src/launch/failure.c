#include "launch/failure.h"

#include "base/log.h"
#include "base/os.h"
#include "base/tree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_STOPPED = 75, SHOWN_LINES = 30, SHOWN_WORKERS = 16 };

typedef struct failure {
    const launch_worker *worker;
    launch_error error;
    double seconds;
} failure;

// A time as text or number; 0 where there is none.
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
    const tri_tree *words = message;
    if (message && message->kind == TRI_TREE_MAP) {
        words = tri_tree_get(message, "message");
        out->seconds = seconds_of(tri_tree_find(message, "extraInfo.timestamp"));
        tri_tree_to_bool(tri_tree_find(message, "extraInfo.said"), &out->is_said);
        int64_t code;
        if (tri_tree_to_int(tri_tree_get(message, "errorCode"), &code) && code > 0 && code < 256)
            out->code = (int)code;
    }
    if (!words || words->kind != TRI_TREE_SCALAR)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: has no message", file);
    out->message = words->text;
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
    tri_status status = tri_os_read_file(w->error_file, TRI_MAX_ERROR_FILE_BYTES, &text, &size);
    if (status == TRI_OK) {
        status = launch_error_parse(arena, text, size, w->error_file, &error);
        free(text);
    }
    if (status != TRI_OK) tri_log(TRI_LOG_WARNING, "%s", tri_error_message());
    return error;
}

static bool crashed(const launch_worker *w) { return w->signal != 0 && w->signal != SIGABRT; }

static bool is_earlier(const failure *a, const failure *b) {
    if (a->worker->was_stopped != b->worker->was_stopped) return a->worker->was_stopped;
    if (floor(a->seconds) != floor(b->seconds)) return a->seconds < b->seconds;
    if (a->worker->asked_to_end != b->worker->asked_to_end) return b->worker->asked_to_end;
    if (crashed(a->worker) != crashed(b->worker)) return crashed(a->worker);
    return a->worker->place < b->worker->place;
}

// Workers that ended because the others had to be stopped are no failures, unless they had written
// down an error of their own before, or the others had waited for them.
static int collect(tri_arena *arena, const launch_worker *workers, int count, failure *out) {
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (!launch_worker_failed(&workers[i])) continue;
        failure f = {&workers[i], read_error(arena, &workers[i]), 0};
        if (workers[i].was_stopped)
            f.error = (launch_error){0}; // what it wrote is a consequence
        else if (workers[i].asked_to_end && !f.error.message)
            continue;
        f.seconds = f.error.seconds > 0 ? f.error.seconds : (double)workers[i].ended_ns * 1e-9;
        int at = found++;
        for (; at > 0 && is_earlier(&f, &out[at - 1]); at--) out[at] = out[at - 1];
        out[at] = f;
    }
    return found;
}

// Text from a worker: its lines are indented, and control characters do not reach the terminal.
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

// The worker's standard error is the launcher's, or goes there.
static bool is_shown(const launch_worker *w) {
    const launch_stream *error = &w->streams[LAUNCH_STREAMS - 1];
    return error->goes_to_console;
}

// The message without the name of its kind, which ranks need not agree on.
static const char *sentence_of(const failure *f) {
    const char *colon = strstr(f->error.message, ": ");
    return !strncmp(f->error.message, "TRI_", 4) && colon ? colon + 2 : f->error.message;
}

// Whether the same sentence stands elsewhere: on the console, by any worker, or with an earlier
// failure, which is the one that tells more.
static bool is_printed(const failure *failures, int count, int index) {
    const char *own = sentence_of(&failures[index]);
    for (int i = 0; i < count; i++) {
        const failure *f = &failures[i];
        bool is_elsewhere = i < index || (f->error.is_said && is_shown(f->worker));
        if (is_elsewhere && f->error.message && !strcmp(sentence_of(f), own)) return true;
    }
    return false;
}

static void print_failure(FILE *to, const failure *failures, int count, int index,
                          const char *host) {
    const failure *f = &failures[index];
    const launch_worker *w = f->worker;
    char how[96], when[32];
    if (w->was_stopped)
        snprintf(how, sizeof how, "stood still, stopped by a signal, until the others failed");
    else if (w->signal)
        snprintf(how, sizeof how, "ended by %s", launch_signal_name(w->signal));
    else
        snprintf(how, sizeof how, "exit code %d", w->exit_code);
    time_t seconds = (time_t)f->seconds;
    struct tm local;
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r(&seconds, &local));
    fprintf(to, "  rank %d (local rank %d) on %s, pid %ld: %s at %s\n", w->rank, w->local_rank,
            host, (long)w->pid, how, when);
    if (f->error.message) {
        if (!is_printed(failures, count, index))
            print_text(to, f->error.message);
        else if (f->error.is_said)
            fprintf(to, "      its message stands above\n");
    } else if (w->was_stopped) {
        fprintf(to, "      by SIGSTOP, a debugger, or job control\n");
    } else if (w->signal == SIGKILL) {
        fprintf(to,
                "      killed from outside: by hand, the batch system, or for lack of memory\n");
    } else {
        fprintf(to, "      no error file; its own output tells more\n");
    }
    for (int i = LAUNCH_STREAMS - 1; i >= 0; i--)
        if (w->streams[i].path[0]) fprintf(to, "      log: %s\n", w->streams[i].path);
}

const launch_worker *launch_failure_cause(tri_arena *arena, const launch_worker *workers,
                                          int count) {
    failure *failures = TRI_NEW_ARRAY(arena, failure, count);
    return collect(arena, workers, count, failures) > 0 ? failures[0].worker : NULL;
}

const launch_worker *launch_failure_report(tri_arena *arena, const launch_worker *workers,
                                           int count, const char *host, int attempt, int attempts) {
    failure *failures = TRI_NEW_ARRAY(arena, failure, count);
    int found = collect(arena, workers, count, failures);
    if (found == 0) return NULL;
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    TRI_ASSERT(to);
    fprintf(to, "trireme: run failed: %d of %d workers, attempt %d of %d\n", found, count, attempt,
            attempts);
    int shown = found < SHOWN_WORKERS ? found : SHOWN_WORKERS;
    if (found > 1) fprintf(to, "later failures, most of them consequences:\n");
    for (int i = shown - 1; i > 0; i--) print_failure(to, failures, found, i, host);
    if (found > shown) fprintf(to, "  … and %d more\n", found - shown);
    fprintf(to, "root cause, the first to fail:\n");
    print_failure(to, failures, found, 0, host);
    fclose(to);
    // Standard error closed or full: the exit code still tells.
    if (tri_os_write_all(STDERR_FILENO, text, size, "standard error") !=
        TRI_OK) { /* nobody reads */
    }
    free(text);
    return failures[0].worker;
}
