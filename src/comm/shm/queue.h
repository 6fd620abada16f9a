// The operations of a communicator in order, and the right to advance them.
//
// The thread that has set `executing` may advance the operation at the head of the queue: one that
// waits for it, or the worker while none waits. Both advance it in bounded steps.
#ifndef TRIREME_COMM_SHM_QUEUE_H
#define TRIREME_COMM_SHM_QUEUE_H

#include "comm/shm/state.h"

// TRI_NO_MEMORY. Needs `lock`.
tri_status shm_queue_push(shm_comm *comm, const tri_comm_op *ops, int count);
// One bounded step of the operation at the head. The caller has set `executing`.
shm_progress shm_advance(shm_comm *comm);
bool shm_try_execute(shm_comm *comm);
void shm_end_execute(shm_comm *comm);
// The same for a caller that does not wait itself: wakes a thread of this process that went to
// sleep because it found the caller executing.
void shm_end_execute_and_wake(shm_comm *comm);
// True when all of the ticket's group is done. Needs `lock`, or to have set `executing`.
bool shm_queue_group_done(shm_comm *comm, uint64_t ticket);

#endif
