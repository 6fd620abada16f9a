// Finds a straggler from the times of all ranks' actions. This is needed because one slow rank
// makes all others wait, so that all look slow from outside.
//
// Each rank's ledger (its record of what it does) tells how many actions of each kind the rank has
// run, and how long they took. Waits are not counted. The expected time of a rank's actions in a
// window of the last steps is the median of its peers (ranks that do the same work,
// tri_ledger_set_peers) or, for a rank without peers, its own best time. The time that a rank takes
// beyond this is time in which the others wait. What rank 0 alone does is not compared; where it
// takes more than TRI_STRAGGLER_PERCENT of the time, one line says so.
#ifndef TRIREME_OBSERVE_STRAGGLER_H
#define TRIREME_OBSERVE_STRAGGLER_H

#include "comm/comm.h"

typedef struct tri_straggler tri_straggler;

// Starts to watch all ranks from rank 0. NULL if there is nothing to watch: with a single rank, on
// ranks other than 0, or if rank 0 cannot see what the others do.
tri_straggler *tri_straggler_create(tri_comm *comm);
// Called after every step. Returns a line to log, valid until the next call, or NULL. A rank is
// reported if the others wait for it for more than TRI_STRAGGLER_PERCENT of the time of the last
// TRI_STRAGGLER_STEPS steps. If so many steps take less than a second, more are compared. The rank
// is reported once more when it keeps pace again. If that alternates, each change has to last twice
// as long as the one before to be reported. `straggler` may be NULL; then the result is NULL.
const char *tri_straggler_look(tri_straggler *straggler, int64_t step);
void tri_straggler_destroy(tri_straggler *straggler); // NULL allowed

#endif
