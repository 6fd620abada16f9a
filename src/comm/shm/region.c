// A region is one segment of shared memory with a buffer for each rank of the communicator that
// allocated it.
//
// A rank that frees its buffer returns the buffer's pages to the system at once. The mapping stays
// until all ranks have freed their buffers, because another rank's buffer may still be in use.
#include "comm/shm/region.h"

#include <stdlib.h>
#include <sys/mman.h>

// The ranks' large buffers lie three pages farther apart than their size. So an element has a
// different hash in each buffer in the first-level cache of AMD's Zen. This cache finds a line by a
// hash that xors address bits 12 to 19 with bits 27 to 20 (Lipp et al., "Take A Way", 2020), and
// lines with the same hash evict each other. Buffers 256 MiB apart have equal hashes, and
// operations on them took twice as long.
enum { REGION_LARGE = 1 << 20, REGION_SKEW = 3 * SHM_PAGE };

typedef struct region_head { // the first page of the segment
    shm_header header;
    uint64_t id;
    _Atomic uint32_t freed; // how many ranks have freed their buffer
} region_head;

static size_t region_stride(size_t buffer_bytes) {
    return buffer_bytes >= REGION_LARGE ? buffer_bytes + REGION_SKEW : buffer_bytes;
}

size_t shm_region_bytes(size_t buffer_bytes, int size) {
    return SHM_PAGE + region_stride(buffer_bytes) * (size_t)size;
}

tri_status shm_region_make(shm_family *family, size_t bytes, shm_segment *segment,
                           shm_handle *handle) {
    TRI_TRY(shm_segment_create(bytes, segment, handle));
    region_head *head = segment->base;
    head->id = ((uint64_t)family->rank + 1) << 32 | ++family->regions_made;
    return TRI_OK;
}

char *shm_region_buffer(const shm_region *region) {
    return (char *)region->segment.base + SHM_PAGE +
           region_stride(region->buffer_bytes) * (size_t)region->rank;
}

void shm_region_add(shm_family *family, shm_region *region) {
    region->id = ((region_head *)region->segment.base)->id;
    pthread_mutex_lock(&family->regions_lock);
    region->next = family->regions;
    family->regions = region;
    pthread_mutex_unlock(&family->regions_lock);
}

static void region_end(shm_region *region) {
    shm_segment_unmap(&region->segment);
    free(region);
}

static void region_return_pages(shm_region *region) {
    region->freed = true;
    (void)madvise(shm_region_buffer(region), region->buffer_bytes, MADV_REMOVE);
    atomic_fetch_add(&((region_head *)region->segment.base)->freed, 1);
}

void shm_free(tri_comm *head, void *memory) {
    if (!memory) return;
    shm_family *family = shm_family_of(shm_of(head));
    bool found = false;
    pthread_mutex_lock(&family->regions_lock);
    for (shm_region **link = &family->regions; *link;) {
        shm_region *region = *link;
        if (!region->freed && shm_region_buffer(region) == memory) {
            region_return_pages(region);
            found = true;
        }
        const region_head *shared = region->segment.base;
        if (region->freed && atomic_load(&shared->freed) == (uint32_t)region->size) {
            *link = region->next;
            region_end(region);
        } else {
            link = &region->next;
        }
    }
    pthread_mutex_unlock(&family->regions_lock);
    TRI_ASSERT(found);
}

void shm_regions_end(shm_family *family) {
    while (family->regions) {
        shm_region *region = family->regions;
        family->regions = region->next;
        region_end(region);
    }
}

static bool set_covers(const shm_rank_set *outer, const shm_rank_set *inner) {
    for (int i = 0; i < TRI_MAX_LOCAL_RANKS / 64; i++)
        if (inner->bits[i] & ~outer->bits[i]) return false;
    return true;
}

shm_address shm_address_of(shm_comm *comm, const void *memory, size_t size_bytes) {
    shm_address address = {0};
    const char *from = memory;
    pthread_mutex_lock(&shm_family_of(comm)->regions_lock);
    for (shm_region *region = shm_family_of(comm)->regions; region; region = region->next) {
        const char *buffer = shm_region_buffer(region);
        if (region->freed || from < buffer || from >= buffer + region->buffer_bytes) continue;
        bool fits = size_bytes <= region->buffer_bytes - (size_t)(from - buffer);
        if (fits && set_covers(&region->members, &comm->members))
            address = (shm_address){region->id, (uint64_t)(from - (char *)region->segment.base)};
        break;
    }
    pthread_mutex_unlock(&shm_family_of(comm)->regions_lock);
    return address;
}

void *shm_address_resolve(shm_family *family, shm_address address) {
    void *found = NULL;
    pthread_mutex_lock(&family->regions_lock);
    for (shm_region *region = family->regions; region && !found; region = region->next)
        if (region->id == address.region) found = (char *)region->segment.base + address.offset;
    pthread_mutex_unlock(&family->regions_lock);
    TRI_ASSERT(found);
    return found;
}
