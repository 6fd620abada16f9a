// The buffers in shared memory that this process maps. A region is one segment of shared memory
// with a buffer for each rank of the communicator that allocated it. These functions find in which
// buffer a pointer lies, so that other ranks can be told where to read.
#ifndef TRIREME_COMM_SHM_REGION_H
#define TRIREME_COMM_SHM_REGION_H

#include "comm/shm/state.h"

enum { SHM_PAGE = 4096 };

// How many bytes a segment needs for `size` buffers of `buffer_bytes`.
size_t shm_region_bytes(size_t buffer_bytes, int size);
// Creates the segment of a new region and gives the region an id. One rank calls this for all ranks
// of a communicator, and the others map the segment.
tri_status shm_region_make(shm_family *family, size_t bytes, shm_segment *segment,
                           shm_handle *handle);
char *shm_region_buffer(const shm_region *region); // finds this rank's buffer
// Adds a region, whose segment is mapped, to those of the family (all communicators split from
// one), which owns it from now on.
void shm_region_add(shm_family *family, shm_region *region);
void shm_regions_end(shm_family *family);

// Finds where `memory` lies, in a form that other ranks understand. Region 0: not all ranks of the
// communicator map all of `memory`, so the data have to be copied for them, through staging memory
// or, in a message, through a pipe.
shm_address shm_address_of(shm_comm *comm, const void *memory, size_t size_bytes);
// Turns an address into a pointer that is valid in this process.
void *shm_address_resolve(shm_family *family, shm_address address);

// The function `free` of tri_comm_backend.
void shm_free(tri_comm *comm, void *memory);

#endif
