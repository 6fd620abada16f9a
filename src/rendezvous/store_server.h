// Rank 0's thread that serves a store: sockets and clocks around store_core.
#ifndef TRIREME_RENDEZVOUS_STORE_SERVER_H
#define TRIREME_RENDEZVOUS_STORE_SERVER_H

#include "rendezvous/store_transport.h"

typedef struct store_server store_server;

// Takes over `listen_fd`, also on failure.
tri_status store_server_start(const tri_identity *identity, const store_transport *transport,
                              int listen_fd, store_server **out);
// Turns away newcomers, lets the ranks that are there finish for TRI_MAX_SHUTDOWN_MS, then ends.
// NULL allowed.
void store_server_stop(store_server *server);

#endif
