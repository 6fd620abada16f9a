// Sleeping, and waking other processes: a futex in shared memory for each rank.
#ifndef TRIREME_COMM_SHM_BELL_H
#define TRIREME_COMM_SHM_BELL_H

#include "comm/shm/state.h"

void shm_ring(shm_family *family, int member);
void shm_ring_all(shm_comm *comm); // all other ranks of the communicator
// Announces that this rank may sleep, and returns what to pass to shm_sleep. Between the two calls
// the caller checks once more that what it waits for has not happened; no ring gets lost then.
uint32_t shm_sleep_begin(shm_family *family);
void shm_sleep(shm_family *family, uint32_t seen, int timeout_ms);
void shm_sleep_end(shm_family *family);
void shm_futex_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms);
void shm_futex_wake(_Atomic uint32_t *word);

#endif
