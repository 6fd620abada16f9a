// Memory of the host from which the device copies. An access behind its end faults, and copies from
// it are counted apart from copies from other memory.
#ifndef TRIREME_DEVICE_FAR_HOST_H
#define TRIREME_DEVICE_FAR_HOST_H

#include "base/status.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef struct far_host_memory far_host_memory;

typedef struct far_host {
    pthread_mutex_t lock;
    far_host_memory *list;
    int64_t from_list, from_others; // bytes that were copied in
} far_host;

tri_status far_host_add(far_host *host, size_t bytes, void **out);
void far_host_remove(far_host *host, void *memory);
// Counts the bytes of a copy to the device by where they come from: tests check that micro-batches
// are copied from this memory, because from other memory a GPU's copies do not run beside the host.
void far_host_count(far_host *host, const void *from, size_t bytes);

#endif
