// The thread that advances operations while the caller computes, and raises the heartbeat.
#ifndef TRIREME_COMM_SHM_WORKER_H
#define TRIREME_COMM_SHM_WORKER_H

#include "comm/shm/state.h"

tri_status shm_worker_start(shm_family *family); // TRI_NO_MEMORY: there is no thread to be had
void shm_worker_stop(shm_family *family);        // harmless when there is none
void shm_worker_wake(shm_family *family);

#endif
