// The store: the key-value service through which the workers (the ranks' processes) of a run over
// several nodes find each other. It is served by the serving agent, that is, by the launcher that
// decides for all nodes. A launcher outlives the workers, so the store can serve one generation
// (start of all workers) after the other. In a run on one node rank 0 serves the store.
#ifndef TRIREME_LAUNCH_STORE_H
#define TRIREME_LAUNCH_STORE_H

#include "launch/nodes_message.h"
#include "launch/options.h"
#include "rendezvous/serve.h"

typedef struct launch_store {
    tri_store_server *server; // NULL: the workers have not been started yet
    char job[64]; // names the run, the same in all generations (TRIREME_JOB); "": not chosen yet
} launch_store;

// Begins a generation, that is, a start of the run's workers. The workers may connect as soon as
// this call has returned; workers of the previous generation are told that they were replaced.
// `where`: the addresses at which this launcher itself listens. `out` already has master_addr,
// master_port and nonce; this sets store_port and job.
tri_status launch_store_begin(launch_store *store, const launch_options *options,
                              const tri_store_address *where, int generation, nodes_round *out);
void launch_store_end(launch_store *store);

#endif
