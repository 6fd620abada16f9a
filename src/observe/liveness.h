// Finds the rank that stands still, from the ledgers of all ranks: a thread of each rank looks, so
// that it works while the rank itself stands still.
//
// A rank moves when it begins or ends an action of lane 0. Rank 0 names one that has not moved for
// TRI_STILL_AFTER_MS while others wait for it, or while no rank moves at all; a rank that waits for
// others is never the one. When no rank moves for the communicator's time limit, rank 0 ends the
// run; ranks that wait for one that stands still end it themselves (comm/comm.h).
#ifndef TRIREME_OBSERVE_LIVENESS_H
#define TRIREME_OBSERVE_LIVENESS_H

#include "comm/comm.h"

typedef struct tri_liveness tri_liveness;

typedef struct tri_liveness_config {
    tri_comm *comm;
    double timeout_s;
    // After the communicator has failed and this rank has still not moved for TRI_STILL_AFTER_MS:
    // reports `why` (tri_error_message) and ends the process. NULL: the rank is left as it is.
    void (*give_up)(tri_status why);
} tri_liveness_config;

// *out is NULL for one rank, and where the others' ledgers cannot be seen. The communicator
// outlives it. TRI_NO_MEMORY.
tri_status tri_liveness_start(const tri_liveness_config *config, tri_liveness **out);
void tri_liveness_stop(tri_liveness *liveness); // NULL allowed

// What the thread does, for tests. Without a thread:
tri_liveness *tri_liveness_create(const tri_liveness_config *config); // NULL as above
void tri_liveness_destroy(tri_liveness *liveness);
// Looks at all ranks at the time `now_ns`. A line to say, or NULL; valid until the next call. Each
// time that a rank stands still is told once.
const char *tri_liveness_look(tri_liveness *liveness, int64_t now_ns);

#endif
