// Compares the ranks' calls, because NCCL does not check that they fit together. The ranks exchange
// descriptions of their calls over a second communicator, the inner one, which has the same ranks
// and works in the hosts' memory: for a SEND and its RECV by a message, for a collective by an
// all-gather. So if one rank starts a message and another one a collective, their exchanges on the
// inner communicator do not fit together either, and that communicator reports it.
#include "comm/nccl/compare.h"

#include "comm/progress/describe.h"

#include <stdlib.h>

// Returns the operation by which the ranks exchange their calls of operation `number` of the group
// over the inner communicator: a message if the operation is a message, else an all-gather.
static tri_comm_op comparison(const nccl_group *g, int number) {
    const tri_comm_op *op = &g->ops[number];
    bool is_message = tri_comm_kind_is_message(op->kind);
    tri_comm_call *calls = nccl_group_calls(g, number);
    tri_comm_call_of(op, calls);
    return (tri_comm_op){.kind = is_message ? op->kind : TRI_COMM_ALL_GATHER,
                         .dtype = TRI_U8,
                         .count = sizeof *calls,
                         .send = calls,
                         .recv = calls + 1,
                         .peer = op->peer,
                         .label = op->label,
                         .part_of = op};
}

// Returns the message by which a sender tells the receiver the id of their link, the communicator
// of NCCL that carries all messages from the one to the other (link.h). It goes over the inner
// communicator only once for each link, in front of the calls of the link's first messages.
static tri_comm_op announcement(const nccl_group *g) {
    return (tri_comm_op){.kind = g->ops[0].kind,
                         .dtype = TRI_U8,
                         .count = sizeof g->link->id,
                         .send = g->link->id,
                         .recv = g->link->id,
                         .peer = g->peer,
                         .label = g->ops[0].label,
                         .part_of = &g->ops[0]};
}

tri_status nccl_compare_start(tri_comm *compares, nccl_group *g) {
    tri_comm_op *ops = calloc((size_t)g->op_count + 1, sizeof *ops);
    int count = 0;
    if (!ops) return TRI_FAIL(TRI_NO_MEMORY, "no memory for %d operations", g->op_count);
    bool is_first = !g->link->was_announced;
    if (is_first && (g->way == NCCL_TO_PEER || g->way == NCCL_FROM_PEER))
        ops[count++] = announcement(g);
    g->link->was_announced = true;
    for (int i = 0; i < g->op_count; i++) ops[count++] = comparison(g, i);
    tri_status status = compares->backend->start(compares, ops, count, &g->inner);
    free(ops);
    return status;
}

static tri_status disagree(tri_comm *compares, progress_caller first, progress_caller second) {
    char text[TRI_MESSAGE_MAX_BYTES];
    progress_disagreement(progress_of(compares), 0, first, second, text, sizeof text);
    return TRI_FAIL(TRI_MISMATCH, "%s", text);
}

tri_status nccl_compare_end(tri_comm *compares, const tri_comm *comm, const nccl_group *g) {
    TRI_TRY(compares->backend->wait(compares, g->inner));
    for (int i = 0; i < g->op_count; i++) {
        const tri_comm_call *mine = nccl_group_calls(g, i), *others = mine + 1;
        progress_caller self = {.rank = comm->rank, .call = mine};
        if (g->ops[i].kind == TRI_COMM_SEND) continue; // the receiver compares
        if (nccl_group_is_message(g)) {
            if (!tri_comm_calls_agree(others, mine))
                return disagree(compares, (progress_caller){.rank = g->peer, .call = others}, self);
            continue;
        }
        for (int r = 0; r < comm->size; r++)
            if (!tri_comm_calls_agree(mine, &others[r]))
                return disagree(compares, self, (progress_caller){.rank = r, .call = &others[r]});
    }
    return TRI_OK;
}
