// The program `trireme`, except that the rank of VICTIM="RANK,KIND,COUNT,SIGNAL" sends itself the
// signal when it begins its COUNT-th action of that kind (FORWARD, REDUCE, …). SIGNAL 0: the thread
// that began the action waits for ever, reading a pipe that nobody writes. SIGNAL -N: it waits for
// N seconds. RANK -1: every rank. Several wishes are separated by semicolons.
#include "base/ledger.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/trireme.h>
#include <unistd.h>

enum { MOST_WISHES = 4 };

typedef struct wish {
    char kind[32];
    int count, signal;
    _Atomic int seen;
} wish;

static wish wishes[MOST_WISHES];
static int wish_count;

tri_ledger_mark __real_tri_ledger_begin(tri_ledger *ledger, const tri_ledger_action *action);
tri_ledger_mark __wrap_tri_ledger_begin(tri_ledger *ledger, const tri_ledger_action *action);

tri_ledger_mark __real_tri_ledger_enter(tri_ledger *ledger, const char *kind, const char *label);
tri_ledger_mark __wrap_tri_ledger_enter(tri_ledger *ledger, const char *kind, const char *label);

static void block(int seconds) {
    int ends[2];
    char byte;
    if (pipe(ends) < 0) _exit(99);
    struct pollfd end = {.fd = ends[0], .events = POLLIN};
    if (seconds > 0)
        poll(&end, 1, seconds * 1000);
    else if (read(ends[0], &byte, 1) <= 0)
        _exit(99);
}

// True if the action has this kind. An action that only issues work to a device has the
// kind TRI_LEDGER_ISSUE; its label then begins with the kind of the work.
static bool is_kind(const tri_ledger_action *action, const char *kind) {
    size_t length = strlen(kind);
    if (!strcmp(action->kind, kind)) return true;
    return action->kind == TRI_LEDGER_ISSUE && action->label &&
           !strncmp(action->label, kind, length) &&
           (action->label[length] == ' ' || action->label[length] == 0);
}

static void suffer(const tri_ledger_action *action) {
    for (int i = 0; i < wish_count; i++) {
        wish *w = &wishes[i];
        if (!is_kind(action, w->kind) || atomic_fetch_add(&w->seen, 1) + 1 != w->count) continue;
        if (w->signal > 0)
            kill(getpid(), w->signal);
        else
            block(-w->signal);
    }
}

tri_ledger_mark __wrap_tri_ledger_begin(tri_ledger *ledger, const tri_ledger_action *action) {
    tri_ledger_mark mark = __real_tri_ledger_begin(ledger, action);
    suffer(action);
    return mark;
}

tri_ledger_mark __wrap_tri_ledger_enter(tri_ledger *ledger, const char *kind, const char *label) {
    tri_ledger_mark mark = __real_tri_ledger_enter(ledger, kind, label);
    suffer(&(tri_ledger_action){.kind = kind});
    return mark;
}

int main(int argc, char **argv) {
    const char *text = getenv("VICTIM"), *rank = getenv("RANK");
    if (!rank) rank = getenv("SLURM_PROCID");
    if (!rank) rank = "0"; // a run of one rank without a launcher
    for (; text && wish_count < MOST_WISHES; text = strchr(text, ';'), text += text != NULL) {
        wish *w = &wishes[wish_count];
        int of, found = sscanf(text, "%d,%31[^,],%d,%d", &of, w->kind, &w->count, &w->signal);
        wish_count += found == 4 && (of < 0 || of == atoi(rank));
    }
    return tri_main(argc, argv, NULL);
}
