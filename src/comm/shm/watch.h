// Finds which ranks of a family (all communicators split from one) are alive, and reads what they
// write about themselves into shared memory.
#ifndef TRIREME_COMM_SHM_WATCH_H
#define TRIREME_COMM_SHM_WATCH_H

#include "comm/shm/state.h"

tri_status shm_watch_begin(shm_family *family); // fails only with TRI_NO_MEMORY
void shm_watch_end(shm_family *family);

// Functions of progress_backend (comm/progress/state.h), by which ranks find out whether others are
// alive and what they do. shm_beat raises this rank's heartbeat and then calls shm_observe.
void shm_beat(progress_family *family);
// Reads all heartbeats and remembers when each last changed.
void shm_observe(progress_family *family);
const char *shm_loss(progress_comm *comm, int r);
const tri_ledger_ring *shm_ring_of(const progress_family *family, int job_rank);
void shm_set_awaited(progress_family *family, int job_rank);
int shm_awaited(const progress_family *family, int job_rank);

// The function `ledger_of` of tri_comm_backend.
const tri_ledger_ring *shm_ledger_of(tri_comm *comm, int rank);

#endif
