// Maps one segment of shared memory on all ranks of a communicator, and makes buffers in it that
// all ranks see. Rank `maker` creates the segment and offers it to the others; then the ranks
// tell each other whether they have mapped it.
#include "comm/shm/alloc.h"

#include "comm/progress/describe.h"
#include "comm/shm/region.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct map_offer {
    int32_t status, unused;
    shm_handle handle;
} map_offer;

typedef struct map_result {
    int32_t maker, status;
} map_result;

static tri_status gather(shm_comm *comm, const void *mine, void *all, size_t bytes,
                         const char *label) {
    return tri_comm_run(&comm->base.head, &(tri_comm_op){.kind = TRI_COMM_ALL_GATHER,
                                                         .dtype = TRI_U8,
                                                         .count = (int64_t)bytes,
                                                         .send = mine,
                                                         .recv = all,
                                                         .label = label});
}

static tri_status map_open(shm_comm *comm, const map_offer *offer, shm_segment *segment) {
    if (offer->status != TRI_OK) return (tri_status)offer->status;
    if (shm_family_of(comm)->by_socket) return TRI_NOT_FOUND;
    return shm_segment_open(&offer->handle, segment);
}

// Maps the segment on the ranks that could not open it through /proc, which some hosts do not
// allow. Rank `maker`, which made it, sends these ranks its file descriptor by a socket.
static tri_status map_over_socket(shm_comm *comm, int maker, const map_offer *offers,
                                  map_result *results, shm_segment *segment) {
    int wanting = 0, rank = comm->base.head.rank, timeout_ms = comm->base.family->timeout_ms;
    for (int r = 0; r < comm->base.head.size; r++)
        if (results[r].maker == rank && results[r].status == TRI_NOT_FOUND) wanting++;
    if (results[rank].status == TRI_NOT_FOUND)
        return shm_segment_fetch(&offers[maker].handle, timeout_ms, segment);
    if (maker == rank && results[rank].status == TRI_OK && wanting > 0)
        return shm_segment_serve(segment, &offers[rank].handle, wanting, timeout_ms);
    return (tri_status)results[rank].status;
}

static bool map_is_incomplete(const map_result *results, int size) {
    for (int r = 0; r < size; r++)
        if (results[r].status == TRI_NOT_FOUND) return true;
    return false;
}

// Finds the first rank that failed, whose failure all ranks report; `size`: none did.
static int map_first_failed(const map_result *results, int size) {
    int r = 0;
    while (r < size && results[r].status == TRI_OK) r++;
    return r;
}

static tri_status map_segment(shm_comm *comm, int maker, tri_status created,
                              const shm_handle *handle, shm_segment *segment, const char *label) {
    int rank = comm->base.head.rank, size = comm->base.head.size;
    map_offer mine = {.status = (int32_t)created}, offers[TRI_MAX_LOCAL_RANKS];
    map_result own = {.maker = maker}, results[TRI_MAX_LOCAL_RANKS];
    if (maker == rank && created == TRI_OK) mine.handle = *handle;
    TRI_TRY(gather(comm, &mine, offers, sizeof mine, label));
    if (maker != SHM_NO_MAKER)
        own.status =
            maker == rank ? (int32_t)created : (int32_t)map_open(comm, &offers[maker], segment);
    TRI_TRY(gather(comm, &own, results, sizeof own, label));
    if (map_is_incomplete(results, size)) {
        own.status = (int32_t)map_over_socket(comm, maker, offers, results, segment);
        if (own.status == TRI_NOT_FOUND) own.status = TRI_IO;
        TRI_TRY(gather(comm, &own, results, sizeof own, label));
    }
    int bad = map_first_failed(results, size);
    if (bad == size) return TRI_OK;
    return TRI_FAIL((tri_status)results[bad].status, "rank %d has no shared memory for '%s'%s%s",
                    comm->base.job_rank[bad], label, bad == rank ? ": " : "",
                    bad == rank ? tri_error_message() : "");
}

tri_status shm_map_on_all(shm_comm *comm, int maker, tri_status created, const shm_handle *handle,
                          shm_segment *segment, const char *label) {
    tri_status status = map_segment(comm, maker, created, handle, segment, label);
    shm_segment_close_fd(segment);
    if (status != TRI_OK) shm_segment_unmap(segment);
    return status;
}

static tri_status check_sizes(shm_comm *comm, size_t size_bytes) {
    uint64_t mine = size_bytes, sizes[TRI_MAX_LOCAL_RANKS];
    TRI_TRY(gather(comm, &mine, sizes, sizeof mine, "alloc"));
    int r = 0;
    while (r < comm->base.head.size && sizes[r] == mine) r++;
    if (r == comm->base.head.size) return TRI_OK;
    char ours[64], theirs[64], text[TRI_MESSAGE_MAX_BYTES];
    snprintf(ours, sizeof ours, "alloc of %llu bytes", (unsigned long long)mine);
    snprintf(theirs, sizeof theirs, "alloc of %llu bytes", (unsigned long long)sizes[r]);
    progress_disagreement(&comm->base, 0,
                          (progress_caller){.rank = comm->base.head.rank, .text = ours},
                          (progress_caller){.rank = r, .text = theirs}, text, sizeof text);
    return TRI_FAIL(TRI_MISMATCH, "%s", text);
}

static tri_status commit_buffer(shm_comm *comm, shm_region *region, size_t offset) {
    int32_t mine = (int32_t)shm_segment_commit(&region->segment, offset, region->buffer_bytes);
    int32_t all[TRI_MAX_LOCAL_RANKS];
    TRI_TRY(gather(comm, &mine, all, sizeof mine, "alloc"));
    for (int r = 0; r < comm->base.head.size; r++)
        if (all[r])
            return TRI_FAIL((tri_status)all[r], "rank %d has no shared memory of %zu bytes",
                            comm->base.job_rank[r], region->buffer_bytes);
    return TRI_OK;
}

tri_status shm_alloc(tri_comm *head, size_t size_bytes, void **out) {
    shm_comm *comm = shm_of(head);
    *out = NULL;
    if (size_bytes > SIZE_MAX / 4 / (size_t)head->size)
        return TRI_FAIL(TRI_NO_MEMORY, "no shared memory of %zu bytes", size_bytes);
    TRI_TRY(check_sizes(comm, size_bytes));
    shm_region *region = calloc(1, sizeof *region);
    if (!region) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a buffer's description");
    *region = (shm_region){.segment.fd = -1,
                           .size = head->size,
                           .rank = head->rank,
                           .members = comm->members,
                           .buffer_bytes =
                               (size_bytes + !size_bytes + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE};
    shm_handle handle = {0};
    tri_status status = TRI_OK;
    if (head->rank == 0)
        status =
            shm_region_make(shm_family_of(comm), shm_region_bytes(region->buffer_bytes, head->size),
                            &region->segment, &handle);
    status = shm_map_on_all(comm, 0, status, &handle, &region->segment, "alloc");
    if (status == TRI_OK) {
        shm_segment_advise_huge(&region->segment);
        status = commit_buffer(comm, region,
                               (size_t)(shm_region_buffer(region) - (char *)region->segment.base));
    }
    if (status != TRI_OK) {
        shm_segment_unmap(&region->segment);
        free(region);
        return status;
    }
    shm_region_add(shm_family_of(comm), region);
    *out = shm_region_buffer(region);
    return TRI_OK;
}
