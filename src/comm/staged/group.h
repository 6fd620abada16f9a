// One operation group of the communicator that goes through the host's memory, because its inner
// communicator cannot touch the device's.
#ifndef TRIREME_COMM_STAGED_GROUP_H
#define TRIREME_COMM_STAGED_GROUP_H

#include "comm/threaded/threaded.h"

// The states of an operation group, in the order in which it goes through them.
typedef enum staged_state {
    STAGED_QUEUED,     // waits for what it has to come after
    STAGED_COPIES_OUT, // what is sent comes from the device
    STAGED_TRAVELS,    // the inner communicator works
    STAGED_COPIES_IN,  // the results go to the device
    STAGED_DONE,
} staged_state;

typedef struct staged_op {
    tri_comm_op device, host;      // the same operation on each side's memory
    size_t send_bytes, recv_bytes; // 0: nothing is sent, or received
    bool adds;                     // to what `recv` holds, which is copied out too
} staged_op;

typedef struct staged_group {
    threaded_group base;
    staged_state state;
    bool is_messages; // sends and receives only
    staged_op *ops;
    int op_count;
    tri_ticket copies; // those that are in flight in the state COPIES_OUT or COPIES_IN
    tri_comm_ticket inner;
    char *memory; // of the host: what the operations send and receive
} staged_group;

tri_status staged_group_make(const tri_comm *comm, const tri_comm_op *ops, int count,
                             staged_group **out);
void staged_group_free(staged_group *group);

// What groups need for their way through the host; all groups of a communicator share it.
typedef struct staged_route {
    tri_comm *inner;
    tri_queue *out, *in; // of the device: for copies out of its memory, and into it
} staged_route;

// Moves the group on as far as is possible without waiting, because one thread serves all groups.
// `may_begin`: no earlier group is in the way. `may_travel`: the inner communicator has started all
// earlier groups. Sets *moved if the state changed.
tri_status staged_group_advance(staged_group *group, const staged_route *route, bool may_begin,
                                bool may_travel, bool *moved);

#endif
