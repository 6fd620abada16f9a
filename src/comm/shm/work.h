// Does the work of a collective: copies and sums, directly between the ranks' buffers if all of
// them lie in shared memory, else through staging memory, with as many elements at a time as fit
// there (a window). Where each rank's data of a window lie, and where its results go, is in
// current.from and current.to (shm_current).
#ifndef TRIREME_COMM_SHM_WORK_H
#define TRIREME_COMM_SHM_WORK_H

#include "comm/shm/state.h"

static inline shm_entry *shm_entry_of(const shm_comm *comm, int rank, uint64_t meeting) {
    return &comm->board->seats[rank].entries[meeting & 1];
}

// The data of a small operation lie in the entry by which each rank announces it. shm_eager_send
// puts this rank's data into its entry; shm_eager_apply computes the result from the entries of all
// ranks.
void shm_eager_send(shm_comm *comm, const tri_comm_op *op, shm_entry *entry);
void shm_eager_apply(shm_comm *comm, const tri_comm_op *op);

// True if every rank's buffers lie in shared memory, so that no staging is needed. Then it sets
// current.from and current.to.
bool shm_addresses_known(shm_comm *comm);
// How many elements of the operation fit into staging memory at one time.
int64_t shm_staging_capacity(const shm_comm *comm, const tri_comm_op *op);
// Sets current.from and current.to to the staging memory.
void shm_staging_use(shm_comm *comm);
// Copy this rank's data of the window into its staging memory, and the results of an all-reduce out
// of it.
void shm_staging_fill(shm_comm *comm, const tri_comm_op *op);
void shm_staging_drain(shm_comm *comm, const tri_comm_op *op);

// Reduces one chunk of an all-reduce. PROGRESS_IDLE: every chunk has been begun, by this rank or
// another one.
progress_result shm_reduce_advance(shm_comm *comm, const tri_comm_op *op);
// True if every chunk of the all-reduce is reduced.
bool shm_reduce_finished(const shm_comm *comm, const tri_comm_op *op);
// Copies or reduces one chunk of a collective other than an all-reduce. PROGRESS_IDLE: this rank
// has everything that it receives.
progress_result shm_pull_advance(shm_comm *comm, const tri_comm_op *op);

#endif
