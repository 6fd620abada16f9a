// Finds a rank that is stuck, from the ledgers of all ranks (the records of what they do). Each
// rank has a thread for this, which also works while the rank itself is stuck.
//
// A rank "moves" when the thread that runs its steps begins or ends an action, which the ledger
// records in the compute lane (base/ledger.h). Rank 0 reports a rank that has not moved for
// TRI_STILL_AFTER_MS while others wait for it, or while no rank moves at all; it never reports a
// rank that waits for others. If no rank moves for the communicator's time limit, and one of them
// is stuck in something else than a wait, rank 0 ends the run. Ranks that wait for a stuck rank end
// by their own time limit (comm/comm.h).
#ifndef TRIREME_OBSERVE_LIVENESS_H
#define TRIREME_OBSERVE_LIVENESS_H

#include "comm/comm.h"

typedef struct tri_liveness tri_liveness;

typedef struct tri_liveness_config {
    tri_comm *comm;
    double timeout_s;
    // Called when the communicator has failed and this rank has not moved for TRI_STILL_AFTER_MS
    // since then: reports `why` (and tri_error_message) and ends the process. NULL: the process is
    // not ended.
    void (*give_up)(tri_status why);
} tri_liveness_config;

// Starts the thread. *out is NULL if there is nothing to watch: with a single rank, or if this rank
// cannot see what the others do. The communicator must outlive the thread. TRI_NO_MEMORY.
tri_status tri_liveness_start(const tri_liveness_config *config, tri_liveness **out);
void tri_liveness_stop(tri_liveness *liveness); // NULL allowed

// The functions below are for tests. They search for stuck ranks without the thread, at times that
// the test sets.

// *out is NULL if there is nothing to watch, as with tri_liveness_start. TRI_NO_MEMORY.
tri_status tri_liveness_create(const tri_liveness_config *config, tri_liveness **out);
void tri_liveness_destroy(tri_liveness *liveness);
// Looks at all ranks at the time `now_ns`. Returns a line to log, valid until the next call, or
// NULL. A stuck rank is reported once, until it moves again.
const char *tri_liveness_look(tri_liveness *liveness, int64_t now_ns);

#endif
