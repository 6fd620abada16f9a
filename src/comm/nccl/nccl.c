// The communicator over NCCL: keeps operation groups in order, and has a thread that issues them,
// so that the caller need not wait while ranks compare what they call (see nccl.h).
#include "comm/nccl/nccl.h"

#include "base/limits.h"
#include "base/os.h"
#include "base/thread.h"
#include "comm/nccl/group.h"
#include "comm/op.h"
#include "comm/progress/describe.h"
#include "comm/progress/failure.h"
#include "comm/staged/staged.h"
#include "device/cuda/internal.h"
#include "device/queue.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// UNDER_WAY: how many groups may be issued at one time. A queue tells 256 tickets apart.
enum { PAUSE_NS = 30000, UNDER_WAY = 64 };

typedef struct nccl_comm {
    tri_comm head;
    cuda_device *device;
    tri_comm *compares, *messages;
    tri_queue *queue;
    cuda_nccl *nccl;
    void *scratch;
    bool rank_order;
    int timeout_ms;
    tri_ticket after[NCCL_MOST_AFTER]; // of the group that is started next
    int after_count;
    pthread_t thread;
    bool has_thread;
    int under_way;

    pthread_mutex_t lock;
    pthread_cond_t more, less;
    nccl_group *first, *last; // not yet done; only the thread removes them
    uint64_t started;
    bool stops;
    tri_status status; // the first failure
    char message[TRI_MESSAGE_MAX_BYTES];
} nccl_comm;

static const tri_comm_backend nccl_backend;

static nccl_comm *nccl_of(tri_comm *head) { return (nccl_comm *)head; }

static tri_status outcome(const nccl_comm *c) {
    return c->status == TRI_OK ? TRI_OK : TRI_FAIL(c->status, "%s", c->message);
}

// Ends what is under way on the GPU, where a collective whose other ranks are lost would wait for
// ever. Only the thread calls it, or nobody else is there any more.
static void abort_nccl(nccl_comm *c) {
    if (c->nccl) c->device->runtime->close_nccl(c->nccl, true);
    c->nccl = NULL;
}

// Takes over the family's first failure, so that all ranks report one cause; if there is none yet,
// this failure becomes it.
static tri_status share_failure(nccl_comm *c, tri_status status) {
    struct progress_family *family = c->compares->backend->family(c->compares);
    char message[TRI_MESSAGE_MAX_BYTES];
    snprintf(message, sizeof message, "%s", tri_error_message());
    progress_take_failure(family, status, message);
    return c->compares->backend->failed(c->compares);
}

// Records the first failure, tells the other ranks of it, and ends what is under way, so that
// nobody waits for this rank in vain. Called by the thread, under the lock.
static void fail(nccl_comm *c, tri_status status) {
    if (c->status == TRI_OK) {
        c->status = share_failure(c, status);
        snprintf(c->message, sizeof c->message, "%s", tri_error_message());
    }
    abort_nccl(c);
    pthread_cond_broadcast(&c->less);
}

static tri_status checked(nccl_comm *c, const nccl_group *g, tri_status status, const char *why) {
    if (status == TRI_OK) return TRI_OK;
    const tri_comm_op *op = g && g->op_count ? &g->ops[0] : NULL;
    return TRI_FAIL(status, "rank %d: %s '%s': %s", tri_comm_job_rank(&c->head, c->head.rank),
                    op ? tri_comm_kind_name(op->kind) : "a communicator",
                    op && op->label ? op->label : "", why);
}

static tri_status start_comparison(nccl_comm *c, nccl_group *g) {
    tri_comm_op *gathers = calloc((size_t)g->op_count, sizeof *gathers);
    if (!gathers) return TRI_FAIL(TRI_NO_MEMORY, "no memory for %d operations", g->op_count);
    for (int i = 0; i < g->op_count; i++) {
        tri_comm_call *calls = nccl_group_calls(&c->head, g, i);
        tri_comm_call_of(&g->ops[i], calls);
        gathers[i] = (tri_comm_op){.kind = TRI_COMM_ALL_GATHER,
                                   .dtype = TRI_U8,
                                   .count = sizeof *calls,
                                   .send = calls,
                                   .recv = calls + 1,
                                   .label = g->ops[i].label};
    }
    tri_status status = c->compares->backend->start(c->compares, gathers, g->op_count, &g->inner);
    free(gathers);
    return status;
}

static tri_status compare(const nccl_comm *c, const nccl_group *g, int op) {
    const tri_comm_call *mine = nccl_group_calls(&c->head, g, op), *all = mine + 1;
    for (int r = 0; r < c->head.size; r++) {
        if (tri_comm_calls_agree(mine, &all[r])) continue;
        char text[TRI_MESSAGE_MAX_BYTES];
        progress_disagreement(progress_of(c->compares), 0,
                              (progress_caller){.rank = c->head.rank, .call = mine},
                              (progress_caller){.rank = r, .call = &all[r]}, text, sizeof text);
        return TRI_FAIL(TRI_MISMATCH, "%s", text);
    }
    return TRI_OK;
}

static tri_status start_messages(nccl_comm *c, nccl_group *g) {
    for (int i = 0; i < g->after_count; i++) TRI_TRY(tri_comm_after(c->messages, &g->after[i]));
    g->state = NCCL_RUNS;
    return c->messages->backend->start(c->messages, g->ops, g->op_count, &g->inner);
}

static tri_status end_comparison(nccl_comm *c, nccl_group *g) {
    TRI_TRY(c->compares->backend->wait(c->compares, g->inner));
    for (int i = 0; i < g->op_count; i++) TRI_TRY(compare(c, g, i));
    for (int i = 0; i < g->op_count; i++)
        TRI_TRY(nccl_steps_add(&g->steps, &c->head, &g->ops[i], c->rank_order, c->scratch));
    for (int i = 0; i < g->after_count; i++)
        TRI_TRY(c->device->head.backend->wait(c->queue, &g->after[i]));
    g->state = NCCL_ISSUES;
    return TRI_OK;
}

static tri_status issue_step(nccl_comm *c, nccl_group *g, const nccl_step *step) {
    char why[CUDA_WHY_BYTES] = "";
    switch (step->kind) {
    case NCCL_TRANSFERS:
        return checked(c, g,
                       c->device->runtime->issue_nccl(c->nccl, cuda_stream_of(c->queue),
                                                      g->steps.transfers + step->first, step->count,
                                                      why),
                       why);
    case NCCL_CAST:
        CUDA_LAUNCH(c->queue, pointwise, step->cast);
        break;
    case NCCL_SUM:
        CUDA_LAUNCH(c->queue, ordered_sum, step->sum);
        break;
    }
    return TRI_OK;
}

// Issues a group. NCCL may still be busy with the step before; then the thread comes back later.
static tri_status issue(nccl_comm *c, nccl_group *g, bool *moved) {
    char why[CUDA_WHY_BYTES] = "";
    for (;;) {
        cuda_event_state state = c->device->runtime->nccl_state(c->nccl, why);
        if (state == CUDA_EVENT_FAILED) return checked(c, g, TRI_PEER_LOST, why);
        if (state == CUDA_EVENT_PENDING) return TRI_OK;
        *moved = true;
        if (g->next_step == g->steps.count) break;
        const nccl_step *step = &g->steps.steps[g->next_step++];
        if (step->kind != NCCL_TRANSFERS || step->count) TRI_TRY(issue_step(c, g, step));
    }
    TRI_TRY(c->device->head.backend->record(c->queue, &g->done));
    c->under_way++;
    g->state = NCCL_RUNS;
    return TRI_OK;
}

static bool comes_after(const nccl_group *g) {
    for (int i = 0; i < g->after_count; i++)
        if (!tri_ticket_is_done(&g->after[i])) return false;
    return true;
}

// Fails if a group waits longer for other ranks than they may take. Time in which it waits for work
// of this rank does not count.
static tri_status check_time(nccl_comm *c, nccl_group *g, int64_t now_ns) {
    if (g->is_messages || !comes_after(g)) return TRI_OK; // staged has limits of its own
    if (!g->waits_since_ns) g->waits_since_ns = now_ns;
    if ((now_ns - g->waits_since_ns) / 1000000 < c->timeout_ms) return TRI_OK;
    char why[96];
    snprintf(why, sizeof why, "not done after %.1f s: another rank does not take part",
             c->timeout_ms * 1e-3);
    return checked(c, g, TRI_TIMEOUT, why);
}

static tri_status end_run(nccl_comm *c, nccl_group *g, bool *moved) {
    if (g->is_messages) {
        if (!c->messages->backend->test(c->messages, g->inner)) return TRI_OK;
        TRI_TRY(c->messages->backend->wait(c->messages, g->inner));
    } else {
        if (!tri_ticket_is_done(&g->done)) return TRI_OK;
        TRI_TRY(tri_ticket_wait(&g->done));
        c->under_way--;
    }
    g->state = NCCL_DONE;
    *moved = true;
    return TRI_OK;
}

static tri_status advance(nccl_comm *c, nccl_group *g, bool may_begin, bool *moved) {
    if (g->state == NCCL_QUEUED) {
        if (!may_begin) return TRI_OK;
        *moved = true;
        if (g->is_messages) return start_messages(c, g);
        TRI_TRY(start_comparison(c, g));
        g->state = NCCL_COMPARES;
    }
    if (g->state == NCCL_COMPARES) {
        if (!c->compares->backend->test(c->compares, g->inner)) return TRI_OK;
        TRI_TRY(end_comparison(c, g));
        *moved = true;
    }
    if (g->state == NCCL_ISSUES) return issue(c, g, moved);
    return g->state == NCCL_RUNS ? end_run(c, g, moved) : TRI_OK;
}

static tri_status check_all(nccl_comm *c) {
    char why[CUDA_WHY_BYTES] = "";
    TRI_TRY(c->compares->backend->failed(c->compares));
    if (c->device->runtime->nccl_state(c->nccl, why) == CUDA_EVENT_FAILED)
        return checked(c, c->first, TRI_PEER_LOST, why);
    return TRI_OK;
}

static void drop_done(nccl_comm *c) {
    nccl_group **link = &c->first, *last = NULL;
    while (*link) {
        nccl_group *group = *link;
        if (group->state == NCCL_DONE) {
            *link = group->next;
            nccl_group_free(group);
            pthread_cond_broadcast(&c->less);
        } else {
            last = group;
            link = &group->next;
        }
    }
    c->last = last;
}

// Moves all groups on. Collectives are issued in order, after the messages before them are done;
// messages begin after the collectives before them are done. Called under the lock, which it
// releases in between, so that groups may be added at the end meanwhile.
static bool advance_all(nccl_comm *c) {
    bool moved = false, all_issued = true, no_messages = true, no_collectives = true;
    for (nccl_group *g = c->first; g && c->status == TRI_OK && !c->stops; g = g->next) {
        bool may =
            g->is_messages ? no_collectives : all_issued && no_messages && c->under_way < UNDER_WAY;
        pthread_mutex_unlock(&c->lock);
        tri_status status = advance(c, g, may, &moved);
        if (status == TRI_OK && g == c->first && g->state != NCCL_DONE)
            status = check_time(c, g, tri_os.monotonic_ns());
        if (status == TRI_OK) status = check_all(c);
        pthread_mutex_lock(&c->lock);
        if (status != TRI_OK) fail(c, status);
        bool done = g->state == NCCL_DONE;
        if (g->is_messages) no_messages = no_messages && done;
        if (!g->is_messages) no_collectives = no_collectives && done;
        if (!g->is_messages) all_issued = all_issued && g->state >= NCCL_RUNS;
    }
    drop_done(c);
    return moved;
}

static void *work(void *context) {
    nccl_comm *c = context;
    pthread_mutex_lock(&c->lock);
    while (!c->stops) {
        if (!c->first || c->status != TRI_OK) {
            pthread_cond_wait(&c->more, &c->lock);
        } else if (!advance_all(c)) {
            pthread_mutex_unlock(&c->lock);
            tri_os.sleep_ns(PAUSE_NS);
            pthread_mutex_lock(&c->lock);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

void tri_comm_nccl_stop(tri_comm *comm) {
    if (!comm || comm->backend != &nccl_backend) return;
    nccl_comm *c = nccl_of(comm);
    pthread_mutex_lock(&c->lock);
    c->stops = true;
    bool idle = !c->first;
    if (c->status == TRI_OK) {
        c->status = TRI_PEER_LOST;
        snprintf(c->message, sizeof c->message, "the communicator was closed");
    }
    pthread_cond_broadcast(&c->less);
    pthread_cond_broadcast(&c->more);
    pthread_mutex_unlock(&c->lock);
    if (c->has_thread) pthread_join(c->thread, NULL);
    c->has_thread = false;
    if (!idle) abort_nccl(c);
    tri_comm_staged_stop(c->messages);
}

static void nccl_close(tri_comm *comm) {
    nccl_comm *c = nccl_of(comm);
    tri_comm_nccl_stop(comm);
    if (c->nccl) c->device->runtime->close_nccl(c->nccl, false);
    tri_queue_close(c->queue);
    if (c->scratch) c->device->head.backend->free(&c->device->head, c->scratch);
    tri_comm_close(c->compares); // before the groups' memory is freed, which it may still touch
    tri_comm_close(c->messages);
    nccl_groups_free(c->first);
    pthread_cond_destroy(&c->more);
    pthread_cond_destroy(&c->less);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static tri_status nccl_split(tri_comm *comm, int colour, int key, tri_comm **out) {
    *out = NULL;
    return TRI_FAIL(TRI_UNSUPPORTED,
                    "a communicator of NCCL is not split: split the control communicator");
}

static tri_status nccl_alloc(tri_comm *comm, size_t size_bytes, void **out) {
    tri_device *device = &nccl_of(comm)->device->head;
    return device->backend->alloc(device, size_bytes, out);
}

static void nccl_free(tri_comm *comm, void *memory) {
    tri_device *device = &nccl_of(comm)->device->head;
    device->backend->free(device, memory);
}

static tri_status nccl_after(tri_comm *comm, const tri_ticket *ticket) {
    nccl_comm *c = nccl_of(comm);
    if (tri_ticket_is_done(ticket) || c->after_count == NCCL_MOST_AFTER)
        return tri_ticket_wait(ticket);
    c->after[c->after_count++] = *ticket;
    return TRI_OK;
}

static tri_status nccl_start(tri_comm *comm, const tri_comm_op *ops, int count,
                             tri_comm_ticket *out) {
    nccl_comm *c = nccl_of(comm);
    nccl_group *first, *last;
    for (int i = 0; i < count; i++) TRI_TRY(tri_comm_op_check(comm, &ops[i]));
    TRI_TRY(nccl_groups_make(comm, ops, count, c->after, c->after_count, &first, &last));
    c->after_count = 0;
    pthread_mutex_lock(&c->lock);
    tri_status status = outcome(c);
    if (status == TRI_OK) {
        c->started++;
        for (nccl_group *g = first; g; g = g->next) g->number = c->started;
        if (first) {
            *(c->last ? &c->last->next : &c->first) = first;
            c->last = last;
        }
        pthread_cond_signal(&c->more);
    }
    *out = (tri_comm_ticket){c->started};
    pthread_mutex_unlock(&c->lock);
    if (status != TRI_OK) nccl_groups_free(first);
    return status;
}

// Whether a group of that number is not done yet. Called under the lock.
static bool is_pending(const nccl_comm *c, uint64_t number) {
    if (c->status != TRI_OK) return false;
    for (const nccl_group *g = c->first; g; g = g->next)
        if (g->number == number) return true;
    return false;
}

static bool nccl_test(tri_comm *comm, tri_comm_ticket ticket) {
    nccl_comm *c = nccl_of(comm);
    pthread_mutex_lock(&c->lock);
    bool pending = is_pending(c, ticket.value);
    pthread_mutex_unlock(&c->lock);
    return !pending;
}

static tri_status nccl_wait(tri_comm *comm, tri_comm_ticket ticket) {
    nccl_comm *c = nccl_of(comm);
    pthread_mutex_lock(&c->lock);
    while (is_pending(c, ticket.value)) pthread_cond_wait(&c->less, &c->lock);
    tri_status status = outcome(c);
    pthread_mutex_unlock(&c->lock);
    return status;
}

static void nccl_abort(tri_comm *comm, const char *why) {
    tri_comm *compares = nccl_of(comm)->compares;
    compares->backend->abort(compares, why);
}

static tri_status nccl_failed(tri_comm *comm) {
    nccl_comm *c = nccl_of(comm);
    pthread_mutex_lock(&c->lock);
    tri_status status = outcome(c);
    pthread_mutex_unlock(&c->lock);
    return status == TRI_OK ? c->compares->backend->failed(c->compares) : status;
}

// The family of the communicator that compares calls. It has the connections by which ranks learn
// of failures, so both fail together.
static struct progress_family *nccl_family(tri_comm *comm) {
    tri_comm *compares = nccl_of(comm)->compares;
    return compares->backend->family ? compares->backend->family(compares) : NULL;
}

static const tri_ledger_ring *nccl_ledger_of(tri_comm *comm, int rank) {
    return tri_comm_ledger_of(nccl_of(comm)->compares, rank);
}

static unsigned nccl_abilities(const tri_comm *comm) {
    return TRI_COMM_ACCUMULATES | TRI_COMM_WIRE_TYPES | TRI_COMM_FINDS_MISMATCHES |
           TRI_COMM_DEVICE_MEMORY |
           (((const nccl_comm *)comm)->rank_order ? TRI_COMM_RANK_ORDER : 0u);
}

static int64_t nccl_scratch_bytes(int ranks, bool is_private) { return NCCL_SCRATCH_BYTES; }

static const tri_comm_backend nccl_backend = {
    .name = "nccl",
    .abilities = nccl_abilities,
    .scratch_bytes = nccl_scratch_bytes,
    .close = nccl_close,
    .split = nccl_split,
    .alloc = nccl_alloc,
    .free = nccl_free,
    .after = nccl_after,
    .start = nccl_start,
    .test = nccl_test,
    .wait = nccl_wait,
    .abort = nccl_abort,
    .failed = nccl_failed,
    .family = nccl_family,
    .ledger_of = nccl_ledger_of,
};

bool tri_comm_nccl_takes(const tri_device *device) { return device->backend == &tri_device_cuda; }

bool tri_comm_nccl_is_there(const tri_device *device) {
    const char *wanted = getenv("TRIREME_NCCL");
    return !(wanted && strcmp(wanted, "0") == 0) && cuda_of(device)->runtime->has_nccl();
}

// Gives all ranks NCCL's id, which rank 0 makes and by which NCCL connects them. Every rank learns
// whether that went well.
static tri_status share_id(nccl_comm *c, char id[CUDA_NCCL_ID_BYTES]) {
    char why[CUDA_WHY_BYTES] = "";
    tri_status status = TRI_OK;
    if (c->head.rank == 0) status = checked(c, NULL, c->device->runtime->nccl_id(id, why), why);
    TRI_TRY(tri_comm_agree(c->compares, status, "NCCL's id"));
    return tri_comm_run(c->compares, &(tri_comm_op){.kind = TRI_COMM_BROADCAST,
                                                    .dtype = TRI_U8,
                                                    .count = CUDA_NCCL_ID_BYTES,
                                                    .send = id,
                                                    .recv = id,
                                                    .label = "NCCL's id"});
}

static tri_status connect_all(nccl_comm *c) {
    char id[CUDA_NCCL_ID_BYTES] = "", why[CUDA_WHY_BYTES] = "";
    const cuda_runtime *runtime = c->device->runtime;
    TRI_TRY(share_id(c, id));
    tri_status status =
        runtime->open_nccl(c->device->context, id, c->head.rank, c->head.size, &c->nccl, why);
    TRI_TRY(checked(c, NULL, status, why));
    int64_t begin = tri_os.monotonic_ns();
    cuda_event_state state;
    while ((state = runtime->nccl_state(c->nccl, why)) == CUDA_EVENT_PENDING) {
        TRI_TRY(c->compares->backend->failed(c->compares));
        if ((tri_os.monotonic_ns() - begin) / 1000000 > c->timeout_ms)
            return checked(c, NULL, TRI_TIMEOUT, "NCCL did not connect the ranks in time");
        tri_os.sleep_ns(PAUSE_NS);
    }
    return state == CUDA_EVENT_DONE ? TRI_OK : checked(c, NULL, TRI_PEER_LOST, why);
}

static tri_status open_parts(nccl_comm *c) {
    tri_device *device = &c->device->head;
    TRI_TRY(tri_queue_open(device, &c->queue));
    TRI_TRY(device->backend->alloc(device, NCCL_SCRATCH_BYTES, &c->scratch));
    TRI_TRY(connect_all(c));
    TRI_TRY(tri_thread_demand(&c->thread, work, c, "a communicator"));
    c->has_thread = true;
    return TRI_OK;
}

tri_status tri_comm_nccl_open(tri_comm *compares, tri_comm *messages, tri_device *device,
                              bool rank_order, tri_comm **out) {
    nccl_comm *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) {
        tri_comm_close(compares);
        tri_comm_close(messages);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    }
    c->head = *compares;
    c->head.backend = &nccl_backend;
    c->compares = compares;
    c->messages = messages;
    c->device = cuda_of(device);
    c->rank_order = rank_order;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->more, NULL);
    pthread_cond_init(&c->less, NULL);
    struct progress_family *family = nccl_family(&c->head);
    c->timeout_ms = family && family->timeout_ms ? family->timeout_ms : TRI_DEFAULT_TIMEOUT_MS;
    tri_status status = open_parts(c);
    if (status != TRI_OK) {
        // The other ranks wait for this one in the open, so they have to be told.
        status = share_failure(c, status);
        abort_nccl(c);
        char message[TRI_MESSAGE_MAX_BYTES];
        snprintf(message, sizeof message, "%s", tri_error_message());
        nccl_close(&c->head);
        return TRI_FAIL(status, "%s", message);
    }
    *out = &c->head;
    return TRI_OK;
}
