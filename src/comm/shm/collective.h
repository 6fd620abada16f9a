// Carries out a collective over shared memory as a state machine, so that it can stop wherever it
// would have to wait, and continue later. Ranks announce a collective by an entry (shm_entry) in
// shared memory.
#ifndef TRIREME_COMM_SHM_COLLECTIVE_H
#define TRIREME_COMM_SHM_COLLECTIVE_H

#include "comm/shm/state.h"

// Does one bounded step of a collective. PROGRESS_BLOCKED: it has to wait for another rank. The
// collective is over when current.state is SHM_DONE or the communicator has failed.
progress_result shm_collective_advance(shm_comm *comm, progress_item *item);
// True if the operation waits for `rank`, so that messages about a hang can name that rank.
bool shm_collective_awaits(const shm_comm *comm, const progress_item *item, int rank);
// True if this rank's data are so small that they lie in the entry by which it announced the
// collective. Then the other ranks need nothing more from this rank, and no thread has to advance
// the collective.
bool shm_collective_rests(const shm_comm *comm);
// True if `rank` has already announced the next collective of the communicator, which this rank has
// not announced yet. Then writes that collective to `out`, as "KIND 'label'", for messages.
bool shm_collective_text(const shm_comm *comm, int rank, char *out, size_t size);
// True when `rank` has entered the meeting of that number. Meetings are points that all ranks of a
// communicator pass together; each communicator counts its own.
bool shm_reached(const shm_comm *comm, int rank, uint64_t meeting);

#endif
