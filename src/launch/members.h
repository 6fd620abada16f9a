// Who takes part in a run: the nodes that met, and where their ranks will find rank 0. One node
// meets nobody; a backend for several nodes is one more row of the table in members.c, joined again
// after each failure or change of membership.
#ifndef TRIREME_LAUNCH_MEMBERS_H
#define TRIREME_LAUNCH_MEMBERS_H

#include "launch/options.h"

typedef struct launch_members {
    char run_id[128];
    char master_addr[256];
    int master_port;
    char nonce[33];             // of this attempt; nobody else can know where its ranks meet
    int group_rank, group_size; // this node among the nodes
    int first_rank, world_size; // this node's ranks are first_rank … first_rank + workers - 1
} launch_members;

// Meets the other nodes for one attempt. `out` of the attempt before goes in (zeroed at first): a
// run keeps its id. TRI_UNSUPPORTED: more than one node, or a backend that is not here.
tri_status launch_members_join(const launch_options *options, launch_members *out);

#endif
