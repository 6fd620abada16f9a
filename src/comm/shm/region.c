// Buffers that all ranks of a communicator map: one segment with a part per rank.
//
// A rank that frees its buffer gives the pages of its part back at once; the mapping ends when all
// ranks freed theirs, so that nobody loses sight of a part that is still in use.
#include "comm/shm/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// Parts of large buffers lie three pages further apart than their size: the first cache of AMD's
// Zen guesses its way by a hash that xors address bits 12 to 19 with 27 to 20 (Lipp et al., "Take A
// Way", 2020), and lines of equal hash evict each other. At 256 MiB apart that halved the rate.
enum { REGION_PAGE = 4096, REGION_LARGE = 1 << 20, REGION_SKEW = 3 * REGION_PAGE };

typedef struct region_head { // begins a region's segment
    shm_header header;
    uint64_t id;
    _Atomic uint32_t freed; // ranks that did
} region_head;

typedef struct share_offer {
    int32_t status, unused;
    shm_handle handle;
} share_offer;

typedef struct share_result {
    int32_t maker, status;
} share_result;

static tri_status gather(shm_comm *comm, const void *mine, void *all, size_t bytes,
                         const char *label) {
    return tri_comm_run(&comm->head, &(tri_comm_op){.kind = TRI_COMM_ALL_GATHER,
                                                    .dtype = TRI_U8,
                                                    .count = (int64_t)bytes,
                                                    .send = mine,
                                                    .recv = all,
                                                    .label = label});
}

static tri_status share_open(shm_comm *comm, const share_offer *offer, shm_segment *segment) {
    if (offer->status != TRI_OK) return (tri_status)offer->status;
    if (comm->family->by_socket) return TRI_NOT_FOUND;
    return shm_segment_open(&offer->handle, segment);
}

// Those that could not open get the segment from its maker over a socket.
static tri_status share_pass(shm_comm *comm, int maker, const share_offer *offers,
                             share_result *results, shm_segment *segment) {
    int wanting = 0, rank = comm->head.rank, timeout_ms = comm->family->timeout_ms;
    for (int r = 0; r < comm->head.size; r++)
        if (results[r].maker == rank && results[r].status == TRI_NOT_FOUND) wanting++;
    if (results[rank].status == TRI_NOT_FOUND)
        return shm_segment_fetch(&offers[maker].handle, timeout_ms, segment);
    if (maker == rank && results[rank].status == TRI_OK && wanting > 0)
        return shm_segment_serve(segment, &offers[rank].handle, wanting, timeout_ms);
    return (tri_status)results[rank].status;
}

static int share_first(const share_result *results, int size, bool wanting) {
    for (int r = 0; r < size; r++)
        if (wanting ? results[r].status == TRI_NOT_FOUND : results[r].status != TRI_OK) return r;
    return -1;
}

static tri_status share(shm_comm *comm, int maker, tri_status made, shm_handle *handle,
                        shm_segment *segment, const char *label) {
    int rank = comm->head.rank, size = comm->head.size;
    share_offer mine = {.status = (int32_t)made}, offers[TRI_MAX_LOCAL_RANKS];
    share_result own = {.maker = maker}, results[TRI_MAX_LOCAL_RANKS];
    if (maker == rank && made == TRI_OK) mine.handle = *handle;
    TRI_TRY(gather(comm, &mine, offers, sizeof mine, label));
    if (maker >= 0)
        own.status =
            maker == rank ? (int32_t)made : (int32_t)share_open(comm, &offers[maker], segment);
    TRI_TRY(gather(comm, &own, results, sizeof own, label));
    if (share_first(results, size, true) >= 0) {
        own.status = (int32_t)share_pass(comm, maker, offers, results, segment);
        if (own.status == TRI_NOT_FOUND) own.status = TRI_IO;
        TRI_TRY(gather(comm, &own, results, sizeof own, label));
    }
    int bad = share_first(results, size, false);
    if (bad < 0) return TRI_OK;
    return TRI_FAIL((tri_status)results[bad].status, "rank %d has no shared memory for '%s'%s%s",
                    comm->world[bad], label, bad == rank ? ": " : "",
                    bad == rank ? tri_error_message() : "");
}

tri_status shm_share(shm_comm *comm, int maker, tri_status made, shm_handle *handle,
                     shm_segment *segment, const char *label) {
    tri_status status = share(comm, maker, made, handle, segment, label);
    shm_segment_close_fd(segment);
    if (status != TRI_OK) shm_segment_unmap(segment);
    return status;
}

static tri_status region_agree(shm_comm *comm, size_t size_bytes) {
    uint64_t mine = size_bytes, sizes[TRI_MAX_LOCAL_RANKS];
    TRI_TRY(gather(comm, &mine, sizes, sizeof mine, "alloc"));
    for (int r = 0; r < comm->head.size; r++)
        if (sizes[r] != mine)
            return TRI_FAIL(TRI_MISMATCH, "rank %d allocates %llu bytes, rank %d %llu",
                            comm->world[comm->head.rank], (unsigned long long)mine, comm->world[r],
                            (unsigned long long)sizes[r]);
    return TRI_OK;
}

static size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

static size_t region_stride(size_t part_bytes) {
    return part_bytes >= REGION_LARGE ? part_bytes + REGION_SKEW : part_bytes;
}

static tri_status region_make(shm_comm *comm, size_t bytes, shm_segment *segment,
                              shm_handle *handle) {
    TRI_TRY(shm_segment_create(bytes, segment, handle));
    region_head *head = segment->base;
    head->id = ((uint64_t)comm->family->rank + 1) << 32 | ++comm->family->regions_made;
    return TRI_OK;
}

static tri_status region_commit(shm_comm *comm, shm_region *region, size_t offset) {
    int32_t mine = (int32_t)shm_segment_commit(&region->segment, offset, region->part_bytes);
    int32_t all[TRI_MAX_LOCAL_RANKS];
    TRI_TRY(gather(comm, &mine, all, sizeof mine, "alloc"));
    for (int r = 0; r < comm->head.size; r++)
        if (all[r])
            return TRI_FAIL((tri_status)all[r], "rank %d has no shared memory of %zu bytes",
                            comm->world[r], region->part_bytes);
    return TRI_OK;
}

// The header has a page for itself, then come the parts.
static char *region_part(const shm_region *region) {
    return (char *)region->segment.base + REGION_PAGE +
           region_stride(region->part_bytes) * (size_t)region->part;
}

tri_status shm_alloc(tri_comm *head, size_t size_bytes, void **out) {
    shm_comm *comm = shm_of(head);
    *out = NULL;
    if (size_bytes > SIZE_MAX / 4 / (size_t)head->size)
        return TRI_FAIL(TRI_NO_MEMORY, "no shared memory of %zu bytes", size_bytes);
    TRI_TRY(region_agree(comm, size_bytes));
    shm_region *region = calloc(1, sizeof *region);
    if (!region) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a buffer's description");
    *region = (shm_region){.segment.fd = -1,
                           .parts = head->size,
                           .part = head->rank,
                           .members = comm->members,
                           .part_bytes = round_up(size_bytes + !size_bytes, REGION_PAGE)};
    shm_handle handle = {0};
    tri_status status = TRI_OK;
    if (head->rank == 0)
        status =
            region_make(comm, REGION_PAGE + region_stride(region->part_bytes) * (size_t)head->size,
                        &region->segment, &handle);
    status = shm_share(comm, 0, status, &handle, &region->segment, "alloc");
    if (status == TRI_OK) {
        shm_segment_advise_huge(&region->segment);
        status = region_commit(comm, region,
                               (size_t)(region_part(region) - (char *)region->segment.base));
    }
    if (status != TRI_OK) {
        shm_segment_unmap(&region->segment);
        free(region);
        return status;
    }
    region->id = ((region_head *)region->segment.base)->id;
    pthread_mutex_lock(&comm->family->regions_lock);
    region->next = comm->family->regions;
    comm->family->regions = region;
    pthread_mutex_unlock(&comm->family->regions_lock);
    *out = region_part(region);
    return TRI_OK;
}

static void region_end(shm_region *region) {
    shm_segment_unmap(&region->segment);
    free(region);
}

static void region_give_back(shm_region *region) {
    region->freed = true;
    (void)madvise(region_part(region), region->part_bytes, MADV_REMOVE);
    atomic_fetch_add(&((region_head *)region->segment.base)->freed, 1);
}

void shm_free(tri_comm *head, void *memory) {
    if (!memory) return;
    shm_family *family = shm_of(head)->family;
    bool found = false;
    pthread_mutex_lock(&family->regions_lock);
    for (shm_region **at = &family->regions; *at;) {
        shm_region *region = *at;
        if (!region->freed && region_part(region) == memory) {
            region_give_back(region);
            found = true;
        }
        const region_head *shared = region->segment.base;
        if (region->freed && atomic_load(&shared->freed) == (uint32_t)region->parts) {
            *at = region->next;
            region_end(region);
        } else {
            at = &region->next;
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

static bool set_covers(const shm_set *outer, const shm_set *inner) {
    for (int i = 0; i < TRI_MAX_LOCAL_RANKS / 64; i++)
        if (inner->bits[i] & ~outer->bits[i]) return false;
    return true;
}

shm_place shm_place_of(shm_comm *comm, const void *memory, size_t size_bytes) {
    shm_place place = {0};
    const char *from = memory;
    pthread_mutex_lock(&comm->family->regions_lock);
    for (shm_region *region = comm->family->regions; region; region = region->next) {
        const char *part = region_part(region);
        if (region->freed || from < part || from >= part + region->part_bytes) continue;
        bool fits = size_bytes <= region->part_bytes - (size_t)(from - part);
        // Everybody who will look at it must have it mapped.
        if (fits && set_covers(&region->members, &comm->members))
            place = (shm_place){region->id, (uint64_t)(from - (char *)region->segment.base)};
        break;
    }
    pthread_mutex_unlock(&comm->family->regions_lock);
    return place;
}

void *shm_place_find(shm_family *family, shm_place place) {
    void *found = NULL;
    pthread_mutex_lock(&family->regions_lock);
    for (shm_region *region = family->regions; region && !found; region = region->next)
        if (region->id == place.region) found = (char *)region->segment.base + place.offset;
    pthread_mutex_unlock(&family->regions_lock);
    TRI_ASSERT(found);
    return found;
}
