// Finds the rank that the others wait for, from what the actions of every rank take.
//
// Each rank's ledger has the count and time of each kind of action, without waits. Over a window of
// the last steps, a rank is expected to take, for the actions that it did, the median time of the
// other ranks of its group (tri_ledger_set_group: those that do the same work); a rank that is
// alone in its group, the least time that it took itself. What it takes beyond that, the others
// wait.
#ifndef TRIREME_OBSERVE_STRAGGLER_H
#define TRIREME_OBSERVE_STRAGGLER_H

#include "comm/comm.h"

typedef struct tri_straggler tri_straggler;

// For rank 0 of the whole run. NULL where there is nothing to watch: on one rank, on other ranks,
// and where the others' ledgers cannot be seen.
tri_straggler *tri_straggler_create(tri_comm *comm);
// After every step. A line to say, or NULL: a rank makes the others wait for more than
// TRI_STRAGGLER_PERCENT of the time of the last TRI_STRAGGLER_STEPS steps (a second of them at
// least), once until it keeps pace again, which is said too. Valid until the next call. A NULL
// straggler says nothing.
const char *tri_straggler_look(tri_straggler *straggler, int64_t step);
void tri_straggler_destroy(tri_straggler *straggler); // NULL allowed

#endif
