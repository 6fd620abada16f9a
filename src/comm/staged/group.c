// Carries an operation group (the operations that one call of `start` begins together) through the
// host's memory: allocates that memory, copies from the device, starts the operations on the inner
// communicator, which uses the host's memory, and copies the results back.
#include "comm/staged/group.h"

#include "comm/op.h"

#include <stdlib.h>

static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

static void describe(const tri_comm *comm, const tri_comm_op *from, staged_op *to) {
    size_t width = from->kind == TRI_COMM_BARRIER ? 0 : tri_dtype_bytes(from->dtype);
    *to = (staged_op){.device = *from, .host = *from, .adds = from->accumulate};
    bool sends = from->kind != TRI_COMM_BROADCAST || from->root == comm->rank;
    if (sends) to->send_bytes = (size_t)tri_comm_send_count(from, comm->size) * width;
    to->recv_bytes = (size_t)tri_comm_recv_count(from, comm->size) * width;
    to->host.waits_at_once = false;
}

static size_t bytes_of(const staged_group *g) {
    size_t bytes = 64;
    for (int i = 0; i < g->op_count; i++)
        bytes += aligned(g->ops[i].send_bytes) + aligned(g->ops[i].recv_bytes);
    return bytes;
}

// Gives the group host memory, that of an earlier group if it is large enough, and each operation
// its range of it.
static tri_status take_memory(staged_group *g, const staged_route *route) {
    size_t bytes = bytes_of(g);
    if (bytes <= route->spare->bytes) {
        g->memory = *route->spare;
        *route->spare = (staged_memory){0};
    } else {
        g->memory = (staged_memory){aligned_alloc(64, bytes), bytes};
    }
    if (!g->memory.begin)
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for %zu bytes on their way to other ranks",
                        bytes);
    char *at = g->memory.begin;
    for (int i = 0; i < g->op_count; i++) {
        staged_op *op = &g->ops[i];
        op->host.send = at;
        at += aligned(op->send_bytes);
        op->host.recv = at;
        at += aligned(op->recv_bytes);
    }
    return TRI_OK;
}

// Leaves the memory of a group that is done to the next one, if it is larger than what is there:
// memory that is new to the process costs it a fault for each page.
static void leave_memory(staged_group *g, const staged_route *route) {
    if (g->memory.bytes <= route->spare->bytes) return;
    free(route->spare->begin);
    *route->spare = g->memory;
    g->memory = (staged_memory){0};
}

tri_status staged_group_make(const tri_comm *comm, const tri_comm_op *ops, int count,
                             staged_group **out) {
    staged_group *g = calloc(1, sizeof *g);
    *out = NULL;
    if (g) g->ops = calloc((size_t)count + 1, sizeof *g->ops);
    if (!g || !g->ops) {
        staged_group_free(g);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for %d operations", count);
    }
    g->op_count = count;
    g->is_messages = true;
    for (int i = 0; i < count; i++) {
        describe(comm, &ops[i], &g->ops[i]);
        g->is_messages = g->is_messages && tri_comm_kind_is_message(ops[i].kind);
    }
    *out = g;
    return TRI_OK;
}

void staged_group_free(staged_group *g) {
    if (!g) return;
    free(g->ops);
    free(g->memory.begin);
    free(g);
}

static tri_status copy_out(staged_group *g, const staged_route *route) {
    const tri_device_backend *device = route->out->device->backend;
    // Fails if the work for which the group had to wait has failed. All that work has ended before
    // the group leaves the state QUEUED, so tri_ticket_wait returns at once.
    for (int i = 0; i < g->base.after_count; i++) TRI_TRY(tri_ticket_wait(&g->base.after[i]));
    TRI_TRY(take_memory(g, route));
    for (int i = 0; i < g->op_count; i++) {
        staged_op *op = &g->ops[i];
        if (op->send_bytes)
            TRI_TRY(device->copy_out(route->out, (void *)(uintptr_t)op->host.send, op->device.send,
                                     op->send_bytes));
        if (op->adds)
            TRI_TRY(device->copy_out(route->out, op->host.recv, op->device.recv, op->recv_bytes));
    }
    return device->record(route->out, &g->copies);
}

static tri_status travel(staged_group *g, const staged_route *route) {
    TRI_TRY(tri_ticket_wait(&g->copies));
    tri_comm_op *ops = calloc((size_t)g->op_count + 1, sizeof *ops);
    if (!ops) return TRI_FAIL(TRI_NO_MEMORY, "no memory for %d operations", g->op_count);
    for (int i = 0; i < g->op_count; i++) ops[i] = g->ops[i].host;
    tri_status status = route->inner->backend->start(route->inner, ops, g->op_count, &g->inner);
    free(ops);
    return status;
}

static tri_status copy_in(staged_group *g, const staged_route *route) {
    const tri_device_backend *device = route->in->device->backend;
    TRI_TRY(route->inner->backend->wait(route->inner, g->inner));
    for (int i = 0; i < g->op_count; i++) {
        staged_op *op = &g->ops[i];
        if (op->recv_bytes)
            TRI_TRY(device->copy_in(route->in, op->device.recv, op->host.recv, op->recv_bytes));
    }
    return device->record(route->in, &g->copies);
}

static tri_status finish(staged_group *g, const staged_route *route) {
    TRI_TRY(tri_ticket_wait(&g->copies));
    leave_memory(g, route);
    return TRI_OK;
}

static bool is_ready(const staged_group *g, const staged_route *route, bool may_begin,
                     bool may_travel) {
    switch (g->state) {
    case STAGED_QUEUED:
        return may_begin && threaded_comes_after(&g->base);
    case STAGED_COPIES_OUT:
        return may_travel && tri_ticket_is_done(&g->copies);
    case STAGED_TRAVELS:
        return route->inner->backend->test(route->inner, g->inner);
    case STAGED_COPIES_IN:
        return tri_ticket_is_done(&g->copies);
    case STAGED_DONE:
        break;
    }
    return false;
}

tri_status staged_group_advance(staged_group *g, const staged_route *route, bool may_begin,
                                bool may_travel, bool *moved) {
    static tri_status (*const steps[])(staged_group * g, const staged_route *route) = {
        [STAGED_QUEUED] = copy_out,
        [STAGED_COPIES_OUT] = travel,
        [STAGED_TRAVELS] = copy_in,
        [STAGED_COPIES_IN] = finish,
    };
    while (is_ready(g, route, may_begin, may_travel)) {
        TRI_TRY(steps[g->state](g, route));
        g->state++;
        *moved = true;
    }
    return TRI_OK;
}
