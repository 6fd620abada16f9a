// Device memory that NCCL allocates, if the installed version can. An operation of a communicator
// of NCCL registers the memory that it uses with the communicator, if that was not done before. For
// registered memory, the communicator needs no buffers of its own.
#ifndef TRIREME_COMM_NCCL_MEMORY_H
#define TRIREME_COMM_NCCL_MEMORY_H

#include "device/cuda/internal.h"

// Allocates zeroed memory. If NCCL cannot allocate memory, the device does.
tri_status nccl_memory_alloc(cuda_device *device, size_t size_bytes, void **out);
void nccl_memory_free(cuda_device *device, void *memory); // NULL allowed
// Registers with the communicator the memory that these calls use.
void nccl_memory_register(cuda_device *device, cuda_nccl *nccl, const cuda_transfer *calls,
                          int count);
// Deregisters all memory that is registered with the communicator. Has to be called before the
// communicator is closed or, with `aborts`, aborted.
void nccl_memory_forget(cuda_device *device, cuda_nccl *nccl, bool aborts);

#endif
