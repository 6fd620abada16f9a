// The communicator that copies a device's data to the host's memory and lets an inner communicator
// send them from there (staged.h). Its operation groups (each is the operations that one call of
// `start` begins together) are in a queue, which a thread advances. This file decides which of them
// may be under way side by side.
#include "comm/staged/staged.h"

#include "comm/staged/group.h"
#include "device/queue.h"

#include <stdlib.h>

typedef struct staged_comm {
    threaded_comm base;
    staged_route route;
    staged_memory spare;
    // What the thread has found, in its current pass over the queue, about the operation groups
    // that precede the one that it advances:
    bool alone;         // true: all of these groups are done
    bool only_messages; // true: each of them is done or consists only of sends and receives
    bool all_started;   // true: the inner communicator has started all of them
} staged_comm;

static staged_comm *staged_of(const tri_comm *head) { return (staged_comm *)(uintptr_t)head; }

static tri_status make(threaded_comm *base, const tri_comm_op *ops, int count,
                       threaded_group **out) {
    staged_group *group;
    tri_status status = staged_group_make(&base->head, ops, count, &group);
    *out = status == TRI_OK ? &group->base : NULL;
    return status;
}

static void free_group(threaded_group *group) { staged_group_free((staged_group *)group); }

static void begin(threaded_comm *base) {
    staged_comm *c = (staged_comm *)base;
    c->alone = c->only_messages = c->all_started = true;
}

// Advances an operation group. A group with a collective is under way alone. Consecutive groups of
// sends and receives are under way side by side, and the inner communicator starts them in order.
static tri_status advance(threaded_comm *base, threaded_group *group, bool *moved) {
    staged_comm *c = (staged_comm *)base;
    staged_group *g = (staged_group *)group;
    bool may_begin = c->alone || (c->only_messages && g->is_messages);
    TRI_TRY(staged_group_advance(g, &c->route, may_begin, c->all_started, moved));
    g->base.done = g->state == STAGED_DONE;
    c->alone = c->alone && g->base.done;
    c->only_messages = c->only_messages && (g->is_messages || g->base.done);
    c->all_started = c->all_started && g->state >= STAGED_TRAVELS;
    return TRI_OK;
}

static const threaded_kind staged_kind = {
    .make = make, .free_group = free_group, .begin = begin, .advance = advance};

static void staged_stop(tri_comm *comm) { (void)threaded_stop(threaded_of(comm)); }

static void staged_close(tri_comm *comm) {
    staged_comm *c = staged_of(comm);
    staged_stop(comm);
    tri_queue_close(c->route.out);
    tri_queue_close(c->route.in);
    // The inner communicator may use the groups' memory until it is closed, so it is closed before
    // threaded_end frees the groups.
    tri_comm_close(c->route.inner);
    threaded_end(&c->base);
    free(c->spare.begin);
    free(c);
}

static unsigned staged_abilities(const tri_comm *comm) {
    const tri_comm *inner = staged_of(comm)->route.inner;
    return (inner->backend->abilities(inner) & ~(unsigned)TRI_COMM_HOST_MEMORY) |
           TRI_COMM_DEVICE_MEMORY;
}

// Returns 0, because operation groups allocate host memory when they begin, which no plan counts.
static int64_t staged_scratch_bytes(int ranks, bool is_private) { return 0; }

static const tri_comm_backend staged_backend = {
    .name = "staged",
    .abilities = staged_abilities,
    .scratch_bytes = staged_scratch_bytes,
    .close = staged_close,
    .stop = staged_stop,
    .alloc = threaded_alloc,
    .free = threaded_free,
    THREADED_SLOTS,
};

tri_status tri_comm_staged_open(tri_comm *inner, tri_device *device, tri_comm **out) {
    staged_comm *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) {
        tri_comm_close(inner);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    }
    threaded_init(&c->base, &staged_kind, &staged_backend, inner, device);
    c->route.inner = inner;
    c->route.spare = &c->spare;
    tri_status status = tri_queue_open(device, &c->route.out);
    if (status == TRI_OK) status = tri_queue_open(device, &c->route.in);
    if (status == TRI_OK) status = threaded_run(&c->base);
    if (status != TRI_OK) {
        staged_close(&c->base.head);
        return status;
    }
    *out = &c->base.head;
    return TRI_OK;
}
