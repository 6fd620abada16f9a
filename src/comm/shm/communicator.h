// Communicators over shared memory, as a backend of the progress base (comm/progress): the base has
// a queue of operations and a thread, and asks this backend for one step of an operation at a time.
#ifndef TRIREME_COMM_SHM_COMMUNICATOR_H
#define TRIREME_COMM_SHM_COMMUNICATOR_H

#include "comm/shm/state.h"

extern const progress_backend shm_progress;

size_t shm_board_bytes(int size); // bytes of shared memory of a communicator of `size` ranks
// Makes a communicator of the family (all communicators split from one). Takes over the segment,
// which holds the communicator's board, even if it fails. member[r], the family's member that is
// rank r, is copied.
tri_status shm_comm_create(shm_family *family, const shm_segment *segment, const int *member,
                           int rank, int size, shm_comm **out);

#endif
