// Lets threads sleep until another process wakes them: each rank has a bell in shared memory.
#ifndef TRIREME_COMM_SHM_BELL_H
#define TRIREME_COMM_SHM_BELL_H

#include "comm/shm/state.h"

void shm_ring(shm_family *family, int member);
// Rings the bells of all other ranks of the communicator.
void shm_ring_all(shm_comm *comm);

// The functions of progress_backend with which threads sleep and are woken.
uint32_t shm_sleep_begin(progress_family *family);
void shm_sleep(progress_family *family, uint32_t seen, int timeout_ms);
void shm_sleep_end(progress_family *family);
void shm_wake(progress_family *family);
void shm_wake_all(progress_family *family);

#endif
