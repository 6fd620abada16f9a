// One operation group of the communicator over NCCL, from the call of `start` until its work is
// done.
#ifndef TRIREME_COMM_NCCL_GROUP_H
#define TRIREME_COMM_NCCL_GROUP_H

#include "comm/nccl/link.h"
#include "comm/nccl/steps.h"
#include "comm/op.h"
#include "comm/threaded/threaded.h"

typedef enum nccl_state {
    NCCL_QUEUED,
    NCCL_COMPARES, // what the ranks call
    NCCL_OPENS,    // its link
    NCCL_READY,    // to be issued
    NCCL_ISSUES,   // its steps to the queue
    NCCL_RUNS,     // on the GPU
} nccl_state;

// Operations of one call of `start` that go through one link: collectives that follow each other,
// or messages to one rank, or from one. Of messages of a rank to itself it has both halves.
typedef struct nccl_group {
    threaded_group base;
    nccl_state state;
    nccl_way way;
    int peer;        // of messages
    nccl_link *link; // NULL: not yet found
    tri_comm_op *ops;
    int op_count;
    tri_comm_call *calls; // of each operation: this rank's, then one of each rank that compares it
    int callers;          // how many calls each operation has
    nccl_steps steps;
    int next_step;
    tri_comm_ticket inner; // of the comparison
    tri_ticket done;
    int64_t waits_since_ns; // since when it waits for other ranks; 0: not yet
} nccl_group;

// Makes the groups of one call of `start`, in order.
tri_status nccl_groups_make(const tri_comm *comm, const tri_comm_op *ops, int count,
                            threaded_group **out);
void nccl_group_free(threaded_group *group);

static inline bool nccl_group_is_message(const nccl_group *group) {
    return group->way != NCCL_AMONG_ALL;
}

// What is called as operation `op` of the group: by this rank, then by the others.
static inline tri_comm_call *nccl_group_calls(const nccl_group *group, int op) {
    return group->calls + (size_t)op * (size_t)group->callers;
}

#endif
