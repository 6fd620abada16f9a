// Catches the signals that ask a run to end, so that the run can save a checkpoint first.
#include "train/signals.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

static volatile sig_atomic_t seen;
static const int watched[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};
enum { WATCHED = sizeof watched / sizeof *watched };
static struct sigaction before[WATCHED];
static bool watching;

static void remember(int number) {
    if (number == SIGINT && seen == SIGINT) {
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
    }
    seen = number;
}

void tri_signals_watch(void) {
    struct sigaction action = {.sa_handler = remember, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    seen = 0;
    watching = true;
    for (int i = 0; i < WATCHED; i++) {
        sigaction(watched[i], &action, &before[i]);
        // The command nohup makes a process ignore SIGHUP, so that a run survives the end of its
        // terminal. Then the signal stays ignored.
        if (watched[i] == SIGHUP && before[i].sa_handler == SIG_IGN)
            sigaction(SIGHUP, &before[i], NULL);
    }
}

int tri_signals_seen(void) { return seen; }

void tri_signals_unwatch(void) {
    if (!watching) return;
    watching = false;
    for (int i = 0; i < WATCHED; i++) sigaction(watched[i], &before[i], NULL);
}
