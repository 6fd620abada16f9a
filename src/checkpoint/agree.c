// The collective operations of agree.h: broadcast, sum, maximum, and agreement on a status.
#include "checkpoint/agree.h"

// Runs `op` on `data` in place and waits for it: every rank needs the result before it goes on.
static tri_status run_in_place(tri_comm *comm, void *data, tri_comm_op op) {
    if (checkpoint_ranks(comm) == 1) return TRI_OK;
    op.send = data;
    op.recv = data;
    op.waits_at_once = true;
    return tri_comm_run(comm, &op);
}

tri_status checkpoint_broadcast(tri_comm *comm, void *data, int64_t size_bytes) {
    tri_comm_op op = {.kind = TRI_COMM_BROADCAST, .dtype = TRI_U8, .count = size_bytes};
    op.label = "checkpoint, broadcast of rank 0";
    return run_in_place(comm, data, op);
}

tri_status checkpoint_sum(tri_comm *comm, void *words, int64_t count) {
    tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_I32, .count = count};
    op.reduction = TRI_REDUCE_SUM;
    op.label = "checkpoint, sum of all ranks";
    return run_in_place(comm, words, op);
}

tri_status checkpoint_largest(tri_comm *comm, int64_t *words, int64_t count) {
    tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_I64, .count = count};
    op.reduction = TRI_REDUCE_MAX;
    op.label = "checkpoint, largest of all ranks";
    return run_in_place(comm, words, op);
}

tri_status checkpoint_agree(tri_comm *comm, tri_status own_status) {
    if (checkpoint_ranks(comm) == 1) return own_status;
    return tri_comm_agree(comm, own_status, "checkpoint, status of all ranks");
}
