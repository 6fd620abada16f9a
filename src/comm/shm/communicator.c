// Communicators over shared memory: allocates the memory of each one, and defines the functions of
// the backend that the progress base (comm/progress) calls.
#include "comm/shm/communicator.h"

#include "comm/op.h"
#include "comm/options.h"
#include "comm/progress/communicator.h"
#include "comm/progress/failure.h"
#include "comm/progress/operation.h"
#include "comm/shm/alloc.h"
#include "comm/shm/bell.h"
#include "comm/shm/collective.h"
#include "comm/shm/message.h"
#include "comm/shm/region.h"
#include "comm/shm/watch.h"

#include <stdlib.h>
#include <string.h>

static size_t channels_offset(int size) {
    return sizeof(shm_board) + (size_t)size * sizeof(shm_seat);
}

static size_t pipes_offset(int size) {
    size_t end = channels_offset(size) + (size_t)size * (size_t)size * sizeof(shm_channel);
    return (end + TRI_SHM_PIPE_BYTES - 1) / TRI_SHM_PIPE_BYTES * TRI_SHM_PIPE_BYTES;
}

static size_t staging_offset(int size) {
    return pipes_offset(size) + (size_t)size * (size_t)size * TRI_SHM_PIPE_BYTES;
}

// Size of a board, the shared memory of a communicator, in bytes. A board is large, but those of
// its pages that no rank touches take no memory.
size_t shm_board_bytes(int size) {
    return staging_offset(size) + (size_t)size * TRI_SHM_STAGE_BYTES;
}

static unsigned abilities(const tri_comm *comm) {
    return TRI_COMM_ARITHMETIC | TRI_COMM_FINDS_MISMATCHES | TRI_COMM_HOST_MEMORY;
}

static int64_t scratch_bytes(int ranks, bool is_private) {
    return tri_comm_scratch_bytes(TRI_COMM_SHM, ranks, is_private);
}

static const tri_comm_backend shm_slots = {
    .name = "shm",
    .abilities = abilities,
    .scratch_bytes = scratch_bytes,
    .alloc = shm_alloc,
    .free = shm_free,
    PROGRESS_SLOTS,
    .ledger_of = shm_ledger_of,
};

static void free_comm(progress_comm *base) {
    shm_comm *comm = (shm_comm *)base;
    shm_segment_unmap(&comm->segment);
    free(comm->member);
    free(comm);
}

static void find_board(shm_comm *comm, int size) {
    char *base = comm->segment.base;
    comm->board = comm->segment.base;
    comm->channels = (shm_channel *)(void *)(base + channels_offset(size));
    comm->pipes = base + pipes_offset(size);
    comm->staging = base + staging_offset(size);
}

tri_status shm_comm_create(shm_family *family, const shm_segment *segment, const int *member,
                           int rank, int size, shm_comm **out) {
    int job_rank[TRI_MAX_LOCAL_RANKS];
    shm_segment taken = *segment;
    shm_comm *comm = calloc(1, sizeof *comm);
    int *members = calloc((size_t)size, sizeof *members);
    for (int r = 0; r < size; r++) job_rank[r] = family->job_rank[member[r]];
    tri_status status = comm && members ? TRI_OK : TRI_NO_MEMORY;
    if (status == TRI_OK)
        status = progress_comm_init(&comm->base, &shm_slots, &family->base, rank, size, job_rank);
    if (status != TRI_OK) {
        shm_segment_unmap(&taken);
        free(members);
        free(comm);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    }
    comm->segment = taken;
    comm->member = members;
    for (int r = 0; r < size; r++) {
        members[r] = member[r];
        comm->members.bits[member[r] / 64] |= (uint64_t)1 << member[r] % 64;
    }
    find_board(comm, size);
    progress_comm_add(&comm->base);
    *out = comm;
    return TRI_OK;
}

static progress_result advance(progress_comm *base, progress_item *item) {
    shm_comm *comm = (shm_comm *)base;
    if (tri_comm_kind_is_message(item->op.kind)) return shm_message_advance(comm, item);
    progress_result result = shm_collective_advance(comm, item);
    if (comm->current.state == SHM_DONE) {
        item->done = true;
        memset(&comm->current, 0, offsetof(shm_current, from));
    }
    return result;
}

static bool awaits(const progress_comm *comm, const progress_item *item, int r) {
    return shm_collective_awaits((const shm_comm *)comm, item, r);
}

static bool rests(const progress_comm *comm) {
    return shm_collective_rests((const shm_comm *)comm);
}

static bool collective_of(const progress_comm *comm, int r, char *out, size_t size) {
    return shm_collective_text((const shm_comm *)comm, r, out, size);
}

static void leave(progress_comm *base) {
    shm_comm *comm = (shm_comm *)base;
    atomic_store(&comm->board->seats[base->head.rank].closed, 1);
    shm_ring_all(comm);
}

static tri_status branch(progress_comm *base, const progress_group *group, progress_comm **out) {
    shm_comm *comm = (shm_comm *)base, *child;
    int maker = group->size ? group->ranks[0] : SHM_NO_MAKER, member[TRI_MAX_LOCAL_RANKS];
    shm_segment segment = {.fd = -1};
    shm_handle handle = {0};
    tri_status created = TRI_OK;
    if (maker == base->head.rank)
        created = shm_segment_create(shm_board_bytes(group->size), &segment, &handle);
    TRI_TRY(shm_map_on_all(comm, maker, created, &handle, &segment, "split"));
    if (group->size == 0) return TRI_OK;
    for (int r = 0; r < group->size; r++) member[r] = comm->member[group->ranks[r]];
    TRI_TRY(
        shm_comm_create(shm_family_of(comm), &segment, member, group->rank, group->size, &child));
    *out = &child->base;
    return TRI_OK;
}

static void close_family(progress_family *base) {
    shm_family *family = (shm_family *)base;
    shm_regions_end(family);
    shm_watch_end(family);
    shm_segment_unmap(&family->segment);
    pthread_mutex_destroy(&family->regions_lock);
    pthread_mutex_destroy(&family->watched_lock);
    free(family->job_rank);
    free(family);
}

const progress_backend shm_progress = {
    .advance = advance,
    .awaits = awaits,
    .rests = rests,
    .sleep_begin = shm_sleep_begin,
    .sleep = shm_sleep,
    .sleep_end = shm_sleep_end,
    .wake = shm_wake,
    .wake_all = shm_wake_all,
    .branch = branch,
    .leave = leave,
    .close_comm = free_comm,
    .close_family = close_family,
    .beat = shm_beat,
    .observe = shm_observe,
    .loss = shm_loss,
    .collective_of = collective_of,
    .ring = shm_ring_of,
    .set_awaited = shm_set_awaited,
    .awaited = shm_awaited,
};
