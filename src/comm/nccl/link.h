// A link: a communicator of NCCL, and a queue to which its calls are issued. One link carries the
// collectives of all ranks. For messages, each pair of ranks has one link for each direction, which
// its first message opens. So a message waits only for earlier messages of its pair and direction.
// In one communicator for all messages, it could also wait for calls of other pairs.
#ifndef TRIREME_COMM_NCCL_LINK_H
#define TRIREME_COMM_NCCL_LINK_H

#include "device/cuda/internal.h"

// What a link carries: collectives of all ranks; messages from this rank to one other; messages
// from one other to this rank; messages of this rank to itself.
typedef enum nccl_way { NCCL_AMONG_ALL, NCCL_TO_PEER, NCCL_FROM_PEER, NCCL_TO_ITSELF } nccl_way;

// A link: a communicator of NCCL, and the queue to which its calls are issued.
typedef struct nccl_link {
    struct nccl_link *next;
    nccl_way way;
    int peer; // for messages: number of the other rank
    cuda_device *device;
    tri_queue *queue; // NULL: the link is not open
    // The communicator of NCCL; NULL: it is not open yet, or the link is for messages of this rank
    // to itself, which are copied.
    cuda_nccl *nccl;
    char id[CUDA_NCCL_ID_BYTES]; // by which NCCL connects the ranks of the communicator
    bool was_announced;          // for messages: the two ranks have begun to exchange the id
    // How many thread blocks a call of the communicator of NCCL may use; 0: NCCL decides.
    int most_blocks;
    // How many groups of operations (group.h) were issued and are not done.
    int under_way;
    // The communicator's thread goes through all groups of operations, from the first to the last,
    // again and again. True: since it last began with the first, it has met a group of this link
    // that is not issued yet, so later groups of the link must wait.
    bool is_behind;
} nccl_link;

// Finds in the list the link (communicator of NCCL) for messages that go to `peer` or come from it,
// as `way` says; adds it if there is none yet.
tri_status nccl_link_find(nccl_link **list, nccl_way way, int peer, cuda_device *device,
                          nccl_link **out);
// Opens the link's queue and begins to open its communicator of NCCL, with nccl_link.id. The link
// may be used once nccl_link_state is CUDA_EVENT_DONE. On failure the reason is in `why` or, if
// `why` is empty, in the error message.
tri_status nccl_link_open(nccl_link *link, int rank, int size, char why[CUDA_WHY_BYTES]);
// As nccl_link_open, but splits the link's communicator of NCCL from the parent's. Neither may be
// used before nccl_link_state of both is CUDA_EVENT_DONE.
tri_status nccl_link_split(nccl_link *parent, int colour, int key, nccl_link *link,
                           char why[CUDA_WHY_BYTES]);
cuda_event_state nccl_link_state(const nccl_link *link, char why[CUDA_WHY_BYTES]);
// Closes the link's communicator of NCCL immediately: work that is under way is stopped and not
// completed.
void nccl_link_abort(nccl_link *link);
void nccl_links_abort(nccl_link *list);
// Closes the queue and the communicator. Waits until the communicator's other ranks close it too.
void nccl_link_close(nccl_link *link);
// Closes and frees the links (communicators of NCCL) that carry messages, in an order that is the
// same on all ranks: if it were not, ranks would wait for each other for ever. `rank` is this rank.
void nccl_links_close(nccl_link *list, int rank);

#endif
