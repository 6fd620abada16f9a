// Catches the signals that ask a run to end, so that the run can save a checkpoint first.
#include "train/signals.h"

#include "base/status.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t seen, announced, has_started;
// Signals by which batch systems announce the end of a job's time.
static const int announcing[] = {SIGUSR1, SIGUSR2, SIGXCPU};
static const int watched[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGXCPU, SIGHUP};
enum { WATCHED = sizeof watched / sizeof *watched, LINE_BYTES = 256 };
static struct sigaction before[WATCHED];
static bool watching, tells, keeps_announced;
static char last_link[PATH_MAX];
static void (*end_process)(int code);
static const char *volatile awaited = "the running step";

// The functions below run in a signal handler, so they call only write() and its like.

static void add(char line[LINE_BYTES], const char *text) {
    strncat(line, text, LINE_BYTES - 1 - strlen(line));
}

static void tell(const char *first, const char *then, const char *last) {
    char line[LINE_BYTES] = "";
    // Starts a new line on a terminal, behind the ^C that it has shown.
    if (isatty(STDERR_FILENO)) add(line, "\n");
    add(line, "trireme: ");
    add(line, first);
    add(line, then);
    add(line, last);
    add(line, "\n");
    if (tells && write(STDERR_FILENO, line, strlen(line)) < 0) return;
}

static void end_by(int number) {
    signal(number, SIG_DFL);
    raise(number);
}

static void end_at_start(int number) {
    bool has_checkpoint = access(last_link, F_OK) == 0;
    if (!end_process || (number == SIGINT && !has_checkpoint)) {
        end_by(number);
        return;
    }
    tell("stopped by a signal before a step; ",
         has_checkpoint ? "its checkpoint stays: " : "nothing is saved yet: ",
         has_checkpoint ? "run the same command again to resume"
                        : "run the same command again to begin");
    end_process(tri_status_exit_code(TRI_STOPPED));
}

static bool announces(int number) {
    for (size_t i = 0; i < sizeof announcing / sizeof *announcing; i++)
        if (announcing[i] == number) return true;
    return false;
}

static void remember(int number) {
    int saved_errno = errno;
    // A signal that ends the process does so when this handler returns.
    if (!has_started && !(keeps_announced && announces(number)))
        end_at_start(number);
    else if (number == SIGINT && seen == SIGINT)
        end_by(number);
    else if (number == SIGINT)
        tell("Ctrl-C: waiting for ", awaited, ", then for a checkpoint; Ctrl-C again ends at once");
    seen = number;
    announced = announced || announces(number);
    errno = saved_errno;
}

void tri_signals_watch_start(const char *last, void (*end)(int code), bool who_tells, bool keeps) {
    struct sigaction action = {.sa_handler = remember, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    seen = announced = has_started = 0;
    watching = true;
    tells = who_tells;
    keeps_announced = keeps;
    end_process = end;
    snprintf(last_link, sizeof last_link, "%s", last); // a run rejects a path that is too long
    for (int i = 0; i < WATCHED; i++) {
        sigaction(watched[i], &action, &before[i]);
        // The command nohup makes a process ignore SIGHUP, so that a run survives the end of its
        // terminal. Then the signal stays ignored.
        if (watched[i] == SIGHUP && before[i].sa_handler == SIG_IGN)
            sigaction(SIGHUP, &before[i], NULL);
    }
}

void tri_signals_watch(void) { has_started = 1; }

int tri_signals_seen(void) { return seen; }

bool tri_signals_job_ends(void) { return announced; }

const char *tri_signals_wait_for(const char *what) {
    const char *earlier = awaited;
    awaited = what;
    return earlier;
}

void tri_signals_unwatch(void) {
    if (!watching) return;
    watching = false;
    for (int i = 0; i < WATCHED; i++) sigaction(watched[i], &before[i], NULL);
}
