// Memory of the device `far`, which behaves like a GPU in tests. The host gets addresses at which
// nothing is mapped, so that it faults if it uses device memory. Kernels run on the inner device
// (the CPU): each such address is translated to an address of that device's memory.
#include "device/far/area.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096 };

// Finds the first area that begins above the given address (an area is a range of addresses that
// stands for one allocation of device memory). Areas are sorted by address, so it uses bisection.
static int area_above(const far_areas *areas, const char *address) {
    int low = 0, high = areas->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (areas->items[middle].address > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static tri_status grow(far_areas *areas) {
    if (areas->count < areas->capacity) return TRI_OK;
    int capacity = areas->capacity ? 2 * areas->capacity : 32;
    far_area *items = realloc(areas->items, (size_t)capacity * sizeof *items);
    if (!items) return TRI_FAIL(TRI_NO_MEMORY, "device far: no memory");
    areas->items = items;
    areas->capacity = capacity;
    return TRI_OK;
}

static tri_status insert(far_areas *areas, const far_area *area) {
    TRI_TRY(grow(areas));
    int at = area_above(areas, area->address);
    memmove(areas->items + at + 1, areas->items + at,
            (size_t)(areas->count - at) * sizeof *areas->items);
    areas->items[at] = *area;
    areas->count++;
    return TRI_OK;
}

tri_status far_areas_add(far_areas *areas, tri_device *inner, size_t bytes, void **out) {
    void *memory;
    *out = NULL;
    TRI_TRY(inner->backend->alloc(inner, bytes, &memory));
    far_area area = {.memory = memory, .bytes = bytes};
    // At least one page more than `bytes`. So `address + bytes`, the end of this allocation, still
    // lies in this area: far_translate accepts it too, and must not take it for the beginning of
    // the next area.
    area.mapped = (bytes / PAGE_BYTES + 2) * PAGE_BYTES;
    void *address =
        mmap(NULL, area.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) {
        inner->backend->free(inner, memory);
        return TRI_FAIL(TRI_NO_MEMORY, "device far: no addresses for %zu bytes", bytes);
    }
    area.address = address;
    pthread_mutex_lock(&areas->lock);
    tri_status status = insert(areas, &area);
    pthread_mutex_unlock(&areas->lock);
    if (status != TRI_OK) {
        munmap(address, area.mapped);
        inner->backend->free(inner, memory);
        return status;
    }
    *out = address;
    return TRI_OK;
}

static void end(const far_area *area, tri_device *inner) {
    munmap(area->address, area->mapped);
    inner->backend->free(inner, area->memory);
}

void far_areas_remove(far_areas *areas, tri_device *inner, void *address) {
    pthread_mutex_lock(&areas->lock);
    int at = area_above(areas, address) - 1;
    TRI_ASSERT(at >= 0 && areas->items[at].address == address);
    far_area area = areas->items[at];
    areas->count--;
    memmove(areas->items + at, areas->items + at + 1,
            (size_t)(areas->count - at) * sizeof *areas->items);
    pthread_mutex_unlock(&areas->lock);
    end(&area, inner);
}

void far_areas_end(far_areas *areas, tri_device *inner) {
    for (int i = 0; i < areas->count; i++) end(&areas->items[i], inner);
    free(areas->items);
    areas->items = NULL;
    areas->count = areas->capacity = 0;
}

void *far_translate(far_areas *areas, const void *address) {
    if (!address) return NULL;
    pthread_mutex_lock(&areas->lock);
    int at = area_above(areas, address) - 1;
    TRI_ASSERT(at >= 0);
    const far_area *area = &areas->items[at];
    size_t inside = (size_t)((const char *)address - area->address);
    TRI_ASSERT(inside <= area->bytes);
    char *memory = area->memory + inside;
    pthread_mutex_unlock(&areas->lock);
    return memory;
}
