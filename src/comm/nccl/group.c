// Makes and frees operation groups of the communicator over NCCL.
#include "comm/nccl/group.h"

#include <stdlib.h>
#include <string.h>

void nccl_group_free(nccl_group *g) {
    if (!g) return;
    nccl_steps_free(&g->steps);
    free(g->ops);
    free(g->calls);
    free(g);
}

void nccl_groups_free(nccl_group *first) {
    while (first) {
        nccl_group *next = first->next;
        nccl_group_free(first);
        first = next;
    }
}

static tri_status make_group(const tri_comm *comm, const tri_comm_op *ops, int count,
                             nccl_group **out) {
    nccl_group *g = calloc(1, sizeof *g);
    *out = NULL;
    if (g) g->ops = calloc((size_t)count, sizeof *g->ops);
    if (g) g->calls = calloc((size_t)count * ((size_t)comm->size + 1), sizeof *g->calls);
    if (!g || !g->ops || !g->calls) {
        nccl_group_free(g);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for %d operations", count);
    }
    memcpy(g->ops, ops, (size_t)count * sizeof *ops);
    g->op_count = count;
    g->is_messages = tri_comm_kind_is_message(ops[0].kind);
    *out = g;
    return TRI_OK;
}

tri_status nccl_groups_make(const tri_comm *comm, const tri_comm_op *ops, int count,
                            const tri_ticket *after, int after_count, nccl_group **first,
                            nccl_group **last) {
    *first = *last = NULL;
    for (int begin = 0, end; begin < count; begin = end) {
        bool is_message = tri_comm_kind_is_message(ops[begin].kind);
        for (end = begin + 1; end < count; end++)
            if (tri_comm_kind_is_message(ops[end].kind) != is_message) break;
        nccl_group *g;
        tri_status status = make_group(comm, ops + begin, end - begin, &g);
        if (status != TRI_OK) {
            nccl_groups_free(*first);
            return status;
        }
        memcpy(g->after, after, (size_t)after_count * sizeof *after);
        g->after_count = after_count;
        *(*last ? &(*last)->next : first) = g;
        *last = g;
    }
    return TRI_OK;
}
