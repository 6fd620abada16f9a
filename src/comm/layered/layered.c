// Carries out the steps of an operation: each is an operation of an inner communicator, or work of
// this rank. Advancing an operation never waits for a step, because one thread advances many
// communicators: an inner operation is started, and tested again later. Before the thread sleeps,
// it asks the inner communicators to wake it once an operation has ended (tri_comm_backend.notify).
// A window is the elements of the operation on which the steps work at a time.
#include "comm/layered/layered.h"

#include "comm/op.h"
#include "comm/progress/communicator.h"
#include "comm/progress/describe.h"
#include "comm/progress/failure.h"
#include "comm/progress/futex.h"
#include "comm/progress/thread.h"

#include <stdlib.h>
#include <string.h>

// Time between two tests of an inner communicator that has no `notify`.
enum { LAYERED_LOOK_MS = 1 };

typedef struct layered_family {
    progress_family base;
    progress_bell bell;
    bool has_to_look;
} layered_family;

// The calls that the two ends of a message compare before the data are sent, so that a wrong size
// is reported and nothing is written out of bounds.
typedef struct layered_header {
    tri_comm_call mine, theirs;
} layered_header;

enum { MESSAGE_NEW, MESSAGE_HEADER, MESSAGE_DATA };

static layered_step *add_step(layered_comm *comm) {
    TRI_ASSERT(comm->step_count < LAYERED_STEPS);
    return &comm->steps[comm->step_count++];
}

void layered_run(layered_comm *comm, int inner, tri_comm_op op) {
    op.label = comm->op.label;
    op.part_of = comm->op.part_of ? comm->op.part_of : &comm->op;
    op.waits_at_once = comm->op.waits_at_once;
    *add_step(comm) = (layered_step){.inner = inner, .op = op};
}

void layered_do(layered_comm *comm, tri_status (*work)(layered_comm *comm)) {
    *add_step(comm) = (layered_step){.inner = -1, .work = work};
}

static void list_window(layered_comm *comm, int64_t begin) {
    int64_t left = comm->op.count - begin, most = comm->kind->window(comm, &comm->op);
    comm->window = (layered_window){begin, left < most ? left : most};
    comm->step_count = comm->at = 0;
    comm->started = false;
    comm->kind->list(comm);
}

static progress_result give_up(layered_comm *comm, tri_status status) {
    progress_fail(&comm->base, status, "%s", tri_error_message());
    return PROGRESS_IDLE;
}

static tri_status start_inner(layered_comm *comm, int inner, const tri_comm_op *op,
                              tri_comm_ticket *ticket) {
    tri_comm *on = comm->inner[inner];
    TRI_TRY(on->backend->start(on, op, 1, ticket));
    atomic_fetch_add(&comm->in_flight[inner], 1);
    return TRI_OK;
}

// Tells whether an inner operation is done. *status: how it ended.
static bool finished(layered_comm *comm, int inner, tri_comm_ticket ticket, tri_status *status) {
    tri_comm *on = comm->inner[inner];
    if (!on->backend->test(on, ticket)) return false;
    *status = on->backend->wait(on, ticket);
    atomic_fetch_sub(&comm->in_flight[inner], 1);
    return true;
}

static progress_result advance_collective(layered_comm *comm, progress_item *item) {
    if (item->step == 0) {
        comm->op = item->op;
        list_window(comm, 0);
        item->step = 1;
    }
    if (comm->at == comm->step_count) {
        int64_t end = comm->window.begin + comm->window.count;
        item->done = end >= comm->op.count || comm->op.kind == TRI_COMM_BARRIER;
        if (!item->done) list_window(comm, end);
        return PROGRESS_ADVANCED;
    }
    const layered_step *step = &comm->steps[comm->at];
    tri_status status = TRI_OK;
    if (step->inner < 0) {
        status = step->work(comm);
    } else {
        if (!comm->started) status = start_inner(comm, step->inner, &step->op, &comm->ticket);
        if (status != TRI_OK) return give_up(comm, status);
        comm->started = true;
        if (!finished(comm, step->inner, comm->ticket, &status)) return PROGRESS_BLOCKED;
        comm->started = false;
    }
    if (status != TRI_OK) return give_up(comm, status);
    comm->at++;
    return PROGRESS_ADVANCED;
}

// If the communicator compares calls (layered_kind.header), a message has two parts: first its
// header, so that the two ends can compare their calls, then the data. Otherwise it has only the
// data. While the data travel, item->bytes holds the index of the inner communicator that carries
// them.

static tri_status start_header(layered_comm *comm, progress_item *item, int inner) {
    layered_header *header = calloc(1, sizeof *header);
    if (!header) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a message");
    item->state = header;
    tri_comm_call_of(&item->op, &header->mine);
    tri_comm_op op = {.kind = item->op.kind,
                      .dtype = TRI_U8,
                      .count = sizeof header->mine,
                      .send = &header->mine,
                      .recv = &header->theirs,
                      .peer = item->op.peer,
                      .label = item->op.label,
                      .waits_at_once = item->op.waits_at_once};
    tri_comm_ticket ticket;
    TRI_TRY(start_inner(comm, inner, &op, &ticket));
    item->number = ticket.value;
    item->step = MESSAGE_HEADER;
    return TRI_OK;
}

static tri_status start_data(layered_comm *comm, progress_item *item) {
    tri_comm_op op = item->op;
    int inner;
    tri_comm_ticket ticket;
    TRI_TRY(comm->kind->route(comm, op.peer, &inner, &op.peer));
    TRI_TRY(start_inner(comm, inner, &op, &ticket));
    item->number = ticket.value;
    item->bytes = (uint64_t)inner;
    item->step = MESSAGE_DATA;
    return TRI_OK;
}

static tri_status compare_header(layered_comm *comm, const progress_item *item) {
    const layered_header *header = item->state;
    if (item->op.kind == TRI_COMM_SEND || tri_comm_calls_agree(&header->theirs, &header->mine))
        return TRI_OK;
    char text[TRI_MESSAGE_MAX_BYTES];
    progress_disagreement(
        &comm->base, 0, (progress_caller){.rank = item->op.peer, .call = &header->theirs},
        (progress_caller){.rank = comm->base.head.rank, .call = &header->mine}, text, sizeof text);
    return TRI_FAIL(TRI_MISMATCH, "%s", text);
}

static progress_result advance_message(layered_comm *comm, progress_item *item) {
    int header = comm->kind->header ? comm->kind->header(comm) : -1;
    tri_status status = TRI_OK;
    if (item->step == MESSAGE_NEW) {
        status = header >= 0 ? start_header(comm, item, header) : start_data(comm, item);
        return status == TRI_OK ? PROGRESS_ADVANCED : give_up(comm, status);
    }
    bool data = item->step == MESSAGE_DATA;
    int inner = data ? (int)item->bytes : header;
    if (!finished(comm, inner, (tri_comm_ticket){item->number}, &status)) return PROGRESS_BLOCKED;
    item->done = data && status == TRI_OK;
    if (status == TRI_OK && !data) status = compare_header(comm, item);
    if (status == TRI_OK && !data) status = start_data(comm, item);
    return status == TRI_OK ? PROGRESS_ADVANCED : give_up(comm, status);
}

static progress_result advance(progress_comm *base, progress_item *item) {
    layered_comm *comm = (layered_comm *)base;
    return tri_comm_kind_is_message(item->op.kind) ? advance_message(comm, item)
                                                   : advance_collective(comm, item);
}

// Whether a collective waits for rank r. Always false here: the inner communicator knows for which
// rank this rank waits, and reports that rank itself.
static bool awaits(const progress_comm *comm, const progress_item *item, int r) { return false; }

static void ring(void *family) { progress_bell_ring(&((layered_family *)family)->bell); }

static void ask_for_calls(layered_comm *comm) {
    bool waits = atomic_load(&comm->base.waiters) > 0;
    for (int i = 0; i < LAYERED_INNER; i++) {
        tri_comm *inner = comm->inner[i];
        if (!inner || !inner->backend->notify || !atomic_load(&comm->in_flight[i])) continue;
        inner->backend->notify(inner, ring, comm->base.family, waits);
    }
}

static uint32_t sleep_begin(progress_family *base) {
    uint32_t seen = progress_bell_begin(&((layered_family *)base)->bell);
    pthread_mutex_lock(&base->lock);
    for (progress_comm *comm = base->comms; comm; comm = comm->next)
        ask_for_calls((layered_comm *)comm);
    pthread_mutex_unlock(&base->lock);
    return seen;
}

static void sleep_until_rung(progress_family *base, uint32_t seen, int timeout_ms) {
    layered_family *family = (layered_family *)base;
    progress_bell_sleep(&family->bell, seen, family->has_to_look ? LAYERED_LOOK_MS : timeout_ms);
}

static void sleep_end(progress_family *base) { progress_bell_end(&((layered_family *)base)->bell); }

static void wake(progress_family *base) { ring(base); }

// Called after the communicator has failed. Waits until no inner operation uses the caller's
// memory, because the caller may free it afterwards. These waits end, because the inner
// communicators fail together with this one.
static void quiesce(progress_comm *base) {
    layered_comm *comm = (layered_comm *)base;
    tri_status status;
    if (comm->started) {
        tri_comm *on = comm->inner[comm->steps[comm->at].inner];
        status = on->backend->wait(on, comm->ticket);
    }
    for (uint64_t i = base->completed; i < base->started; i++) {
        const progress_item *item = progress_at(base, i);
        if (!tri_comm_kind_is_message(item->op.kind) || item->step == MESSAGE_NEW) continue;
        int header = comm->kind->header ? comm->kind->header(comm) : -1;
        tri_comm *on = comm->inner[item->step == MESSAGE_DATA ? (int)item->bytes : header];
        status = on->backend->wait(on, (tri_comm_ticket){item->number});
    }
    (void)status;
}

static void close_inner(tri_comm *const inner[LAYERED_INNER]) {
    for (int i = LAYERED_INNER - 1; i >= 0; i--) tri_comm_close(inner[i]);
}

static void close_comm(progress_comm *base) {
    layered_comm *comm = (layered_comm *)base;
    if (comm->scratch) comm->inner[0]->backend->free(comm->inner[0], comm->scratch);
    close_inner(comm->inner);
    free(comm);
}

static void close_family(progress_family *base) { free(base); }

static const progress_backend layered_progress;

static tri_status open_family(const layered_open *open, layered_family **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    layered_family *family = *out;
    progress_family_init(&family->base, &layered_progress,
                         tri_ledger_retain(open->inner[0]->ledger), NULL);
    family->base.size = open->size;
    family->base.job_rank = open->job_rank[open->rank];
    family->base.can_spin = family->base.yields_early = true;
    for (int i = 0; i < LAYERED_INNER; i++) {
        tri_comm *inner = open->inner[i];
        if (!inner || inner->size == 1) continue;
        struct progress_family *of = inner->backend->family ? inner->backend->family(inner) : NULL;
        family->base.can_spin &= of && of->can_spin;
        family->base.yields_early &= of && of->yields_early;
        family->has_to_look |= !inner->backend->notify;
    }
    return TRI_OK;
}

static tri_status create(const layered_open *open, progress_family *family, layered_comm **out) {
    layered_comm *comm = calloc(1, sizeof *comm);
    tri_status status = comm ? TRI_OK : TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    if (status == TRI_OK)
        status = progress_comm_init(&comm->base, &open->kind->backend, family, open->rank,
                                    open->size, open->job_rank);
    if (status != TRI_OK) {
        free(comm);
        close_inner(open->inner);
        return status;
    }
    comm->kind = open->kind;
    comm->added_abilities = open->added_abilities;
    memcpy(comm->inner, open->inner, sizeof comm->inner);
    void *scratch = NULL;
    if (open->scratch_bytes)
        status = comm->inner[0]->backend->alloc(comm->inner[0], open->scratch_bytes, &scratch);
    comm->scratch = scratch;
    comm->scratch_bytes = open->scratch_bytes;
    if (status != TRI_OK) {
        progress_comm_end(&comm->base);
        close_comm(&comm->base);
        return status;
    }
    progress_comm_add(&comm->base);
    for (int i = 0; i < LAYERED_INNER; i++)
        if (comm->inner[i]) tri_comm_link(&comm->base.head, comm->inner[i]);
    *out = comm;
    return TRI_OK;
}

tri_status layered_open_comm(const layered_open *open, tri_comm **out) {
    layered_family *family;
    layered_comm *comm;
    *out = NULL;
    tri_status status = open_family(open, &family);
    if (status != TRI_OK) {
        close_inner(open->inner);
        return status;
    }
    status = create(open, &family->base, &comm);
    if (status != TRI_OK) {
        progress_family_end(&family->base);
        return status;
    }
    status = progress_thread_start(&family->base);
    if (status != TRI_OK)
        progress_close(&comm->base.head);
    else
        *out = &comm->base.head;
    return status;
}

static tri_status split_inner(layered_comm *comm, const int colour[LAYERED_INNER],
                              const int key[LAYERED_INNER], tri_comm *inner[LAYERED_INNER]) {
    for (int i = 0; i < LAYERED_INNER; i++)
        if (comm->inner[i])
            TRI_TRY(comm->inner[i]->backend->split(comm->inner[i], colour[i], key[i], &inner[i]));
    return TRI_OK;
}

static tri_status branch(progress_comm *base, const progress_group *group, progress_comm **out) {
    layered_comm *comm = (layered_comm *)base, *child = NULL;
    int colour[LAYERED_INNER] = {-1, -1, -1}, key[LAYERED_INNER] = {0};
    tri_comm *inner[LAYERED_INNER] = {NULL};
    tri_status divided = TRI_OK;
    *out = NULL;
    if (group->size) divided = comm->kind->divide(comm, group, colour, key);
    int *job_rank = calloc((size_t)group->size + 1, sizeof *job_rank);
    tri_status status = job_rank ? split_inner(comm, colour, key, inner)
                                 : TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    if (status == TRI_OK) status = divided;
    if (status != TRI_OK) close_inner(inner);
    if (status == TRI_OK && group->size) {
        for (int r = 0; r < group->size; r++) job_rank[r] = base->job_rank[group->ranks[r]];
        layered_open open = {.kind = comm->kind,
                             .rank = group->rank,
                             .size = group->size,
                             .job_rank = job_rank,
                             .scratch_bytes = comm->scratch_bytes,
                             .added_abilities = comm->added_abilities};
        memcpy(open.inner, inner, sizeof inner);
        // inner[0] allocates the memory that callers ask for, so it must exist: another inner
        // communicator becomes inner[0] if the split gave this rank none there.
        for (int i = 1; i < LAYERED_INNER && !open.inner[0]; i++) {
            open.inner[0] = inner[i];
            open.inner[i] = NULL;
        }
        status = create(&open, base->family, &child);
        if (status == TRI_OK) *out = &child->base;
    }
    free(job_rank);
    return status;
}

static const progress_backend layered_progress = {
    .advance = advance,
    .awaits = awaits,
    .sleep_begin = sleep_begin,
    .sleep = sleep_until_rung,
    .sleep_end = sleep_end,
    .wake = wake,
    .wake_all = wake,
    .branch = branch,
    .quiesce = quiesce,
    .close_comm = close_comm,
    .close_family = close_family,
};

tri_status layered_alloc(tri_comm *head, size_t size_bytes, void **out) {
    tri_comm *inner = layered_of(head)->inner[0];
    *out = NULL;
    TRI_TRY(progress_failed(head));
    return inner->backend->alloc(inner, size_bytes, out);
}

void layered_free(tri_comm *head, void *memory) {
    tri_comm *inner = layered_of(head)->inner[0];
    inner->backend->free(inner, memory);
}
