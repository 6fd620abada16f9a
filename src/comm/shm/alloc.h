// Maps a segment of shared memory into the address spaces of all ranks of a communicator, so that
// they can read each other's buffers.
#ifndef TRIREME_COMM_SHM_ALLOC_H
#define TRIREME_COMM_SHM_ALLOC_H

#include "comm/shm/state.h"

// The argument `maker` of a rank that gets no segment: when a communicator is split, such a rank
// belongs to none of the new groups. It has to call shm_map_on_all too, because that is collective.
enum { SHM_NO_MAKER = -1 };

// Maps, on this rank, the segment that rank `maker` has created. Collective. On the maker,
// `created` is the status with which it created the segment, and `handle` describes the segment. If
// one rank fails, every rank fails and keeps no mapping, because all have to use the same memory.
tri_status shm_map_on_all(shm_comm *comm, int maker, tri_status created, const shm_handle *handle,
                          shm_segment *segment, const char *label);

// The function `alloc` of tri_comm_backend.
tri_status shm_alloc(tri_comm *comm, size_t size_bytes, void **out);

#endif
