// A group of the communicator over NCCL: those operations of one call of `start` (a function of
// tri_comm_backend) that the same link (a communicator of NCCL) carries. It lives from that call
// until its work is done.
#ifndef TRIREME_COMM_NCCL_GROUP_H
#define TRIREME_COMM_NCCL_GROUP_H

#include "comm/nccl/link.h"
#include "comm/nccl/steps.h"
#include "comm/op.h"
#include "comm/threaded/threaded.h"

typedef enum nccl_state {
    NCCL_QUEUED,   // nothing has been done yet
    NCCL_COMPARES, // the ranks compare what they call
    NCCL_READY,    // the ranks' calls agree; the group is issued when its turn comes
    NCCL_ISSUES,   // the group's steps are being issued to the queue
    NCCL_RUNS,     // the group runs on the GPU
} nccl_state;

// The operations of a group are consecutive collectives, or messages to one rank, or messages from
// one rank. For messages of a rank to itself a group has both the sends and the receives.
typedef struct nccl_group {
    threaded_group base;
    nccl_state state;
    nccl_way way;
    int peer;        // for messages: number of the other rank
    nccl_link *link; // the link that carries the group; NULL: not yet found
    tri_comm_op *ops;
    int op_count;
    // What the ranks called, so that they can compare it. For each operation, this rank's call
    // comes first. After it comes what this rank receives: for a collective the calls of all ranks,
    // by rank; for a message the sender's call, which only its receiver gets.
    tri_comm_call *calls;
    int callers;            // how many entries `calls` has for each operation
    nccl_steps steps;       // what the GPU's queue does for the operations
    int next_step;          // the number of the first step that is not issued yet
    tri_comm_ticket inner;  // ticket of the operation that exchanges the calls for comparison
    tri_ticket done;        // ticket of the GPU's work, set once all steps are issued
    int64_t waits_since_ns; // since when the group waits for other ranks; 0: it does not
} nccl_group;

// Makes the groups of one call of `start`, in order.
tri_status nccl_groups_make(const tri_comm *comm, const tri_comm_op *ops, int count,
                            threaded_group **out);
void nccl_group_free(threaded_group *group);

static inline bool nccl_group_is_message(const nccl_group *group) {
    return group->way != NCCL_AMONG_ALL;
}

// Finds the calls of operation `op` of the group, in the order that nccl_group.calls describes.
static inline tri_comm_call *nccl_group_calls(const nccl_group *group, int op) {
    return group->calls + (size_t)op * (size_t)group->callers;
}

#endif
