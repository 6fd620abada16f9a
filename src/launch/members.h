// Who takes part in an attempt: the nodes, and where their ranks find rank 0. With one node there
// is nothing to agree on. A backend for several nodes is one more row of the table in members.c; it
// is joined again after each failure or change of membership.
#ifndef TRIREME_LAUNCH_MEMBERS_H
#define TRIREME_LAUNCH_MEMBERS_H

#include "launch/options.h"

typedef struct launch_members {
    char run_id[128];
    char master_addr[256];
    int master_port;
    char nonce[33];             // a secret of this attempt: other users cannot find its ranks
    int group_rank, group_size; // this node among the nodes
    int first_rank, world_size; // this node's ranks are first_rank … first_rank + workers - 1
} launch_members;

// Finds the members of one attempt. `out` is zero before the first attempt and the previous result
// before a later one, because a run keeps its id. TRI_UNSUPPORTED: more than one node, or an
// unknown backend.
tri_status launch_members_join(const launch_options *options, launch_members *out);

#endif
