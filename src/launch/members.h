// Who takes part in an attempt: the nodes, and where their ranks find rank 0. With one node there
// is nothing to agree on; with several, their agents are asked (nodes.h).
#ifndef TRIREME_LAUNCH_MEMBERS_H
#define TRIREME_LAUNCH_MEMBERS_H

#include "launch/nodes_message.h"
#include "launch/options.h"

typedef struct launch_members {
    char run_id[128];
    char master_addr[256];
    int master_port;
    char nonce[33];             // a secret of this attempt: other users cannot find its ranks
    char job[64];               // the run's name for its workers, if the serving agent has one
    char store[272];            // HOST:PORT where that agent serves their store; "": rank 0 does
    int group_rank, group_size; // this node among the nodes
    int first_rank, world_size; // this node's ranks are first_rank … first_rank + workers - 1
    int generation;             // of the run: attempts before this one
    int restarts;               // those of them that failed
} launch_members;

// Refuses flags that do not go together, and sets the run's id. TRI_BAD_INPUT; TRI_UNSUPPORTED: an
// unknown backend.
tri_status launch_members_check(const launch_options *options, launch_members *out);
// Finds the members of the next attempt of a run on one node. `out` is what launch_members_check or
// the attempt before has left.
tri_status launch_members_join(const launch_options *options, launch_members *out);
// Takes the members of the next attempt of a run on several nodes from what the serving agent sent.
void launch_members_take(const launch_options *options, const nodes_message *round,
                         launch_members *out);

#endif
