// The host memory that alloc_host of the test device `far` gives. Its size is rounded up to a
// multiple of 64 bytes, and it ends at the end of a page. An access to the page behind it faults,
// so that a copy beyond the end is noticed.
#include "device/far/host.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096, ALIGNMENT = 64 };

struct far_host_memory {
    // mapping: all pages, of which the last one faults. memory: the address that the caller got.
    char *mapping, *memory;
    size_t mapped, bytes; // sizes of `mapping` and of `memory`, in bytes
    far_host_memory *next;
};

tri_status far_host_add(far_host *host, size_t bytes, void **out) {
    *out = NULL;
    far_host_memory *item = calloc(1, sizeof *item);
    if (!item) return TRI_FAIL(TRI_NO_MEMORY, "device far: no memory");
    size_t used = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t pages = (used + PAGE_BYTES - 1) / PAGE_BYTES + 1;
    item->mapped = pages * PAGE_BYTES;
    void *mapping =
        mmap(NULL, item->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
        free(item);
        return TRI_FAIL(TRI_NO_MEMORY, "device far: no memory of the host for %zu bytes", bytes);
    }
    item->mapping = mapping;
    mprotect(item->mapping + item->mapped - PAGE_BYTES, PAGE_BYTES, PROT_NONE);
    item->memory = item->mapping + item->mapped - PAGE_BYTES - used;
    item->bytes = bytes;
    pthread_mutex_lock(&host->lock);
    item->next = host->list;
    host->list = item;
    pthread_mutex_unlock(&host->lock);
    *out = item->memory;
    return TRI_OK;
}

void far_host_remove(far_host *host, void *memory) {
    pthread_mutex_lock(&host->lock);
    far_host_memory **link = &host->list;
    while (*link && (*link)->memory != memory) link = &(*link)->next;
    far_host_memory *item = *link;
    TRI_ASSERT(item && "memory that alloc_host gave");
    *link = item->next;
    pthread_mutex_unlock(&host->lock);
    munmap(item->mapping, item->mapped);
    free(item);
}

void far_host_count(far_host *host, const void *from, size_t bytes) {
    const char *at = from;
    pthread_mutex_lock(&host->lock);
    const far_host_memory *item = host->list;
    while (item && !(at >= item->memory && at + bytes <= item->memory + item->bytes))
        item = item->next;
    *(item ? &host->from_list : &host->from_others) += (int64_t)bytes;
    pthread_mutex_unlock(&host->lock);
}
