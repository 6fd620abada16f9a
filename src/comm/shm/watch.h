// Which ranks are alive and what they do, seen by a rank that waits for them.
#ifndef TRIREME_COMM_SHM_WATCH_H
#define TRIREME_COMM_SHM_WATCH_H

#include "comm/shm/state.h"

tri_status shm_watch_begin(shm_family *family); // TRI_NO_MEMORY
void shm_watch_end(shm_family *family);
// Reads all heartbeats and remembers when they changed.
void shm_observe(shm_family *family);
// For a rank that is blocked and has set `executing`: fails the communicator if a rank that it
// waits for is lost, or nothing has advanced for too long. Does nothing if it looked lately.
void shm_watch(shm_comm *comm);
void shm_clear_awaited(shm_family *family); // this rank no longer waits for any other

// Slot of the backend.
const tri_ledger_ring *shm_ledger_of(tri_comm *comm, int rank);

#endif
