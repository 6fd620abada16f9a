// Communicators over shared memory, as a backend of the progress base: the base has queue and
// threads, and asks this backend for one step of an operation at a time.
#ifndef TRIREME_COMM_SHM_COMMUNICATOR_H
#define TRIREME_COMM_SHM_COMMUNICATOR_H

#include "comm/shm/state.h"

extern const progress_backend shm_progress;

size_t shm_board_bytes(int size);
// Makes a communicator of the family (all communicators split from one). Takes over the segment,
// even if it fails. member[size] is copied.
tri_status shm_comm_create(shm_family *family, const shm_segment *segment, const int *member,
                           int rank, int size, shm_comm **out);

#endif
