// Collectives of a save: broadcast, sum, agreement on a status. agree.h says what for.
#include "checkpoint/agree.h"

tri_status checkpoint_broadcast(tri_comm *comm, void *data, int64_t size_bytes) {
    if (checkpoint_ranks(comm) == 1) return TRI_OK;
    return tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_BROADCAST,
                                             .dtype = TRI_U8,
                                             .count = size_bytes,
                                             .send = data,
                                             .recv = data,
                                             .waits_at_once = true,
                                             .label = "checkpoint, broadcast of rank 0"});
}

tri_status checkpoint_sum(tri_comm *comm, void *words, int64_t count) {
    if (checkpoint_ranks(comm) == 1) return TRI_OK;
    return tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                             .reduction = TRI_REDUCE_SUM,
                                             .dtype = TRI_I32,
                                             .count = count,
                                             .send = words,
                                             .recv = words,
                                             .waits_at_once = true,
                                             .label = "checkpoint, sum of all ranks"});
}

tri_status checkpoint_largest(tri_comm *comm, int64_t *words, int64_t count) {
    if (checkpoint_ranks(comm) == 1) return TRI_OK;
    return tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                             .reduction = TRI_REDUCE_MAX,
                                             .dtype = TRI_I64,
                                             .count = count,
                                             .send = words,
                                             .recv = words,
                                             .waits_at_once = true,
                                             .label = "checkpoint, largest of all ranks"});
}

tri_status checkpoint_agree(tri_comm *comm, tri_status own_status) {
    if (checkpoint_ranks(comm) == 1) return own_status;
    return tri_comm_agree(comm, own_status, "checkpoint, status of all ranks");
}
