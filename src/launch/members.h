// Which nodes take part in an attempt (one start of the workers), and where their ranks find rank
// 0. If the run has several nodes, the launcher of one of them decides this for all (nodes.h).
#ifndef TRIREME_LAUNCH_MEMBERS_H
#define TRIREME_LAUNCH_MEMBERS_H

#include "launch/nodes_message.h"
#include "launch/options.h"

typedef struct launch_members {
    char run_id[128];
    char master_addr[256];
    int master_port;
    // A secret of this attempt. The name of its ranks' socket depends on it, so that other users
    // cannot guess that name.
    char nonce[33];
    // Names the run, the same in all of its attempts (TRIREME_JOB); "": the run has only one node.
    char job[64];
    // HOST:PORT of the workers' store, the key-value service through which they find each other. It
    // runs in the launcher that decides for all nodes (the serving agent). "": rank 0 serves it.
    char store[272];
    int group_rank, group_size; // this node's number in the attempt, and how many nodes it has
    // This node has the ranks first_rank to first_rank + workers - 1, of world_size in all.
    int first_rank, world_size;
    int generation; // how many attempts of the run there were before this one
    // How many attempts of the run began because the one before had failed, as --max-restarts
    // counts them.
    int restarts;
} launch_members;

// Checks --rdzv-backend, the run's id and, on one node, rank 0's address. Sets the id: --rdzv-id,
// or with --standalone a random number. TRI_BAD_INPUT: the id or the address is too long.
// TRI_UNSUPPORTED: an unknown backend.
tri_status launch_members_check(const launch_options *options, launch_members *out);
// Finds the members of the next attempt of a run on one node: draws a nonce, and chooses where
// rank 0 listens. Keeps what launch_members_check has set.
tri_status launch_members_join(const launch_options *options, launch_members *out);
// Takes over the members of the next attempt of a run on several nodes, which the serving agent
// (the launcher that decides for all nodes) has sent.
void launch_members_take(const launch_options *options, const nodes_message *round,
                         launch_members *out);

#endif
