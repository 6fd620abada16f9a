// The thread that serves the store, the key-value service at which the ranks meet: it connects
// store_core.c to sockets and a clock. It runs in rank 0 or in a launcher (an agent).
#ifndef TRIREME_RENDEZVOUS_STORE_SERVER_H
#define TRIREME_RENDEZVOUS_STORE_SERVER_H

#include "rendezvous/store_tcp.h"

typedef struct store_server store_server;

typedef struct store_server_config {
    const tri_identity *identity;
    int unix_fd;       // listens for ranks of this host; -1: none
    store_sockets tcp; // these listen for ranks of other hosts
    store_token token; // the user's secret, which ranks prove to have; set if `tcp` has sockets
    bool is_agent;     // this process is a launcher (an agent), not a rank
} store_server_config;

// Starts the server's thread. Takes over the listening sockets, also on failure.
tri_status store_server_start(const store_server_config *config, store_server **out);
// Ends the server. NULL allowed. A launcher's server (is_agent) ends at once, because its ranks
// have ended before. A rank's server waits until the connected ranks have left, because they may
// still need keys, but no longer than TRI_MAX_SHUTDOWN_MS. Meanwhile it accepts no more
// connections. There is one exception: if ranks still have to learn why the job ends
// (tri_store_refuse), the server goes on accepting connections, and waits for these ranks up to
// TRI_REFUSAL_STAY_MS.
void store_server_stop(store_server *server);
// From now on serves the start of the run (the generation) that `identity` names. Its ranks may
// connect as soon as this call has returned.
void store_server_begin(store_server *server, const tri_identity *identity);
int store_server_port(const store_server *server);

#endif
