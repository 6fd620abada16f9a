// The program, but that the rank of VICTIM="RANK KIND COUNT SIGNAL" sends itself the signal as soon
// as it has begun its COUNT-th action of that kind.
#include "base/ledger.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/trireme.h>
#include <unistd.h>

static struct {
    char kind[32];
    int count, signal;
    _Atomic int seen;
} victim;

tri_ledger_mark __real_tri_ledger_begin(tri_ledger *ledger, const tri_ledger_action *action);
tri_ledger_mark __wrap_tri_ledger_begin(tri_ledger *ledger, const tri_ledger_action *action);

tri_ledger_mark __wrap_tri_ledger_begin(tri_ledger *ledger, const tri_ledger_action *action) {
    tri_ledger_mark mark = __real_tri_ledger_begin(ledger, action);
    if (victim.count && !strcmp(action->kind, victim.kind) &&
        atomic_fetch_add(&victim.seen, 1) + 1 == victim.count)
        kill(getpid(), victim.signal);
    return mark;
}

int main(int argc, char **argv) {
    const char *wish = getenv("VICTIM"), *rank = getenv("RANK");
    int of = -1, count = 0, number = 0;
    char kind[32];
    if (wish && rank && sscanf(wish, "%d %31s %d %d", &of, kind, &count, &number) == 4 &&
        of == atoi(rank)) {
        memcpy(victim.kind, kind, sizeof kind);
        victim.count = count;
        victim.signal = number;
    }
    return tri_main(argc, argv, NULL);
}
