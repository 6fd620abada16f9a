// What a rank sends others through: a communicator of NCCL, and a queue to which its calls are
// issued. One link carries the collectives of all ranks. Each pair of ranks has a link for each
// direction in which messages go, which its first message opens. So a message waits for earlier
// ones of its pair and direction only, whatever NCCL does with the calls of one communicator.
#ifndef TRIREME_COMM_NCCL_LINK_H
#define TRIREME_COMM_NCCL_LINK_H

#include "device/cuda/internal.h"

typedef enum nccl_way { NCCL_AMONG_ALL, NCCL_TO_PEER, NCCL_FROM_PEER, NCCL_TO_ITSELF } nccl_way;

typedef struct nccl_link {
    struct nccl_link *next;
    nccl_way way;
    int peer; // with which messages are exchanged
    cuda_device *device;
    tri_queue *queue; // NULL: not open
    cuda_nccl *nccl;  // NULL also for messages of a rank to itself, which are copies
    char id[CUDA_NCCL_ID_BYTES];
    bool was_announced; // the ranks of a pair have begun to tell each other the id
    int under_way;      // groups that were issued and are not done
    bool is_behind;     // in this turn of the thread, a group of the link could not be issued
} nccl_link;

// The link in the list for messages of that way, which is added if there is none yet.
tri_status nccl_link_find(nccl_link **list, nccl_way way, int peer, cuda_device *device,
                          nccl_link **out);
// Opens the queue and begins to open the communicator of NCCL, with nccl_link.id. It may be used
// once nccl_link_state is CUDA_EVENT_DONE. On failure `why` has the reason, or is empty where the
// error message has it.
tri_status nccl_link_open(nccl_link *link, int rank, int size, char why[CUDA_WHY_BYTES]);
// The same with a communicator that is split from the parent's; both may be used once both are
// done.
tri_status nccl_link_split(nccl_link *parent, int colour, int key, nccl_link *link,
                           char why[CUDA_WHY_BYTES]);
cuda_event_state nccl_link_state(const nccl_link *link, char why[CUDA_WHY_BYTES]);
// What is under way ends at once, undone.
void nccl_link_abort(nccl_link *link);
void nccl_links_abort(nccl_link *list);
// Closes the communicator, which waits for its other ranks to do the same, and the queue.
void nccl_link_close(nccl_link *link);
// Closes the links for messages and frees them, in an order that no two ranks see differently: else
// they would wait for each other. `rank`: this one.
void nccl_links_close(nccl_link *list, int rank);

#endif
