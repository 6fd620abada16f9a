// The first failure of any communicator ends all communicators of the family.
#ifndef TRIREME_COMM_SHM_FAILURE_H
#define TRIREME_COMM_SHM_FAILURE_H

#include "comm/shm/state.h"

// Records the failure for all ranks and wakes them. A later failure than the first is dropped.
void shm_fail(shm_comm *comm, tri_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool shm_has_failed(const shm_comm *comm);
// Fails with the recorded status and text; only after shm_has_failed.
tri_status shm_failure_status(shm_comm *comm);

// Slots of the backend.
tri_status shm_failed(tri_comm *comm);
void shm_abort(tri_comm *comm, const char *why);

#endif
