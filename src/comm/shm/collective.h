// A collective operation as a state machine.
#ifndef TRIREME_COMM_SHM_COLLECTIVE_H
#define TRIREME_COMM_SHM_COLLECTIVE_H

#include "comm/shm/state.h"

// One bounded step; SHM_BLOCKED when it has to wait for another rank. It is over when
// current.state is SHM_DONE, or the communicator failed.
shm_progress shm_collective_advance(shm_comm *comm, shm_pending *pending);
// True when the operation at the head of the queue waits for `rank`.
bool shm_collective_awaits(shm_comm *comm, int rank);
// True when `rank` has entered the meeting.
bool shm_reached(const shm_comm *comm, int rank, uint64_t meeting);

#endif
