// Carries out a collective operation as a state machine, so that it can stop wherever it would
// wait, and go on later.
#ifndef TRIREME_COMM_SHM_COLLECTIVE_H
#define TRIREME_COMM_SHM_COLLECTIVE_H

#include "comm/shm/state.h"

// Does one bounded step of a collective; PROGRESS_BLOCKED when it has to wait for another rank. The
// collective is over when current.state is SHM_DONE, or the communicator failed.
progress_result shm_collective_advance(shm_comm *comm, progress_item *item);
// True when the operation waits for `rank`, whom messages about a hang then name.
bool shm_collective_awaits(const shm_comm *comm, const progress_item *item, int rank);
// True when this rank's data went with its announcement, so that no other rank needs it any more
// and its thread may rest.
bool shm_collective_rests(const shm_comm *comm);
// True when `rank` has begun the next collective; then writes a description of it to `out`, for
// messages.
bool shm_collective_text(const shm_comm *comm, int rank, char *out, size_t size);
// True when `rank` has entered the meeting.
bool shm_reached(const shm_comm *comm, int rank, uint64_t meeting);

#endif
