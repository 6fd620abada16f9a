// Divides the operations of one call of `start` (a function of tri_comm_backend) into groups, by
// the link (a communicator of NCCL) that carries them: one link for collectives, and one for the
// messages to each rank and from each rank (see link.h).
#include "comm/nccl/group.h"

#include <stdlib.h>
#include <string.h>

void nccl_group_free(threaded_group *group) {
    nccl_group *g = (nccl_group *)group;
    nccl_steps_free(&g->steps);
    free(g->ops);
    free(g->calls);
    free(g);
}

static nccl_way way_of(const tri_comm *comm, const tri_comm_op *op) {
    if (!tri_comm_kind_is_message(op->kind)) return NCCL_AMONG_ALL;
    if (op->peer == comm->rank) return NCCL_TO_ITSELF;
    return op->kind == TRI_COMM_SEND ? NCCL_TO_PEER : NCCL_FROM_PEER;
}

static bool is_of(const tri_comm *comm, const nccl_group *g, const tri_comm_op *op) {
    return way_of(comm, op) == g->way && (g->way == NCCL_AMONG_ALL || op->peer == g->peer);
}

// Makes a group of ops[0] and of all later operations that the same link carries: collectives, or
// messages in one direction between this rank and one other.
static tri_status make_group(const tri_comm *comm, const tri_comm_op *ops, int count,
                             nccl_group **out) {
    nccl_group *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g) return TRI_FAIL(TRI_NO_MEMORY, "no memory for %d operations", count);
    g->way = way_of(comm, &ops[0]);
    g->peer = ops[0].peer;
    g->callers = g->way == NCCL_AMONG_ALL ? comm->size + 1 : 2;
    g->ops = calloc((size_t)count, sizeof *g->ops);
    for (int i = 0; g->ops && i < count; i++)
        if (is_of(comm, g, &ops[i])) g->ops[g->op_count++] = ops[i];
    g->calls = calloc((size_t)g->op_count * (size_t)g->callers + 1, sizeof *g->calls);
    if (!g->ops || !g->calls) {
        nccl_group_free(&g->base);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for %d operations", count);
    }
    *out = g;
    return TRI_OK;
}

// Whether operation `at` is already in the group of an earlier operation: of an earlier collective
// if it is a collective, or of an earlier message in the same direction between the same ranks.
static bool is_taken(const tri_comm *comm, const tri_comm_op *ops, int at) {
    nccl_group like = {.way = way_of(comm, &ops[at]), .peer = ops[at].peer};
    for (int i = 0; i < at; i++)
        if (is_of(comm, &like, &ops[i])) return true;
    return false;
}

// Makes the groups of `count` consecutive operations, which are either all collectives or all
// messages. Appends the groups to a list: **last is the list's last `next` pointer.
static tri_status make_run(const tri_comm *comm, const tri_comm_op *ops, int count,
                           threaded_group ***last) {
    for (int i = 0; i < count; i++) {
        nccl_group *g;
        if (is_taken(comm, ops, i)) continue;
        TRI_TRY(make_group(comm, ops + i, count - i, &g));
        **last = &g->base;
        *last = &g->base.next;
    }
    return TRI_OK;
}

tri_status nccl_groups_make(const tri_comm *comm, const tri_comm_op *ops, int count,
                            threaded_group **out) {
    threaded_group **last = out;
    *out = NULL;
    for (int begin = 0, end; begin < count; begin = end) {
        bool is_message = tri_comm_kind_is_message(ops[begin].kind);
        for (end = begin + 1; end < count; end++)
            if (tri_comm_kind_is_message(ops[end].kind) != is_message) break;
        tri_status status = make_run(comm, ops + begin, end - begin, &last);
        if (status == TRI_OK) continue;
        threaded_free_groups(*out, nccl_group_free);
        *out = NULL;
        return status;
    }
    return TRI_OK;
}
