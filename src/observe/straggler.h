// Finds a straggler from the times of all ranks' actions, because one slow rank makes all others
// wait, and looks from outside as if all were slow.
//
// Each rank's ledger has the count and time of each kind of action, without waits. The expected
// time of a rank's actions in a window of the last steps is the median of its peers (ranks that
// do the same work, tri_ledger_set_peers) or, for a rank without peers, the best time that it had
// itself. What a rank takes beyond that is time in which the others wait.
#ifndef TRIREME_OBSERVE_STRAGGLER_H
#define TRIREME_OBSERVE_STRAGGLER_H

#include "comm/comm.h"

typedef struct tri_straggler tri_straggler;

// Watches all ranks from rank 0. NULL if there is nothing to watch: for a single rank, on ranks
// other than 0, and where the others' ledgers cannot be read.
tri_straggler *tri_straggler_create(tri_comm *comm);
// Called after every step. Returns a line to log, valid until the next call, or NULL. A rank is
// reported if the others wait for it for more than TRI_STRAGGLER_PERCENT of the time of the last
// TRI_STRAGGLER_STEPS steps, or of more steps if these took less than a second, and once more when
// it keeps pace again. `straggler` may be NULL; the result is then NULL.
const char *tri_straggler_look(tri_straggler *straggler, int64_t step);
void tri_straggler_destroy(tri_straggler *straggler); // NULL allowed

#endif
