// Opens and closes links. A link is a communicator of NCCL, and a queue to which its calls are
// issued (link.h).
#include "comm/nccl/link.h"

#include "comm/nccl/memory.h"
#include "device/queue.h"

#include <stdlib.h>

tri_status nccl_link_find(nccl_link **list, nccl_way way, int peer, cuda_device *device,
                          nccl_link **out) {
    for (*out = *list; *out; *out = (*out)->next)
        if ((*out)->way == way && (*out)->peer == peer) return TRI_OK;
    nccl_link *link = calloc(1, sizeof *link);
    if (!link) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a link to rank %d", peer);
    *link = (nccl_link){.next = *list, .way = way, .peer = peer, .device = device};
    *out = *list = link;
    return TRI_OK;
}

tri_status nccl_link_open(nccl_link *link, int rank, int size, char why[CUDA_WHY_BYTES]) {
    const cuda_runtime *runtime = link->device->runtime;
    why[0] = 0;
    if (!link->queue) TRI_TRY(cuda_open_priority_queue(&link->device->head, &link->queue));
    if (link->way == NCCL_TO_ITSELF) return TRI_OK;
    return runtime->open_nccl(link->device->context, link->id, rank, size, link->most_blocks,
                              &link->nccl, why);
}

tri_status nccl_link_split(nccl_link *parent, int colour, int key, nccl_link *link,
                           char why[CUDA_WHY_BYTES]) {
    why[0] = 0;
    if (!link->queue) TRI_TRY(cuda_open_priority_queue(&link->device->head, &link->queue));
    return link->device->runtime->split_nccl(parent->nccl, colour, key, link->most_blocks,
                                             &link->nccl, why);
}

cuda_event_state nccl_link_state(const nccl_link *link, char why[CUDA_WHY_BYTES]) {
    if (!link->nccl) return CUDA_EVENT_DONE;
    return link->device->runtime->nccl_state(link->nccl, why);
}

// Closes the link's communicator of NCCL. `aborts`: without waiting for the other ranks.
static void close_nccl(nccl_link *link, bool aborts) {
    if (!link->nccl) return;
    nccl_memory_forget(link->device, link->nccl, aborts);
    link->device->runtime->close_nccl(link->nccl, aborts);
    link->nccl = NULL;
}

void nccl_link_abort(nccl_link *link) { close_nccl(link, true); }

void nccl_links_abort(nccl_link *list) {
    for (; list; list = list->next) nccl_link_abort(list);
}

void nccl_link_close(nccl_link *link) {
    close_nccl(link, false);
    tri_queue_close(link->queue);
    link->queue = NULL;
}

// Returns the two ranks of a link (a communicator of NCCL for messages from one rank to another) as
// one number: the sending rank in the upper 32 bits, the receiving rank in the lower. All ranks
// close their links in the order of this number. Closing waits for the other rank, so with
// different orders ranks could wait for each other for ever.
static int64_t rank_pair(const nccl_link *link, int rank) {
    int64_t from = link->way == NCCL_FROM_PEER ? link->peer : rank;
    int64_t to = link->way == NCCL_FROM_PEER ? rank : link->peer;
    return from << 32 | to;
}

void nccl_links_close(nccl_link *list, int rank) {
    while (list) {
        nccl_link **first = &list;
        for (nccl_link **at = &list; *at; at = &(*at)->next)
            if (rank_pair(*at, rank) < rank_pair(*first, rank)) first = at;
        nccl_link *link = *first;
        *first = link->next;
        nccl_link_close(link);
        free(link);
    }
}
