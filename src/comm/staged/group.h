// Carries one operation group (the operations that one call of `start` begins together) through the
// host's memory. It serves communicators for a device whose inner communicator cannot use the
// device's memory.
#ifndef TRIREME_COMM_STAGED_GROUP_H
#define TRIREME_COMM_STAGED_GROUP_H

#include "comm/threaded/threaded.h"

// The states of an operation group, in the order in which it goes through them.
typedef enum staged_state {
    STAGED_QUEUED,     // the group waits for earlier groups, and for work that has to be done first
    STAGED_COPIES_OUT, // the data of the group are being copied from the device
    STAGED_TRAVELS,    // the inner communicator carries out the group's operations
    STAGED_COPIES_IN,  // the results of the group are being copied to the device
    STAGED_DONE,
} staged_state;

typedef struct staged_op {
    // The same operation, once on the device's memory and once on the host's.
    tri_comm_op device, host;
    size_t send_bytes, recv_bytes; // 0: the operation sends, or receives, nothing
    bool adds; // the operation adds to `recv`, so the old contents of `recv` are copied out too
} staged_op;

typedef struct staged_memory { // of the host
    char *begin;
    size_t bytes;
} staged_memory;

typedef struct staged_group {
    threaded_group base;
    staged_state state;
    bool is_messages; // the group consists of sends and receives only
    staged_op *ops;
    int op_count;
    tri_ticket copies;     // in the states COPIES_OUT and COPIES_IN: the copies that are in flight
    tri_comm_ticket inner; // in the state TRAVELS: the group on the inner communicator
    staged_memory memory;  // what the operations use, once copies are under way
} staged_group;

tri_status staged_group_make(const tri_comm *comm, const tri_comm_op *ops, int count,
                             staged_group **out);
void staged_group_free(staged_group *group);

// What the operation groups of a communicator need on their way through the host's memory: the
// inner communicator, which works on that memory, and queues for the copies between device and
// host. All groups of a communicator share one staged_route.
typedef struct staged_route {
    tri_comm *inner;
    tri_queue *out, *in;  // queues of the device: for copies out of its memory, and into it
    staged_memory *spare; // of a group that is done, for the next one
} staged_route;

// Advances the group as far as possible without waiting, because one thread serves all groups.
// `may_begin`: the group need not wait for an earlier group. `may_travel`: the inner communicator
// has started all earlier groups. Sets *moved if the state has changed.
tri_status staged_group_advance(staged_group *group, const staged_route *route, bool may_begin,
                                bool may_travel, bool *moved);

#endif
