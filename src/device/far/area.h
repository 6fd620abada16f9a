// Memory of the device `far`, which behaves like a GPU in tests. The host gets addresses at which
// nothing is mapped, so that it faults if it uses device memory. The kernels run on the inner
// device, the CPU, in memory that the host does not know; far_translate finds it.
#ifndef TRIREME_DEVICE_FAR_AREA_H
#define TRIREME_DEVICE_FAR_AREA_H

#include "device/device.h"

#include <pthread.h>

// One allocation of device memory.
typedef struct far_area {
    char *address; // the address that the host knows
    char *memory;  // the memory on the inner device
    size_t bytes;  // the size that was asked for
    size_t mapped; // how many bytes are reserved at `address`
} far_area;

typedef struct far_areas {
    pthread_mutex_t lock;
    far_area *items; // sorted by address
    int count, capacity;
} far_areas;

// Allocates memory on the inner device, and sets *out to the address that stands for it.
tri_status far_areas_add(far_areas *areas, tri_device *inner, size_t bytes, void **out);
// Frees what far_areas_add has allocated; `address` is the one that it gave.
void far_areas_remove(far_areas *areas, tri_device *inner, void *address);
// Frees all areas, when the device is closed.
void far_areas_end(far_areas *areas, tri_device *inner);
// Translates an address that the host knows, which may lie inside an allocation, to the address on
// the inner device; NULL to NULL. Any other address, such as one of the host's memory or of freed
// memory, is a bug of the caller and ends the program.
void *far_translate(far_areas *areas, const void *address);

#endif
