// Communicators of a family: what each of them is made of, splitting and closing.
#include "comm/shm/communicator.h"

#include "comm/shm/alloc.h"
#include "comm/shm/bell.h"
#include "comm/shm/failure.h"
#include "comm/shm/operation.h"
#include "comm/shm/region.h"
#include "comm/shm/watch.h"
#include "comm/shm/worker.h"

#include <stdlib.h>

enum { QUEUE_START = 64 }; // operations; the queue grows

static tri_status shm_split(tri_comm *head, int colour, int key, tri_comm **out);

static const tri_comm_backend shm_backend = {
    .name = "shm",
    .close = shm_close,
    .split = shm_split,
    .alloc = shm_alloc,
    .free = shm_free,
    .start = shm_start,
    .test = shm_test,
    .wait = shm_wait,
    .abort = shm_abort,
    .failed = shm_failed,
    .ledger_of = shm_ledger_of,
};

static size_t pairs_offset(int size) { return sizeof(shm_board) + (size_t)size * sizeof(shm_seat); }

static size_t pipes_offset(int size) {
    size_t end = pairs_offset(size) + (size_t)size * (size_t)size * sizeof(shm_pair);
    return (end + TRI_SHM_PAIR_BYTES - 1) / TRI_SHM_PAIR_BYTES * TRI_SHM_PAIR_BYTES;
}

static size_t staging_offset(int size) {
    return pipes_offset(size) + (size_t)size * (size_t)size * TRI_SHM_PAIR_BYTES;
}

// Large, but pages that no rank touches take no memory.
size_t shm_board_bytes(int size) {
    return staging_offset(size) + (size_t)size * TRI_SHM_STAGE_BYTES;
}

static void comm_release(shm_comm *comm) {
    shm_segment_unmap(&comm->segment);
    pthread_mutex_destroy(&comm->lock);
    free(comm->queue);
    free(comm->world_rank);
    free(comm);
}

tri_status shm_comm_create(shm_family *family, const shm_segment *segment, const int *world_rank,
                           int rank, int size, shm_comm **out) {
    shm_segment taken = *segment;
    shm_comm *comm = calloc(1, sizeof *comm);
    if (!comm) {
        shm_segment_unmap(&taken);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    }
    pthread_mutex_init(&comm->lock, NULL);
    comm->segment = taken;
    comm->head = (tri_comm){.backend = &shm_backend, .rank = rank, .size = size};
    comm->head.ledger = family->ledger;
    comm->head.lane = tri_ledger_lane(family->ledger, family->comms ? "split" : "world");
    comm->family = family;
    comm->capacity = QUEUE_START;
    comm->queue = calloc(comm->capacity, sizeof *comm->queue);
    comm->world_rank = calloc((size_t)size, sizeof *comm->world_rank);
    if (!comm->queue || !comm->world_rank) {
        comm_release(comm);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    }
    for (int r = 0; r < size; r++) {
        comm->world_rank[r] = world_rank[r];
        comm->members.bits[world_rank[r] / 64] |= (uint64_t)1 << world_rank[r] % 64;
    }
    char *base = taken.base;
    comm->board = taken.base;
    comm->pairs = (shm_pair *)(void *)(base + pairs_offset(size));
    comm->pipes = base + pipes_offset(size);
    comm->staging = base + staging_offset(size);
    pthread_mutex_lock(&family->lock);
    comm->next = family->comms;
    family->comms = comm;
    pthread_mutex_unlock(&family->lock);
    *out = comm;
    return TRI_OK;
}

void shm_family_release(shm_family *family) {
    shm_worker_stop(family);
    shm_regions_end(family);
    shm_watch_end(family);
    tri_ledger_close(family->ledger);
    shm_segment_unmap(&family->segment);
    pthread_mutex_destroy(&family->lock);
    pthread_mutex_destroy(&family->regions_lock);
    pthread_mutex_destroy(&family->watched_lock);
    free(family);
}

void shm_close(tri_comm *head) {
    shm_comm *comm = shm_of(head);
    shm_family *family = comm->family;
    atomic_store(&comm->board->seats[head->rank].closed, 1);
    shm_ring_all(comm);
    pthread_mutex_lock(&family->lock);
    shm_comm **link = &family->comms;
    while (*link != comm) link = &(*link)->next;
    *link = comm->next;
    bool last = family->comms == NULL;
    pthread_mutex_unlock(&family->lock);
    comm_release(comm);
    if (last) shm_family_release(family);
}

typedef struct split_request {
    int32_t colour, key;
} split_request;

static bool split_before(const split_request *requests, int a, int b) {
    return requests[a].key != requests[b].key ? requests[a].key < requests[b].key : a < b;
}

// Fills `group` with the ranks of our colour in their new order; returns how many, and our new
// rank.
static int split_group(const split_request *requests, int size, int rank, int *group,
                       int *new_rank) {
    int count = 0;
    for (int r = 0; r < size; r++) {
        if (requests[r].colour != requests[rank].colour) continue;
        int to = count++;
        for (; to > 0 && split_before(requests, r, group[to - 1]); to--) group[to] = group[to - 1];
        group[to] = r;
    }
    for (int i = 0; i < count; i++)
        if (group[i] == rank) *new_rank = i;
    return count;
}

static tri_status shm_split(tri_comm *head, int colour, int key, tri_comm **out) {
    shm_comm *comm = shm_of(head);
    *out = NULL;
    split_request mine = {colour < 0 ? -1 : colour, key}, requests[TRI_MAX_LOCAL_RANKS];
    TRI_TRY(tri_comm_run(head, &(tri_comm_op){.kind = TRI_COMM_ALL_GATHER,
                                              .dtype = TRI_U8,
                                              .count = sizeof mine,
                                              .send = &mine,
                                              .recv = requests,
                                              .label = "split"}));
    int group[TRI_MAX_LOCAL_RANKS], new_rank = 0;
    int size = split_group(requests, head->size, head->rank, group, &new_rank);
    int maker = colour < 0 ? SHM_NO_MAKER : group[0];
    shm_segment segment = {.fd = -1};
    shm_handle handle = {0};
    tri_status created = TRI_OK;
    if (maker == head->rank) created = shm_segment_create(shm_board_bytes(size), &segment, &handle);
    TRI_TRY(shm_map_on_all(comm, maker, created, &handle, &segment, "split"));
    if (colour < 0) return TRI_OK;
    for (int i = 0; i < size; i++) group[i] = comm->world_rank[group[i]];
    shm_comm *child;
    TRI_TRY(shm_comm_create(comm->family, &segment, group, new_rank, size, &child));
    *out = &child->head;
    return TRI_OK;
}
