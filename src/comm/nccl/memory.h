// Memory of the device that NCCL allocates, where it can, and of which its communicators are told:
// then they need no buffers of their own in between. A communicator is told of memory when an
// operation touches it first.
#ifndef TRIREME_COMM_NCCL_MEMORY_H
#define TRIREME_COMM_NCCL_MEMORY_H

#include "device/cuda/internal.h"

// Zeroed, as the device's own.
tri_status nccl_memory_alloc(cuda_device *device, size_t size_bytes, void **out);
void nccl_memory_free(cuda_device *device, void *memory); // NULL allowed
// Tells the communicator of the memory that the calls touch.
void nccl_memory_register(cuda_device *device, cuda_nccl *nccl, const cuda_transfer *calls,
                          int count);
// Before the communicator is closed, or aborted.
void nccl_memory_forget(cuda_device *device, cuda_nccl *nccl, bool aborts);

#endif
