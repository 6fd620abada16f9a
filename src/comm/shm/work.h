// The work of a collective: directly between the ranks' buffers if all of them lie in shared
// memory, else through staging memory, with as many elements at a time as fit there (a window).
#ifndef TRIREME_COMM_SHM_WORK_H
#define TRIREME_COMM_SHM_WORK_H

#include "comm/shm/state.h"

static inline shm_entry *shm_entry_of(const shm_comm *comm, int rank, uint64_t meeting) {
    return &comm->board->seats[rank].entries[meeting & 1];
}

// Small operations, whose data lie in the announced entries. shm_eager_send puts this rank's data
// into its entry; shm_eager_apply computes the result from the entries of all ranks.
void shm_eager_send(shm_comm *comm, const tri_comm_op *op, shm_entry *entry);
void shm_eager_apply(shm_comm *comm, const tri_comm_op *op);

// True if every rank's buffers lie in shared memory, so that no staging is needed. Then it sets
// current.from and current.to.
bool shm_addresses_known(shm_comm *comm);
// How many elements of the operation fit into staging memory at one time.
int64_t shm_staging_capacity(const shm_comm *comm, const tri_comm_op *op);
// Sets current.from and current.to to the staging memory.
void shm_staging_use(shm_comm *comm);
void shm_staging_fill(shm_comm *comm, const tri_comm_op *op);
void shm_staging_drain(shm_comm *comm, const tri_comm_op *op);

// Does one chunk of an all-reduce. PROGRESS_IDLE: every chunk has been begun, by this rank or
// another one.
progress_result shm_reduce_advance(shm_comm *comm, const tri_comm_op *op);
bool shm_reduce_finished(const shm_comm *comm, const tri_comm_op *op);
// Does one chunk of a collective other than an all-reduce. PROGRESS_IDLE: this rank has everything
// that it receives.
progress_result shm_pull_advance(shm_comm *comm, const tri_comm_op *op);

#endif
