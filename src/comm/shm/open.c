// How ranks meet, and how communicators begin and end.
#include "comm/shm/internal.h"

#include "base/os.h"
#include "base/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct open_offer { // rank 0's
    int32_t status, unused;
    shm_handle control, board;
} open_offer;

typedef struct open_call { // arguments of an open, and the prefix of its keys
    int rank, size, timeout_ms;
    bool by_socket;
    const tri_shm_meeting *meeting;
    char prefix[32];
} open_call;

const tri_comm_backend shm_backend = {
    .name = "shm",
    .close = shm_close,
    .split = shm_split,
    .alloc = shm_alloc,
    .free = shm_free,
    .start = shm_start,
    .test = shm_test,
    .wait = shm_wait,
    .abort = shm_abort,
    .failed = shm_failed_status,
    .ledger_of = shm_ledger_of,
};

// ---- communicators

static size_t pairs_offset(int size) { return sizeof(shm_board) + (size_t)size * sizeof(shm_seat); }

static size_t pipes_offset(int size) {
    size_t end = pairs_offset(size) + (size_t)size * (size_t)size * sizeof(shm_pair);
    return (end + TRI_SHM_PAIR_BYTES - 1) / TRI_SHM_PAIR_BYTES * TRI_SHM_PAIR_BYTES;
}

static size_t stage_offset(int size) {
    return pipes_offset(size) + (size_t)size * (size_t)size * TRI_SHM_PAIR_BYTES;
}

// Pages that nobody touches take no memory.
size_t shm_board_bytes(int size) { return stage_offset(size) + (size_t)size * TRI_SHM_STAGE_BYTES; }

static void comm_release(shm_comm *comm) {
    shm_segment_unmap(&comm->segment);
    pthread_mutex_destroy(&comm->lock);
    free(comm->queue);
    free(comm->world);
    free(comm);
}

tri_status shm_comm_create(shm_family *family, const shm_segment *segment, const int *world,
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
    comm->head.lane = tri_ledger_lane(family->ledger, family->comms ? "part" : "world");
    comm->family = family;
    comm->capacity = SHM_QUEUE_START;
    comm->queue = calloc(comm->capacity, sizeof *comm->queue);
    comm->world = calloc((size_t)size, sizeof *comm->world);
    if (!comm->queue || !comm->world) {
        comm_release(comm);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    }
    for (int r = 0; r < size; r++) {
        comm->world[r] = world[r];
        comm->members.bits[world[r] / 64] |= (uint64_t)1 << world[r] % 64;
    }
    char *base = taken.base;
    comm->board = taken.base;
    comm->pairs = (shm_pair *)(void *)(base + pairs_offset(size));
    comm->pipes = base + pipes_offset(size);
    comm->stage = base + stage_offset(size);
    pthread_mutex_lock(&family->lock);
    comm->next = family->comms;
    family->comms = comm;
    pthread_mutex_unlock(&family->lock);
    *out = comm;
    return TRI_OK;
}

static void family_release(shm_family *family) {
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
    atomic_store(&comm->board->seats[head->rank].left, 1);
    shm_ring_all(comm);
    pthread_mutex_lock(&family->lock);
    for (shm_comm **at = &family->comms; *at; at = &(*at)->next)
        if (*at == comm) {
            *at = comm->next;
            break;
        }
    bool last = family->comms == NULL;
    pthread_mutex_unlock(&family->lock);
    comm_release(comm);
    if (last) family_release(family);
}

// ---- split

typedef struct split_wish {
    int32_t colour, key;
} split_wish;

static bool split_before(const split_wish *wishes, int a, int b) {
    return wishes[a].key != wishes[b].key ? wishes[a].key < wishes[b].key : a < b;
}

// Fills `group` with the ranks of our colour in their new order; returns how many, and our place.
static int split_group(const split_wish *wishes, int size, int rank, int *group, int *place) {
    int count = 0;
    for (int r = 0; r < size; r++) {
        if (wishes[r].colour != wishes[rank].colour) continue;
        int at = count++;
        for (; at > 0 && split_before(wishes, r, group[at - 1]); at--) group[at] = group[at - 1];
        group[at] = r;
    }
    for (int i = 0; i < count; i++)
        if (group[i] == rank) *place = i;
    return count;
}

tri_status shm_split(tri_comm *head, int colour, int key, tri_comm **out) {
    shm_comm *comm = shm_of(head);
    *out = NULL;
    split_wish mine = {colour < 0 ? -1 : colour, key}, wishes[TRI_MAX_LOCAL_RANKS];
    TRI_TRY(tri_comm_run(head, &(tri_comm_op){.kind = TRI_COMM_ALL_GATHER,
                                              .dtype = TRI_U8,
                                              .count = sizeof mine,
                                              .send = &mine,
                                              .recv = wishes,
                                              .label = "split"}));
    int group[TRI_MAX_LOCAL_RANKS], place = 0;
    int size = split_group(wishes, head->size, head->rank, group, &place);
    int maker = colour < 0 ? -1 : group[0];
    shm_segment segment = {.fd = -1};
    shm_handle handle = {0};
    tri_status made = TRI_OK;
    if (maker == head->rank) made = shm_segment_create(shm_board_bytes(size), &segment, &handle);
    TRI_TRY(shm_share(comm, maker, made, &handle, &segment, "split"));
    if (colour < 0) return TRI_OK;
    for (int i = 0; i < size; i++) group[i] = comm->world[group[i]];
    shm_comm *part;
    TRI_TRY(shm_comm_create(comm->family, &segment, group, place, size, &part));
    *out = &part->head;
    return TRI_OK;
}

// ---- open

static tri_status open_set(const open_call *call, const char *name, int rank, const void *value,
                           size_t size) {
    char key[64];
    snprintf(key, sizeof key, "%s/%s/%d", call->prefix, name, rank);
    return call->meeting->set(call->meeting->context, key, value, size);
}

static tri_status open_get(const open_call *call, const char *name, int rank, void *value,
                           size_t size) {
    char key[64];
    snprintf(key, sizeof key, "%s/%s/%d", call->prefix, name, rank);
    size_t got = 0;
    tri_status status =
        call->meeting->get(call->meeting->context, key, call->timeout_ms, value, size, &got);
    if (status != TRI_OK)
        return tri_status_context(status, "rank %d did not join over shared memory", rank);
    if (got != size)
        return TRI_FAIL(TRI_MISMATCH, "rank %d runs another version of this program", rank);
    return TRI_OK;
}

static size_t control_bytes(int size) {
    return sizeof(shm_control) + (size_t)size * sizeof(shm_member);
}

static tri_status open_make(const open_call *call, shm_segment *control, shm_segment *board) {
    open_offer offer = {0};
    tri_status status = shm_segment_create(control_bytes(call->size), control, &offer.control);
    if (status == TRI_OK) {
        ((shm_control *)control->base)->size = call->size;
        status = shm_segment_create(shm_board_bytes(call->size), board, &offer.board);
    }
    offer.status = (int32_t)status;
    TRI_TRY(open_set(call, "offer", 0, &offer, sizeof offer));
    TRI_TRY(status);
    int wanting = 0;
    for (int r = 1; r < call->size; r++) {
        int32_t wants = 0;
        TRI_TRY(open_get(call, "opened", r, &wants, sizeof wants));
        wanting += wants;
    }
    if (wanting == 0) return TRI_OK;
    TRI_TRY(shm_segment_serve(control, &offer.control, wanting, call->timeout_ms));
    return shm_segment_serve(board, &offer.board, wanting, call->timeout_ms);
}

static tri_status open_take(const open_call *call, shm_segment *control, shm_segment *board) {
    open_offer offer;
    TRI_TRY(open_get(call, "offer", 0, &offer, sizeof offer));
    if (offer.status != TRI_OK)
        return TRI_FAIL((tri_status)offer.status,
                        "rank 0 has no shared memory for the ranks of this host");
    tri_status status = TRI_NOT_FOUND;
    if (!call->by_socket) status = shm_segment_open(&offer.control, control);
    if (status == TRI_OK) status = shm_segment_open(&offer.board, board);
    int32_t wants = status == TRI_NOT_FOUND;
    TRI_TRY(open_set(call, "opened", call->rank, &wants, sizeof wants));
    if (!wants) return status;
    shm_segment_unmap(control);
    TRI_TRY(shm_segment_fetch(&offer.control, call->timeout_ms, control));
    return shm_segment_fetch(&offer.board, call->timeout_ms, board);
}

static void open_introduce(shm_family *family) {
    shm_member *me = shm_me(family);
    tri_process_self(&me->process);
    CPU_ZERO(&me->cpus);
    (void)sched_getaffinity(0, sizeof me->cpus, &me->cpus);
    atomic_store(&me->heartbeat, 1);
    atomic_store(&me->joined, 1);
}

// A rank may spin while it waits only if every rank has a core to itself.
static bool open_can_spin(const shm_family *family) {
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int r = 0; r < family->size; r++) CPU_OR(&all, &all, &family->control->members[r].cpus);
    return CPU_COUNT(&all) >= family->size;
}

static tri_status open_family(const open_call *call, const shm_segment *control, shm_family **out) {
    shm_family *family = calloc(1, sizeof *family);
    if (!family) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    family->control = control->base;
    tri_status status =
        tri_ledger_open(&family->control->members[call->rank].ledger, &family->ledger);
    if (status != TRI_OK) {
        free(family);
        return status;
    }
    family->segment = *control;
    family->rank = call->rank;
    family->size = call->size;
    family->timeout_ms = call->timeout_ms;
    family->by_socket = call->by_socket;
    pthread_mutex_init(&family->lock, NULL);
    pthread_mutex_init(&family->regions_lock, NULL);
    pthread_mutex_init(&family->watched_lock, NULL);
    open_introduce(family);
    *out = family;
    return TRI_OK;
}

static tri_status open_world(const open_call *call, shm_family *family, const shm_segment *board,
                             tri_comm **out) {
    int world[TRI_MAX_LOCAL_RANKS];
    for (int r = 0; r < call->size; r++) world[r] = r;
    shm_comm *comm;
    tri_status status = shm_comm_create(family, board, world, call->rank, call->size, &comm);
    if (status != TRI_OK) {
        family_release(family);
        return status;
    }
    status = shm_watch_begin(family);
    if (status == TRI_OK) status = shm_worker_start(family);
    // From here on everybody has introduced itself.
    if (status == TRI_OK) status = tri_comm_barrier(&comm->head, "join");
    if (status == TRI_OK) {
        family->can_spin = open_can_spin(family);
        *out = &comm->head;
    } else {
        shm_close(&comm->head);
    }
    return status;
}

tri_status tri_comm_shm_open_at(int rank, int size, const tri_shm_meeting *meeting,
                                const tri_shm_config *config, tri_comm **out) {
    static _Atomic int opened; // every rank opens in the same order, so that keys never repeat
    *out = NULL;
    if (size < 1 || size > TRI_MAX_LOCAL_RANKS || rank < 0 || rank >= size)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "rank %d of %d: shared memory serves 1 to %d ranks of a host", rank, size,
                        TRI_MAX_LOCAL_RANKS);
    open_call call = {
        .rank = rank, .size = size, .timeout_ms = TRI_DEFAULT_TIMEOUT_MS, .meeting = meeting};
    if (config && config->timeout_ms > 0) call.timeout_ms = config->timeout_ms;
    if (config) call.by_socket = config->pass_by_socket;
    snprintf(call.prefix, sizeof call.prefix, "shm/%d", atomic_fetch_add(&opened, 1));
    shm_segment control = {.fd = -1}, board = {.fd = -1};
    tri_status status =
        rank == 0 ? open_make(&call, &control, &board) : open_take(&call, &control, &board);
    shm_segment_close_fd(&control);
    shm_segment_close_fd(&board);
    shm_family *family = NULL;
    if (status == TRI_OK) status = open_family(&call, &control, &family);
    if (status != TRI_OK) {
        shm_segment_unmap(&control);
        shm_segment_unmap(&board);
        return status;
    }
    return open_world(&call, family, &board, out);
}
