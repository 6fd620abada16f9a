// Device memory that NCCL allocates, where it can. NCCL's communicators need no buffers of their
// own for memory that is registered with them. Memory is registered when an operation of the
// communicator first uses it.
#ifndef TRIREME_COMM_NCCL_MEMORY_H
#define TRIREME_COMM_NCCL_MEMORY_H

#include "device/cuda/internal.h"

// Allocates zeroed memory, as the device's own alloc does.
tri_status nccl_memory_alloc(cuda_device *device, size_t size_bytes, void **out);
void nccl_memory_free(cuda_device *device, void *memory); // NULL allowed
// Registers with the communicator the memory that these calls use.
void nccl_memory_register(cuda_device *device, cuda_nccl *nccl, const cuda_transfer *calls,
                          int count);
// Deregisters all memory that is registered with the communicator. To be called before that is
// closed or, with `aborts`, aborted.
void nccl_memory_forget(cuda_device *device, cuda_nccl *nccl, bool aborts);

#endif
