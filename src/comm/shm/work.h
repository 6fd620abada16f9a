// The work of a collective: between the ranks' own buffers where all of them lie in shared memory,
// else window by window through staging memory.
#ifndef TRIREME_COMM_SHM_WORK_H
#define TRIREME_COMM_SHM_WORK_H

#include "comm/shm/state.h"

static inline shm_entry *shm_entry_of(const shm_comm *comm, int rank, uint64_t meeting) {
    return &comm->board->seats[rank].entries[meeting & 1];
}

// Small operations, whose data lie in the announced entries: send puts this rank's data into its
// entry, apply computes the result from the entries of all ranks.
void shm_eager_send(shm_comm *comm, const tri_comm_op *op, shm_entry *entry);
void shm_eager_apply(shm_comm *comm, const tri_comm_op *op);

// True if every rank's buffers lie in shared memory, so that no staging is needed; then sets
// current.from and current.to.
bool shm_addresses_known(shm_comm *comm);
int64_t shm_staging_capacity(const shm_comm *comm, const tri_comm_op *op); // elements of a window
void shm_staging_use(shm_comm *comm); // sets current.from and current.to to the staging memory
void shm_staging_fill(shm_comm *comm, const tri_comm_op *op);
void shm_staging_drain(shm_comm *comm, const tri_comm_op *op);

// Does one chunk of an all-reduce; PROGRESS_IDLE when every chunk has been begun.
progress_result shm_reduce_advance(shm_comm *comm, const tri_comm_op *op);
bool shm_reduce_finished(const shm_comm *comm, const tri_comm_op *op);
// Does one chunk of any other collective; PROGRESS_IDLE when this rank has all that it receives.
progress_result shm_pull_advance(shm_comm *comm, const tri_comm_op *op);

#endif
