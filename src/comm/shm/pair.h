// Sends and receives: those that follow each other in the queue advance side by side.
#ifndef TRIREME_COMM_SHM_PAIR_H
#define TRIREME_COMM_SHM_PAIR_H

#include "comm/shm/state.h"

// Advances the first current.pair_count operations of the queue.
shm_progress shm_pairs_advance(shm_comm *comm);
// The first of them that is not done and has `peer` as its other end; NULL: none.
const shm_pending *shm_pairs_waiting(shm_comm *comm, int peer);

#endif
