// The thread of rank 0 that serves the store: store_core with sockets and a clock.
#ifndef TRIREME_RENDEZVOUS_STORE_SERVER_H
#define TRIREME_RENDEZVOUS_STORE_SERVER_H

#include "rendezvous/store_transport.h"

typedef struct store_server store_server;

// Takes over `listen_fd`, also on failure.
tri_status store_server_start(const tri_identity *identity, const store_transport *transport,
                              int listen_fd, store_server **out);
// Accepts no more connections, gives connected ranks TRI_MAX_SHUTDOWN_MS to finish, then ends. NULL
// allowed.
void store_server_stop(store_server *server);

#endif
