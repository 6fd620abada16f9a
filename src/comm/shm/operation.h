// Start, test and wait: slots of the backend.
#ifndef TRIREME_COMM_SHM_OPERATION_H
#define TRIREME_COMM_SHM_OPERATION_H

#include "comm/shm/state.h"

tri_status shm_start(tri_comm *comm, const tri_comm_op *ops, int count, tri_comm_ticket *out);
bool shm_test(tri_comm *comm, tri_comm_ticket ticket);
tri_status shm_wait(tri_comm *comm, tri_comm_ticket ticket);

#endif
