// Splits and closes communicators, and keeps what all communicators of a family (those split from
// one) have in common.
#include "comm/progress/communicator.h"

#include "comm/progress/failure.h"
#include "comm/progress/thread.h"

#include <stdlib.h>
#include <string.h>

enum { QUEUE_START = 64 }; // how many operations a new queue has room for; the queue grows later

void progress_family_init(progress_family *family, const progress_backend *backend,
                          tri_ledger *ledger, progress_failure *failure) {
    family->backend = backend;
    family->ledger = ledger;
    family->failure = failure ? failure : &family->own_failure;
    family->linked = family;
    pthread_mutex_init(&family->lock, NULL);
}

void progress_family_end(progress_family *family) {
    progress_thread_stop(family);
    progress_unlink(family);
    tri_ledger_close(family->ledger);
    pthread_mutex_destroy(&family->lock);
    family->backend->close_family(family);
}

tri_status progress_comm_init(progress_comm *comm, const tri_comm_backend *backend,
                              progress_family *family, int rank, int size, const int *job_rank) {
    comm->head = (tri_comm){.backend = backend, .rank = rank, .size = size};
    comm->family = family;
    comm->capacity = QUEUE_START;
    comm->queue = calloc(comm->capacity, sizeof *comm->queue);
    comm->job_rank = calloc((size_t)size, sizeof *comm->job_rank);
    if (!comm->queue || !comm->job_rank) {
        free(comm->queue);
        free(comm->job_rank);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    }
    memcpy(comm->job_rank, job_rank, (size_t)size * sizeof *job_rank);
    comm->head.job_rank = comm->job_rank;
    comm->head.ledger = family->ledger;
    bool is_world = !family->comms && !family->control;
    comm->head.lane = tri_ledger_lane(family->ledger, is_world ? "world" : "split");
    pthread_mutex_init(&comm->lock, NULL);
    return TRI_OK;
}

void progress_comm_add(progress_comm *comm) {
    progress_family *family = comm->family;
    pthread_mutex_lock(&family->lock);
    comm->next = family->comms;
    family->comms = comm;
    pthread_mutex_unlock(&family->lock);
}

void progress_comm_end(progress_comm *comm) {
    pthread_mutex_destroy(&comm->lock);
    for (uint64_t i = comm->completed; i < comm->started; i++) free(progress_at(comm, i)->state);
    free(comm->queue);
    free(comm->job_rank);
}

void progress_close(tri_comm *head) {
    progress_comm *comm = progress_of(head);
    progress_family *family = comm->family;
    if (family->backend->leave) family->backend->leave(comm);
    pthread_mutex_lock(&family->lock);
    progress_comm **link = &family->comms;
    while (*link != comm) link = &(*link)->next;
    *link = comm->next;
    bool last = family->comms == NULL;
    pthread_mutex_unlock(&family->lock);
    progress_comm_end(comm);
    family->backend->close_comm(comm);
    if (last) progress_family_end(family);
}

typedef struct split_request {
    int32_t colour, key;
} split_request;

static bool split_before(const split_request *requests, int a, int b) {
    return requests[a].key != requests[b].key ? requests[a].key < requests[b].key : a < b;
}

// Fills `ranks` with the ranks that have this rank's colour, in their new order, which is the same
// on all of these ranks.
static progress_group split_group(const split_request *requests, int size, int rank, int *ranks) {
    progress_group group = {.ranks = ranks};
    if (requests[rank].colour < 0) return group;
    for (int r = 0; r < size; r++) {
        if (requests[r].colour != requests[rank].colour) continue;
        int to = group.size++;
        for (; to > 0 && split_before(requests, r, ranks[to - 1]); to--) ranks[to] = ranks[to - 1];
        ranks[to] = r;
    }
    while (ranks[group.rank] != rank) group.rank++;
    return group;
}

tri_status progress_split(tri_comm *head, int colour, int key, tri_comm **out) {
    *out = NULL;
    size_t size = (size_t)head->size;
    split_request mine = {colour < 0 ? -1 : colour, key};
    split_request *requests = calloc(size, sizeof *requests);
    int *ranks = calloc(size, sizeof *ranks);
    progress_comm *child = NULL;
    tri_status status =
        requests && ranks ? TRI_OK : TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    if (status == TRI_OK)
        status = tri_comm_run(head, &(tri_comm_op){.kind = TRI_COMM_ALL_GATHER,
                                                   .dtype = TRI_U8,
                                                   .count = sizeof mine,
                                                   .send = &mine,
                                                   .recv = requests,
                                                   .label = "split"});
    if (status == TRI_OK) {
        progress_group group = split_group(requests, head->size, head->rank, ranks);
        status = progress_of(head)->family->backend->branch(progress_of(head), &group, &child);
    }
    free(requests);
    free(ranks);
    if (status == TRI_OK && child) *out = &child->head;
    return status;
}
