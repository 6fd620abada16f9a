// The parts of communicators that are the same for all backends: names, calls that start an
// operation and wait for it, and agreement on a status.
#include "comm/comm.h"

#include <string.h>

static const char *const kind_names[TRI_COMM_KIND_COUNT] = {
    [TRI_COMM_ALL_REDUCE] = "all_reduce",
    [TRI_COMM_REDUCE_SCATTER] = "reduce_scatter",
    [TRI_COMM_ALL_GATHER] = "all_gather",
    [TRI_COMM_ALL_TO_ALL] = "all_to_all",
    [TRI_COMM_BROADCAST] = "broadcast",
    [TRI_COMM_SEND] = "send",
    [TRI_COMM_RECV] = "recv",
    [TRI_COMM_BARRIER] = "barrier",
};

const char *tri_comm_kind_name(tri_comm_kind kind) {
    return (unsigned)kind < TRI_COMM_KIND_COUNT ? kind_names[kind] : "unknown operation";
}

static tri_status wait_group(void *source, uint64_t number) {
    tri_comm *comm = source;
    return comm->backend->wait(comm, (tri_comm_ticket){number});
}

static bool group_is_done(void *source, uint64_t number) {
    tri_comm *comm = source;
    return comm->backend->test(comm, (tri_comm_ticket){number});
}

tri_ticket tri_comm_ticket_of(tri_comm *comm, tri_comm_ticket group) {
    static const tri_ticket_kind kind = {.wait = wait_group, .is_done = group_is_done};
    return group.value ? (tri_ticket){&kind, comm, group.value} : (tri_ticket){0};
}

tri_status tri_comm_after(tri_comm *comm, const tri_ticket *ticket) {
    if (!ticket->kind) return TRI_OK;
    return comm->backend->after ? comm->backend->after(comm, ticket) : tri_ticket_wait(ticket);
}

tri_status tri_comm_run(tri_comm *comm, const tri_comm_op *op) {
    tri_comm_op waiting = *op;
    waiting.waits_at_once = true;
    tri_comm_ticket ticket;
    TRI_TRY(comm->backend->start(comm, &waiting, 1, &ticket));
    return comm->backend->wait(comm, ticket);
}

tri_status tri_comm_barrier(tri_comm *comm, const char *label) {
    return tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_BARRIER, .label = label});
}

tri_status tri_comm_agree(tri_comm *comm, tri_status mine, const char *what) {
    if (comm->size == 1) return mine;
    struct {
        int32_t status;
        char message[TRI_MESSAGE_MAX_BYTES];
    } failure = {.status = (int32_t)mine};
    if (mine != TRI_OK) memcpy(failure.message, tri_error_message(), sizeof failure.message);

    int64_t first = mine == TRI_OK ? comm->size : comm->rank;
    tri_status status = tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                          .reduction = TRI_REDUCE_MIN,
                                                          .dtype = TRI_I64,
                                                          .count = 1,
                                                          .send = &first,
                                                          .recv = &first,
                                                          .waits_at_once = true,
                                                          .label = what});
    if (status == TRI_OK && first == comm->size) return TRI_OK;
    if (status == TRI_OK)
        status = tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_BROADCAST,
                                                   .dtype = TRI_U8,
                                                   .count = sizeof failure,
                                                   .send = &failure,
                                                   .recv = &failure,
                                                   .root = (int)first,
                                                   .waits_at_once = true,
                                                   .label = what});
    // No rank may close the communicator before all have received the message. If this barrier
    // fails, the message is still the error to report.
    if (status == TRI_OK) (void)tri_comm_barrier(comm, what);
    if (status != TRI_OK && mine == TRI_OK) return status;
    if (status != TRI_OK)
        first = comm->rank; // the other ranks cannot be told, so this rank reports its own error
    failure.message[sizeof failure.message - 1] = 0;
    return TRI_FAIL((tri_status)failure.status, "rank %d: %s", tri_comm_job_rank(comm, (int)first),
                    failure.message);
}

void tri_comm_name(tri_comm *comm, const char *name) {
    tri_ledger_name_lane(comm->ledger, comm->lane, name);
}

const tri_ledger_ring *tri_comm_ledger_of(tri_comm *comm, int rank) {
    return comm->backend->ledger_of ? comm->backend->ledger_of(comm, rank) : NULL;
}

void tri_comm_close(tri_comm *comm) {
    if (comm) comm->backend->close(comm);
}
