// The communicator over NCCL. Its thread handles operations in groups: it lets the ranks compare
// their calls, issues the group to the GPU, and notices when the GPU is done. This file decides in
// which order the groups take these steps. A group is those operations of one call of `start` (a
// function of tri_comm_backend) that one link carries (group.h). A link is a communicator of NCCL
// with a queue of the GPU (link.h). The inner communicator, `compares`, has the same ranks and
// works in the host's memory: over it the ranks compare their calls.
#include "comm/nccl/nccl.h"

#include "base/limits.h"
#include "base/os.h"
#include "base/quantity.h"
#include "base/variable.h"
#include "comm/nccl/compare.h"
#include "comm/nccl/memory.h"
#include "comm/progress/failure.h"
#include "device/cuda/cuda.h"
#include "device/queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// PAUSE_NS: how long to sleep before NCCL is asked again whether it has connected the ranks.
// UNDER_WAY: how many groups of a link (a communicator of NCCL) may be issued and not done. Each
// such group has a ticket of the link's queue. If a queue has EVENTS tickets (device/cuda/queue.c)
// that are not done, making another one blocks the thread until the oldest is done. So UNDER_WAY is
// less than EVENTS.
// BLOCKS_OF_NUMBERS: how many thread blocks a call may use if the communicator carries only a few
// numbers at a time. NCCL allocates buffers for each of them, and more would not be faster.
// ISSUE_NS: for how long after a call the thread asks NCCL again and again, without sleeping,
// whether the call has been issued. NCCL needs some tens of microseconds for that.
enum { PAUSE_NS = 30000, UNDER_WAY = 64, BLOCKS_OF_NUMBERS = 2, ISSUE_NS = 200000 };

typedef struct nccl_comm {
    threaded_comm base;
    cuda_device *device;
    nccl_link all;       // for collectives; not open if the communicator only carries messages
    nccl_link *messages; // for messages: one for each pair of ranks and direction (link.h)
    nccl_sums sums;      // for sums that NCCL does not compute (steps.h)
    bool splits;         // every rank's NCCL can split communicators
    int timeout_ms;      // how long a group of operations may wait for other ranks
    // The communicator's thread goes through all groups, from the first to the last, again and
    // again. These members say what it has found about the groups before the current one:
    bool is_first; // there is no group before the current one
    // The comparison of the ranks' calls has begun, or is done, for every earlier group.
    bool all_compare;
    bool collectives_compare; // the same, for those earlier groups that consist of collectives
    bool messages_done;       // all earlier groups that consist of messages are done
    bool collectives_done;    // all earlier groups that consist of collectives are done
} nccl_comm;

static const tri_comm_backend nccl_backend;

static nccl_comm *nccl_of(const tri_comm *head) { return (nccl_comm *)(uintptr_t)head; }

// Ends the calls of NCCL that are under way on the GPU. Needs no lock: the communicator's thread
// calls it, or another thread while the communicator's thread does not run.
static void abort_all(nccl_comm *c) {
    nccl_link_abort(&c->all);
    nccl_links_abort(c->messages);
}

// Replaces the failure by the first failure of the family (all communicators split from one), so
// that all ranks report one cause. If there is none yet, this failure becomes the first.
static tri_status share_failure(nccl_comm *c, tri_status status) {
    tri_comm *compares = c->base.inner;
    char message[TRI_MESSAGE_MAX_BYTES];
    snprintf(message, sizeof message, "%s", tri_error_message());
    progress_take_failure(compares->backend->family(compares), status, message);
    return compares->backend->failed(compares);
}

// ---- functions on one operation group, called by the communicator's own thread alone

static tri_status checked(const nccl_comm *c, const nccl_group *g, tri_status status,
                          const char *why) {
    if (status == TRI_OK) return TRI_OK;
    const tri_comm_op *op = g && g->op_count ? &g->ops[0] : NULL;
    const tri_comm *head = &c->base.head;
    return TRI_FAIL(status, "rank %d: %s '%s': %s", tri_comm_job_rank(head, head->rank),
                    op ? tri_comm_kind_name(op->kind) : "a communicator",
                    op && op->label ? op->label : "", why[0] ? why : tri_error_message());
}

static tri_status find_link(nccl_comm *c, nccl_group *g) {
    char why[CUDA_WHY_BYTES] = "";
    g->link = &c->all;
    if (!nccl_group_is_message(g)) return TRI_OK;
    TRI_TRY(nccl_link_find(&c->messages, g->way, g->peer, c->device, &g->link));
    if (g->link->was_announced || g->way != NCCL_TO_PEER) return TRI_OK;
    return checked(c, g, c->device->runtime->nccl_id(g->link->id, why), why);
}

// Begins to compare the ranks' calls of a group, and sets *moved, if it is the group's turn. A
// collective's turn comes when the comparisons of all earlier groups have begun. A message's turn
// comes when the comparisons of all earlier collectives have begun and the earlier messages of its
// link (pair of ranks and direction) were issued. So all ranks begin the comparisons of one pair of
// ranks, or of all ranks, in the same order. The sender of a message also waits until its data are
// ready: nccl.h says why.
static tri_status begin_comparison(nccl_comm *c, nccl_group *g, bool *moved) {
    if (!g->link) TRI_TRY(find_link(c, g));
    bool may =
        nccl_group_is_message(g) ? c->collectives_compare && !g->link->is_behind : c->all_compare;
    if (!may || (g->way == NCCL_TO_PEER && !threaded_comes_after(&g->base))) return TRI_OK;
    TRI_TRY(nccl_compare_start(c->base.inner, g));
    g->state = NCCL_COMPARES;
    *moved = true;
    return TRI_OK;
}

static tri_status list_steps(const nccl_comm *c, nccl_group *g) {
    if (g->way == NCCL_TO_ITSELF) return nccl_steps_add_copies(&g->steps, g->ops, g->op_count);
    // In the communicator of NCCL for messages from one rank to another, the sender is rank 0.
    if (nccl_group_is_message(g))
        return nccl_steps_add_messages(&g->steps, g->ops, g->op_count, g->way == NCCL_TO_PEER);
    for (int i = 0; i < g->op_count; i++)
        TRI_TRY(nccl_steps_add(&g->steps, &c->base.head, &g->ops[i], &c->sums));
    return TRI_OK;
}

static tri_status end_comparison(nccl_comm *c, nccl_group *g, bool *moved) {
    tri_comm *compares = c->base.inner;
    char why[CUDA_WHY_BYTES] = "";
    if (!compares->backend->test(compares, g->inner)) return TRI_OK;
    TRI_TRY(nccl_compare_end(compares, &c->base.head, g));
    TRI_TRY(list_steps(c, g));
    if (!g->link->queue)
        TRI_TRY(checked(c, g, nccl_link_open(g->link, g->way == NCCL_FROM_PEER, 2, why), why));
    g->state = NCCL_READY;
    *moved = true;
    return TRI_OK;
}

// Begins to issue a group, and sets *moved, if it is the group's turn. Groups of one link
// (communicator of NCCL) are issued in order. Collectives are issued only after the messages before
// them are done, and messages only after the collectives before them.
static tri_status begin_issue(nccl_comm *c, nccl_group *g, bool *moved) {
    bool may = nccl_group_is_message(g) ? c->collectives_done : c->messages_done;
    if (!may || g->link->is_behind || g->link->under_way == UNDER_WAY) return TRI_OK;
    for (int i = 0; i < g->base.after_count; i++)
        TRI_TRY(c->device->head.backend->wait(g->link->queue, &g->base.after[i]));
    g->state = NCCL_ISSUES;
    *moved = true;
    return TRI_OK;
}

static tri_status issue_transfers(nccl_comm *c, const nccl_group *g, const nccl_step *step) {
    char why[CUDA_WHY_BYTES] = "";
    const cuda_transfer *transfers = g->steps.transfers + step->first;
    nccl_memory_register(c->device, g->link->nccl, transfers, step->count);
    tri_status status = c->device->runtime->issue_nccl(
        g->link->nccl, cuda_stream_of(g->link->queue), transfers, step->count, why);
    threaded_spin(&c->base, ISSUE_NS);
    return checked(c, g, status, why);
}

static tri_status issue_step(nccl_comm *c, const nccl_group *g, const nccl_step *step) {
    char why[CUDA_WHY_BYTES] = "";
    switch (step->kind) {
    case NCCL_TRANSFERS:
        return step->count ? issue_transfers(c, g, step) : TRI_OK;
    case NCCL_CAST:
        CUDA_LAUNCH(g->link->queue, pointwise, step->cast);
        break;
    case NCCL_SUM:
        CUDA_LAUNCH(g->link->queue, ordered_sum, step->sum);
        break;
    case NCCL_COPY:
        return checked(c, g,
                       c->device->runtime->copy(cuda_stream_of(g->link->queue), step->copy.to,
                                                step->copy.from, (size_t)step->copy.bytes, why),
                       why);
    }
    return TRI_OK;
}

// Issues a group's steps (the calls of NCCL and kernels of which its operations consist). If NCCL
// is still busy with the previous step, the thread tries again later.
static tri_status issue(nccl_comm *c, nccl_group *g, bool *moved) {
    char why[CUDA_WHY_BYTES] = "";
    for (;;) {
        cuda_event_state state = nccl_link_state(g->link, why);
        if (state == CUDA_EVENT_FAILED) return checked(c, g, TRI_PEER_LOST, why);
        if (state == CUDA_EVENT_PENDING) return TRI_OK;
        *moved = true;
        if (g->next_step == g->steps.count) break;
        TRI_TRY(issue_step(c, g, &g->steps.steps[g->next_step++]));
    }
    TRI_TRY(c->device->head.backend->record(g->link->queue, &g->done));
    g->link->under_way++;
    g->state = NCCL_RUNS;
    return TRI_OK;
}

static tri_status end_run(nccl_group *g, bool *moved) {
    if (!tri_ticket_is_done(&g->done)) return TRI_OK;
    TRI_TRY(tri_ticket_wait(&g->done));
    g->link->under_way--;
    g->base.done = *moved = true;
    return TRI_OK;
}

static tri_status advance_group(nccl_comm *c, nccl_group *g, bool *moved) {
    if (g->state == NCCL_QUEUED) TRI_TRY(begin_comparison(c, g, moved));
    if (g->state == NCCL_COMPARES) TRI_TRY(end_comparison(c, g, moved));
    if (g->state == NCCL_READY) TRI_TRY(begin_issue(c, g, moved));
    if (g->state == NCCL_ISSUES) TRI_TRY(issue(c, g, moved));
    return g->state == NCCL_RUNS ? end_run(g, moved) : TRI_OK;
}

// Fails if a group has waited too long for other ranks. Time in which it waits for work of this
// rank does not count.
static tri_status check_time(const nccl_comm *c, nccl_group *g, int64_t now_ns) {
    if (!threaded_comes_after(&g->base)) return TRI_OK;
    if (!g->waits_since_ns) g->waits_since_ns = now_ns;
    if ((now_ns - g->waits_since_ns) / 1000000 < c->timeout_ms) return TRI_OK;
    char why[96];
    snprintf(why, sizeof why, "not done after %s: another rank does not take part",
             tri_seconds_text(c->timeout_ms * 1e-3));
    return checked(c, g, TRI_TIMEOUT, why);
}

// Checks for failures, because they may occur even while no group advances. Called once each time
// the thread goes through all groups. The error message names an operation of `first`, the first
// group.
static tri_status check_all(nccl_comm *c, nccl_group *first) {
    char why[CUDA_WHY_BYTES] = "";
    TRI_TRY(c->base.inner->backend->failed(c->base.inner));
    if (nccl_link_state(&c->all, why) == CUDA_EVENT_FAILED)
        return checked(c, first, TRI_PEER_LOST, why);
    for (nccl_link *link = c->messages; link; link = link->next)
        if (nccl_link_state(link, why) == CUDA_EVENT_FAILED)
            return checked(c, first, TRI_PEER_LOST, why);
    return first->base.done ? TRI_OK : check_time(c, first, tri_os.monotonic_ns());
}

// ---- functions that the base (comm/threaded) calls

static tri_status make(threaded_comm *base, const tri_comm_op *ops, int count,
                       threaded_group **out) {
    for (int i = 0; i < count; i++)
        if (!tri_comm_kind_is_message(ops[i].kind) && !nccl_of(&base->head)->all.queue)
            return TRI_FAIL(TRI_UNSUPPORTED, "%s '%s': this communicator carries messages only",
                            tri_comm_kind_name(ops[i].kind), ops[i].label ? ops[i].label : "");
    return nccl_groups_make(&base->head, ops, count, out);
}

static void begin(threaded_comm *base) {
    nccl_comm *c = (nccl_comm *)base;
    c->is_first = c->all_compare = c->collectives_compare = true;
    c->messages_done = c->collectives_done = true;
    c->all.is_behind = false;
    for (nccl_link *link = c->messages; link; link = link->next) link->is_behind = false;
}

static tri_status advance(threaded_comm *base, threaded_group *group, bool *moved) {
    nccl_comm *c = (nccl_comm *)base;
    nccl_group *g = (nccl_group *)group;
    bool is_message = nccl_group_is_message(g);
    TRI_TRY(advance_group(c, g, moved));
    if (c->is_first) TRI_TRY(check_all(c, g));
    c->is_first = false;
    bool compares = g->state >= NCCL_COMPARES;
    c->all_compare = c->all_compare && compares;
    c->collectives_compare = c->collectives_compare && (is_message || compares);
    c->messages_done = c->messages_done && (!is_message || g->base.done);
    c->collectives_done = c->collectives_done && (is_message || g->base.done);
    g->link->is_behind = g->link->is_behind || g->state < NCCL_RUNS;
    return TRI_OK;
}

// Tells the other ranks of the failure, and ends the calls of NCCL that are under way.
static tri_status give_up(threaded_comm *base, tri_status status) {
    nccl_comm *c = (nccl_comm *)base;
    status = share_failure(c, status);
    abort_all(c);
    return status;
}

static const threaded_kind nccl_kind = {.make = make,
                                        .free_group = nccl_group_free,
                                        .begin = begin,
                                        .advance = advance,
                                        .give_up = give_up};

// ---- functions of tri_comm_backend

static void nccl_stop(tri_comm *comm) {
    nccl_comm *c = nccl_of(comm);
    if (threaded_stop(&c->base)) abort_all(c);
}

// Aborts the communicators of NCCL after a failure. Closing them normally would wait for the other
// ranks, which may have ended.
static void abort_after_failure(nccl_comm *c) {
    char first[TRI_MESSAGE_MAX_BYTES];
    snprintf(first, sizeof first, "%s", tri_error_message());
    tri_status status = c->base.inner->backend->failed(c->base.inner);
    if (status == TRI_OK) return;
    abort_all(c);
    (void)TRI_FAIL(status, "%s", first);
}

static void nccl_close(tri_comm *comm) {
    nccl_comm *c = nccl_of(comm);
    nccl_stop(comm);
    abort_after_failure(c);
    nccl_link_close(&c->all);
    nccl_links_close(c->messages, comm->rank);
    nccl_memory_free(c->device, c->sums.scratch);
    tri_comm_close(c->base.inner); // it may still use memory of the groups, which are freed next
    threaded_end(&c->base);
    free(c);
}

static tri_status nccl_alloc(tri_comm *comm, size_t size_bytes, void **out) {
    return nccl_memory_alloc(nccl_of(comm)->device, size_bytes, out);
}

static void nccl_free(tri_comm *comm, void *memory) {
    nccl_memory_free(nccl_of(comm)->device, memory);
}

static unsigned nccl_abilities(const tri_comm *comm) {
    return TRI_COMM_ACCUMULATES | TRI_COMM_WIRE_TYPES | TRI_COMM_FINDS_MISMATCHES |
           TRI_COMM_DEVICE_MEMORY | (nccl_of(comm)->sums.rank_order ? TRI_COMM_RANK_ORDER : 0u);
}

static int64_t scratch_of(tri_comm_use use) {
    static const int64_t bytes[] = {
        [TRI_COMM_BULK] = 16 << 20, [TRI_COMM_NUMBERS] = 1 << 20, [TRI_COMM_MESSAGES] = 0};
    return bytes[use];
}

// Estimates how much memory NCCL takes for a communicator, which is not documented. A communicator
// has channels, and each channel has three buffers for every connection to another rank: the
// largest has 4 MiB (NCCL_BUFFSIZE), and the three together have 10 MiB. The number of channels
// depends on how the GPUs are connected. Collectives need the connections of a ring and of a tree;
// a link (here: a communicator of two ranks for messages) needs one connection.
int64_t tri_comm_nccl_bytes(int ranks, tri_comm_use use, int links, int64_t *estimate) {
    enum { CHANNELS = 16, CONNECTION_BYTES = 10 << 20, COLLECTIVE_CONNECTIONS = 2 };
    if (ranks < 2) return 0;
    int connections = links + (use == TRI_COMM_MESSAGES ? 0 : COLLECTIVE_CONNECTIONS);
    *estimate += (int64_t)connections * CHANNELS * CONNECTION_BYTES;
    return scratch_of(use);
}

static int64_t nccl_scratch_bytes(int ranks, bool is_private) { return scratch_of(TRI_COMM_BULK); }

static const tri_comm_backend nccl_backend = {
    .name = "nccl",
    .abilities = nccl_abilities,
    .scratch_bytes = nccl_scratch_bytes,
    .close = nccl_close,
    .stop = nccl_stop,
    .alloc = nccl_alloc,
    .free = nccl_free,
    THREADED_SLOTS,
};

// ---- opening

bool tri_comm_nccl_takes(const tri_device_backend *backend) { return backend == &tri_device_cuda; }

tri_status tri_comm_nccl_find(const tri_device *device, bool *splits) {
    const char *wanted = "1";
    char why[CUDA_WHY_BYTES] = "";
    unsigned abilities = 0;
    TRI_TRY(tri_variable_choice(NULL, "TRIREME_NCCL", &wanted));
    tri_status status = cuda_of(device)->runtime->find_nccl(&abilities, why);
    *splits = abilities & CUDA_NCCL_SPLITS;
    if (!strcmp(wanted, "0")) return TRI_FAIL(TRI_NOT_FOUND, "TRIREME_NCCL=0 forbids NCCL");
    return status == TRI_OK ? TRI_OK : TRI_FAIL(status, "%s", why);
}

// Rank 0 makes NCCL's id and sends it to all. Every rank learns whether that succeeded.
static tri_status share_id(nccl_comm *c) {
    char why[CUDA_WHY_BYTES] = "", *id = c->all.id;
    tri_comm *compares = c->base.inner;
    tri_status status = TRI_OK;
    if (compares->rank == 0) status = checked(c, NULL, c->device->runtime->nccl_id(id, why), why);
    TRI_TRY(tri_comm_agree(compares, status, "NCCL's id"));
    return tri_comm_run(compares, &(tri_comm_op){.kind = TRI_COMM_BROADCAST,
                                                 .dtype = TRI_U8,
                                                 .count = CUDA_NCCL_ID_BYTES,
                                                 .send = id,
                                                 .recv = id,
                                                 .label = "NCCL's id"});
}

// Waits until NCCL has connected the ranks.
static tri_status await(nccl_comm *c, const nccl_link *link) {
    char why[CUDA_WHY_BYTES] = "";
    int64_t begin = tri_os.monotonic_ns();
    cuda_event_state state;
    while ((state = nccl_link_state(link, why)) == CUDA_EVENT_PENDING) {
        TRI_TRY(c->base.inner->backend->failed(c->base.inner));
        if ((tri_os.monotonic_ns() - begin) / 1000000 > c->timeout_ms)
            return checked(c, NULL, TRI_TIMEOUT, "NCCL did not connect the ranks in time");
        tri_os.sleep_ns(PAUSE_NS);
    }
    return state == CUDA_EVENT_DONE ? TRI_OK : checked(c, NULL, TRI_PEER_LOST, why);
}

static tri_status connect_all(nccl_comm *c, const tri_comm_nccl_config *config) {
    char why[CUDA_WHY_BYTES] = "";
    const tri_comm *of = config->parent;
    bool splits = of && of->backend == &nccl_backend && nccl_of(of)->splits;
    nccl_link *parent = splits ? &nccl_of(of)->all : NULL;
    if (!parent) {
        TRI_TRY(share_id(c));
        TRI_TRY(checked(c, NULL, nccl_link_open(&c->all, c->base.head.rank, c->base.head.size, why),
                        why));
    } else {
        TRI_TRY(checked(c, NULL,
                        nccl_link_split(parent, config->colour, c->base.head.rank, &c->all, why),
                        why));
        TRI_TRY(await(c, parent));
    }
    return await(c, &c->all);
}

static tri_status open_parts(nccl_comm *c, const tri_comm_nccl_config *config) {
    c->sums =
        (nccl_sums){.scratch_bytes = scratch_of(config->use), .rank_order = config->rank_order};
    if (config->use != TRI_COMM_MESSAGES) {
        TRI_TRY(connect_all(c, config));
        void *scratch;
        TRI_TRY(nccl_memory_alloc(c->device, (size_t)c->sums.scratch_bytes, &scratch));
        c->sums.scratch = scratch;
    }
    return threaded_run(&c->base);
}

tri_status tri_comm_nccl_open(tri_comm *compares, const tri_comm_nccl_config *config,
                              tri_comm **out) {
    nccl_comm *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) {
        tri_comm_close(compares);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    }
    threaded_init(&c->base, &nccl_kind, &nccl_backend, compares, config->device);
    c->device = cuda_of(config->device);
    c->splits = config->splits;
    c->all = (nccl_link){.way = NCCL_AMONG_ALL,
                         .device = c->device,
                         .most_blocks = config->use == TRI_COMM_NUMBERS ? BLOCKS_OF_NUMBERS : 0};
    struct progress_family *family = threaded_family(&c->base.head);
    c->timeout_ms = family && family->timeout_ms ? family->timeout_ms : TRI_DEFAULT_TIMEOUT_MS;
    tri_status status = open_parts(c, config);
    if (status == TRI_OK) {
        *out = &c->base.head;
        return TRI_OK;
    }
    status = share_failure(c, status); // tells the other ranks, which wait for this one
    abort_all(c);
    char message[TRI_MESSAGE_MAX_BYTES];
    snprintf(message, sizeof message, "%s", tri_error_message());
    nccl_close(&c->base.head);
    return TRI_FAIL(status, "%s", message);
}
