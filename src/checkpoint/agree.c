#include "checkpoint/agree.h"

#include <string.h>

tri_status checkpoint_share(tri_comm *comm, void *data, int64_t size_bytes) {
    if (checkpoint_ranks(comm) == 1) return TRI_OK;
    return tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_BROADCAST,
                                             .dtype = TRI_U8,
                                             .count = size_bytes,
                                             .send = data,
                                             .recv = data,
                                             .waits = true,
                                             .label = "checkpoint, rank 0 tells all"});
}

tri_status checkpoint_gather(tri_comm *comm, void *words, int64_t count) {
    if (checkpoint_ranks(comm) == 1) return TRI_OK;
    return tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                             .reduction = TRI_REDUCE_SUM,
                                             .dtype = TRI_I32,
                                             .count = count,
                                             .send = words,
                                             .recv = words,
                                             .waits = true,
                                             .label = "checkpoint, hashes of all ranks"});
}

tri_status checkpoint_agree(tri_comm *comm, tri_status mine) {
    if (checkpoint_ranks(comm) == 1) return mine;
    struct {
        int32_t status;
        char message[TRI_MESSAGE_MAX_BYTES];
    } failure = {.status = (int32_t)mine};
    if (mine != TRI_OK) memcpy(failure.message, tri_error_message(), sizeof failure.message);

    int64_t first = mine == TRI_OK ? comm->size : comm->rank;
    tri_status status =
        tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                          .reduction = TRI_REDUCE_MIN,
                                          .dtype = TRI_I64,
                                          .count = 1,
                                          .send = &first,
                                          .recv = &first,
                                          .waits = true,
                                          .label = "checkpoint, have all ranks done it"});
    if (status == TRI_OK && first == comm->size) return TRI_OK;
    if (status == TRI_OK)
        status =
            tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_BROADCAST,
                                              .dtype = TRI_U8,
                                              .count = sizeof failure,
                                              .send = &failure,
                                              .recv = &failure,
                                              .root = (int)first,
                                              .waits = true,
                                              .label = "checkpoint, which rank failed and why"});
    // Nobody ends the communicator while another one still listens; how this ends is no matter.
    if (status == TRI_OK) (void)tri_comm_barrier(comm, "checkpoint, all have heard of the failure");
    if (status != TRI_OK && mine == TRI_OK) return status;
    if (status != TRI_OK) first = comm->rank; // no one heard it, but it is what went wrong here
    failure.message[sizeof failure.message - 1] = 0;
    return TRI_FAIL((tri_status)failure.status, "rank %lld: %s", (long long)first, failure.message);
}
