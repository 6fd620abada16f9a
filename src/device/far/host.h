// The host memory that alloc_host of the test device `far` gives. An access behind its end faults,
// and copies from it to the device are counted separately from copies from other memory.
#ifndef TRIREME_DEVICE_FAR_HOST_H
#define TRIREME_DEVICE_FAR_HOST_H

#include "base/status.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef struct far_host_memory far_host_memory;

typedef struct far_host {
    pthread_mutex_t lock;
    far_host_memory *list; // all memory that alloc_host gave
    // How many bytes were copied to the device: from memory in `list`, and from other memory.
    int64_t from_list, from_others;
} far_host;

tri_status far_host_add(far_host *host, size_t bytes, void **out); // allocates
void far_host_remove(far_host *host, void *memory);                // frees
// Counts the bytes of a copy to the device by the memory from which they come. Tests use this to
// check that micro-batches are copied from memory of alloc_host: on a GPU, copies from other memory
// would block the host.
void far_host_count(far_host *host, const void *from, size_t bytes);

#endif
