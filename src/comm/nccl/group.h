// One operation group of the communicator over NCCL, from the call of `start` until its work is
// done.
#ifndef TRIREME_COMM_NCCL_GROUP_H
#define TRIREME_COMM_NCCL_GROUP_H

#include "comm/nccl/steps.h"
#include "comm/op.h"

enum { NCCL_MOST_AFTER = 64 };

typedef enum nccl_state {
    NCCL_QUEUED,
    NCCL_COMPARES, // what the ranks call
    NCCL_ISSUES,   // its steps to the queue
    NCCL_RUNS,     // on the GPU
    NCCL_DONE,
} nccl_state;

// What one call of `start` begins, or part of it: collectives only, or sends and receives only,
// because these two take different ways.
typedef struct nccl_group {
    struct nccl_group *next;
    uint64_t number;
    nccl_state state;
    bool is_messages;
    tri_comm_op *ops;
    int op_count;
    tri_comm_call *calls; // of each operation: ours, then one of each rank
    tri_ticket after[NCCL_MOST_AFTER];
    int after_count;
    nccl_steps steps;
    int next_step;
    tri_comm_ticket inner; // of `compares`, or of `messages`
    tri_ticket done;
    int64_t waits_since_ns; // since when it waits for other ranks; 0: not yet
} nccl_group;

// Makes groups of what one call of `start` begins: a new one where messages follow collectives, or
// the other way round. *first is NULL if there are no operations.
tri_status nccl_groups_make(const tri_comm *comm, const tri_comm_op *ops, int count,
                            const tri_ticket *after, int after_count, nccl_group **first,
                            nccl_group **last);
void nccl_groups_free(nccl_group *first); // and those after it
void nccl_group_free(nccl_group *group);

// The calls that are compared for operation `op` of the group: this rank's call first, then the one
// of each rank.
static inline tri_comm_call *nccl_group_calls(const tri_comm *comm, const nccl_group *group,
                                              int op) {
    return group->calls + (size_t)op * ((size_t)comm->size + 1);
}

#endif
