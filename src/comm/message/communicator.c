// Communicators over messages: chooses the algorithm for each operation, and supplies the functions
// that the progress base needs. A header is the message by which a rank tells another which
// operation it calls. A family is all communicators split from one.
#include "comm/message/communicator.h"

#include "comm/message/header.h"
#include "comm/message/message.h"
#include "comm/message/post.h"
#include "comm/message/small.h"
#include "comm/message/spread.h"
#include "comm/message/turn.h"
#include "comm/message/window.h"
#include "comm/progress/communicator.h"

#include <stdlib.h>
#include <string.h>

enum { MESSAGE_ALIGNMENT = 64, MESSAGE_PAGE = 4096 };

static const message_algorithm *choose(const message_comm *comm, const tri_comm_op *op) {
    bool is_few = message_size(comm) <= TRI_MESSAGE_EXCHANGE_RANKS;
    bool scatters = tri_comm_kind_scatters(op->kind);
    if (message_size(comm) == 1) return &message_alone;
    if ((is_few || scatters) && message_fits_exchange(comm, op)) return &message_exchange;
    if (op->kind == TRI_COMM_BROADCAST)
        return message_fits_exchange(comm, op) ? &message_tree : &message_spread;
    if (!is_few && message_fits_gather(comm, op)) return &message_gather;
    return tri_comm_kind_reduces(op->kind) ? &message_window : &message_spread;
}

static progress_result advance_collective(message_comm *comm, progress_item *item) {
    bool advanced = false;
    if (!comm->current.algorithm) {
        comm->current = (message_current){.algorithm = choose(comm, &item->op)};
        comm->current.algorithm->begin(comm, item);
        advanced = true;
    }
    item->done = comm->current.algorithm->advance(comm, item, &advanced);
    if (item->done) comm->current = (message_current){0};
    return advanced || item->done ? PROGRESS_ADVANCED : PROGRESS_BLOCKED;
}

static progress_result advance(progress_comm *base, progress_item *item) {
    message_comm *comm = (message_comm *)base;
    message_family *family = message_family_of(comm);
    progress_result result = PROGRESS_IDLE;
    message_turn_begin(family);
    message_progress(family);
    if (!family->stopped && !progress_has_failed(base))
        result = tri_comm_kind_is_message(item->op.kind) ? message_post_advance(comm, item)
                                                         : advance_collective(comm, item);
    message_turn_end(family);
    return result;
}

static bool is_awaited(const tri_transport_request *request) {
    return request->state == TRI_REQUEST_PENDING || request->state > TRI_REQUEST_DONE;
}

static bool awaits(const progress_comm *base, const progress_item *item, int r) {
    const message_comm *comm = (const message_comm *)base;
    message_family *family = message_family_of(comm);
    const message_peer *peer = &comm->peers[r];
    message_turn_begin(family);
    bool is_gather = comm->current.algorithm == &message_gather;
    bool result = comm->current.algorithm && (peer->needs_header || is_awaited(&peer->header_out));
    result |= is_gather && is_awaited(&peer->header_in);
    for (int d = 0; d < MESSAGE_DEPTH && comm->current.algorithm; d++)
        result |= is_awaited(&peer->data_in[d]) || is_awaited(&peer->data_out[d]) ||
                  is_awaited(&peer->result_in[d]) || is_awaited(&peer->result_out[d]);
    message_turn_end(family);
    return result;
}

static bool rests(const progress_comm *base) {
    const message_comm *comm = (const message_comm *)base;
    message_family *family = message_family_of(comm);
    message_turn_begin(family);
    const message_algorithm *algorithm = comm->current.algorithm;
    bool result = algorithm && algorithm->sends_at_once && message_headers_sent(comm);
    message_turn_end(family);
    return result;
}

static unsigned abilities(const tri_comm *comm) {
    return TRI_COMM_ARITHMETIC | TRI_COMM_FINDS_MISMATCHES | TRI_COMM_HOST_MEMORY;
}

static int64_t scratch_bytes(int ranks, bool is_private) {
    return tri_comm_message_scratch_bytes(ranks);
}

static tri_status allocate(tri_comm *head, size_t size_bytes, void **out) {
    *out = NULL;
    TRI_TRY(progress_failed(head));
    size_t alignment = size_bytes < MESSAGE_PAGE ? MESSAGE_ALIGNMENT : MESSAGE_PAGE;
    size_t padded = (size_bytes + alignment - 1) / alignment * alignment;
    if (padded < size_bytes || padded > PTRDIFF_MAX ||
        posix_memalign(out, alignment, padded ? padded : alignment) != 0) {
        *out = NULL;
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a buffer of %zu bytes", size_bytes);
    }
    memset(*out, 0, padded);
    return TRI_OK;
}

static void release(tri_comm *head, void *memory) { free(memory); }

static const tri_ledger_ring *ledger_of(tri_comm *head, int rank) {
    const progress_comm *comm = progress_of(head);
    tri_health *health = atomic_load(&comm->family->health);
    if (rank == head->rank) return tri_ledger_ring_of(head->ledger);
    return health ? tri_health_ring(health, comm->job_rank[rank]) : NULL;
}

#define MESSAGE_SLOTS(transport_name)                                                              \
    {                                                                                              \
        .name = transport_name, .abilities = abilities, .scratch_bytes = scratch_bytes,            \
        .alloc = allocate, .free = release, .ledger_of = ledger_of, PROGRESS_SLOTS                 \
    }

// One table for each transport; the last is for the transports of tests. The tables differ only in
// the name that `bench comm` shows.
static const tri_comm_backend slots[] = {MESSAGE_SLOTS("ucx"), MESSAGE_SLOTS("mpi"),
                                         MESSAGE_SLOTS("message")};

static const tri_comm_backend *slots_of(const char *name) {
    const tri_comm_backend *row = slots;
    while (strcmp(row->name, name) != 0 && row < slots + sizeof slots / sizeof *slots - 1) row++;
    return row;
}

static size_t eager_bytes(int size) {
    size_t bytes = TRI_MESSAGE_EAGER_TOTAL_BYTES / (size_t)size / 64 * 64;
    return bytes > TRI_MESSAGE_EAGER_BYTES ? TRI_MESSAGE_EAGER_BYTES : bytes < 64 ? 64 : bytes;
}

int64_t tri_comm_message_scratch_bytes(int size) {
    if (size < 2) return 0;
    int64_t headers = 2 * size * (int64_t)(sizeof(message_header) + eager_bytes(size));
    return headers + (int64_t)message_scratch_bytes(size);
}

static void free_comm(message_comm *comm) {
    free(comm->member);
    free(comm->headers_in);
    free(comm->headers_out);
    free(comm->peers);
    free(comm->terms);
    free(comm->scratch);
    free(comm);
}

// Closes a communicator. If the receive of a header has been started and the header has not arrived
// yet, the communicator's memory is kept until the whole family ends, because the header may still
// be written there.
static void close_comm(progress_comm *base) {
    message_comm *comm = (message_comm *)base;
    message_family *family = message_family_of(comm);
    bool is_awaited = false;
    message_turn_begin(family);
    for (int r = 0; r < message_size(comm); r++)
        is_awaited |= comm->peers[r].header_in.state == TRI_REQUEST_PENDING;
    if (is_awaited) {
        comm->closed_before = family->closed;
        family->closed = comm;
    }
    message_turn_end(family);
    if (!is_awaited) free_comm(comm);
}

static tri_status allocate_parts(message_comm *comm, const int *member, int size) {
    size_t count = (size_t)size;
    comm->eager_bytes = eager_bytes(size);
    comm->scratch_bytes = message_scratch_bytes(size);
    comm->member = calloc(count, sizeof *comm->member);
    comm->peers = calloc(count, sizeof *comm->peers);
    comm->terms = calloc(count + 1, sizeof *comm->terms);
    comm->headers_in = calloc(count, message_slot_bytes(comm));
    comm->headers_out = calloc(count, message_slot_bytes(comm));
    comm->scratch = aligned_alloc(MESSAGE_PAGE, (comm->scratch_bytes + MESSAGE_PAGE) /
                                                    MESSAGE_PAGE * MESSAGE_PAGE);
    if (!comm->member || !comm->peers || !comm->terms || !comm->headers_in || !comm->headers_out ||
        !comm->scratch)
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    memcpy(comm->member, member, count * sizeof *member);
    return TRI_OK;
}

tri_status message_comm_create(message_family *family, uint32_t number, const int *member, int rank,
                               int size, message_comm **out) {
    message_comm *comm = calloc(1, sizeof *comm);
    int *job_rank = calloc((size_t)size, sizeof *job_rank);
    tri_status status =
        comm && job_rank ? TRI_OK : TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    for (int r = 0; status == TRI_OK && r < size; r++)
        job_rank[r] = family->members[member[r]].job_rank;
    if (status == TRI_OK) status = allocate_parts(comm, member, size);
    if (status == TRI_OK)
        status = progress_comm_init(&comm->base, slots_of(family->transport->name), &family->base,
                                    rank, size, job_rank);
    free(job_rank);
    if (status != TRI_OK) {
        if (comm) free_comm(comm);
        return status;
    }
    comm->number = number;
    progress_comm_add(&comm->base);
    *out = comm;
    return TRI_OK;
}

static void leave(progress_comm *base) {
    message_comm *comm = (message_comm *)base;
    message_family *family = message_family_of(comm);
    // After a failure requests may be under way. They are ended, because the memory that they use
    // is freed next.
    if (progress_has_failed(base)) {
        message_stop(family);
        return;
    }
    message_turn_begin(family);
    if (!family->stopped) message_tell_left(comm);
    message_turn_end(family);
}

static void quiesce(progress_comm *base) { message_stop(message_family_of((message_comm *)base)); }

// Makes the communicator of one group of a split. Its number is part of the tag of its messages, so
// that these are not taken for messages of another communicator. The ranks' next free numbers may
// differ, so all ranks of the parent agree on the largest, which is free on all ranks.
static tri_status branch(progress_comm *base, const progress_group *group, progress_comm **out) {
    message_comm *comm = (message_comm *)base, *child;
    message_family *family = message_family_of(comm);
    int64_t number = family->next_number;
    TRI_TRY(tri_comm_run(&base->head, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                     .reduction = TRI_REDUCE_MAX,
                                                     .dtype = TRI_I64,
                                                     .count = 1,
                                                     .send = &number,
                                                     .recv = &number,
                                                     .label = "split"}));
    family->next_number = (uint32_t)number + 1;
    if (number >= MESSAGE_MAX_COMMS)
        return TRI_FAIL(TRI_UNSUPPORTED, "more than %d communicators of one family",
                        MESSAGE_MAX_COMMS);
    if (group->size == 0) return TRI_OK;
    int *member = calloc((size_t)group->size, sizeof *member);
    if (!member) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    for (int r = 0; r < group->size; r++) member[r] = comm->member[group->ranks[r]];
    tri_status status =
        message_comm_create(family, (uint32_t)number, member, group->rank, group->size, &child);
    free(member);
    if (status == TRI_OK) *out = &child->base;
    return status;
}

static void close_family(progress_family *base) {
    message_family *family = (message_family *)base;
    bool whole = false;
    if (family->end) {
        bool failed = atomic_load(&family->base.failure->state) != PROGRESS_FAILURE_NONE;
        if (!failed && !family->stopped) whole = message_say_goodbye(family);
        if (!whole && !family->stopped) message_stop(family);
        family->transport->close(family->end, whole);
    }
    while (family->closed) {
        message_comm *comm = family->closed;
        family->closed = comm->closed_before;
        free_comm(comm);
    }
    message_turn_destroy(family);
    free(family->members);
    free(family);
}

static const char *host_of(const progress_family *base, int job_rank) {
    const message_family *family = (const message_family *)base;
    for (int r = 0; r < base->size; r++)
        if (family->members[r].job_rank == job_rank) return family->members[r].host;
    return NULL;
}

static const tri_ledger_ring *ring_of(const progress_family *family, int job_rank) {
    return job_rank == family->job_rank ? tri_ledger_ring_of(family->ledger) : NULL;
}

const progress_backend message_progress_backend = {
    .advance = advance,
    .awaits = awaits,
    .rests = rests,
    .sleep_begin = message_sleep_begin,
    .sleep = message_sleep,
    .sleep_end = message_sleep_end,
    .wake = message_wake,
    .wake_all = message_wake_all,
    .branch = branch,
    .leave = leave,
    .quiesce = quiesce,
    .close_comm = close_comm,
    .close_family = close_family,
    .beat = message_beat,
    .loss = message_loss,
    .collective_of = message_collective_of,
    .ring = ring_of,
    .host = host_of,
};
