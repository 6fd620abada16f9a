// The memory of the test double of NCCL: what ncclMemAlloc gives, and the communicators with which
// it is registered. A misuse ends the program.
#ifndef TRIREME_TESTS_EMULATED_GPU_NCCL_MEMORY_H
#define TRIREME_TESTS_EMULATED_GPU_NCCL_MEMORY_H

#include <nccl.h>
#include <stddef.h>

// Ends the program after a misuse of NCCL that on a GPU might pass unnoticed, or only be slow.
void nccl_refuse(const char *why);

ncclResult_t nccl_memory_alloc(void **out, size_t size); // filled with poison
ncclResult_t nccl_memory_free(void *at);
void nccl_memory_register(ncclComm_t comm, void *at, size_t size);
void nccl_memory_deregister(ncclComm_t comm, void *at);
// Deregisters all memory of the communicator.
void nccl_memory_forget(ncclComm_t comm);
// Checks that memory of ncclMemAlloc is registered with the communicator: it is slow otherwise.
void nccl_memory_check(ncclComm_t comm, const void *at);
// Checks that no memory is registered with the communicator, which is closed now.
void nccl_memory_check_end(ncclComm_t comm);

#endif
