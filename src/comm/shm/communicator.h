// Communicators of a family: creating, splitting and closing them.
#ifndef TRIREME_COMM_SHM_COMMUNICATOR_H
#define TRIREME_COMM_SHM_COMMUNICATOR_H

#include "comm/shm/state.h"

size_t shm_board_bytes(int size);
// Takes the segment over, also when it fails. world_rank[size] is copied.
tri_status shm_comm_create(shm_family *family, const shm_segment *segment, const int *world_rank,
                           int rank, int size, shm_comm **out);
void shm_close(tri_comm *comm); // the last one of a family ends the family
void shm_family_release(shm_family *family);

#endif
