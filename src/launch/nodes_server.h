// A thread in the serving agent of a run over several nodes, that is, in the launcher that decides
// what all nodes do. It connects nodes_core.h, which makes the decisions, to sockets and a clock.
// It admits only launchers that have the user's token (rendezvous/token.h), because anybody on the
// network can connect.
#ifndef TRIREME_LAUNCH_NODES_SERVER_H
#define TRIREME_LAUNCH_NODES_SERVER_H

#include "launch/options.h"
#include "rendezvous/store_tcp.h"

typedef struct nodes_server nodes_server;

typedef struct nodes_server_config {
    const launch_options *options;
    // Identity that the greeting (the first messages of a connection) announces; its address is
    // where this launcher listens.
    const tri_identity *identity;
    store_sockets sockets;
    store_token token;
} nodes_server_config;

// Starts the server's thread. Takes over the listening sockets, also on failure.
tri_status nodes_server_start(const nodes_server_config *config, nodes_server **out);
// Gives the launchers of the nodes TRI_MAX_SHUTDOWN_MS to receive their last message and
// disconnect, then ends the thread. NULL allowed.
void nodes_server_stop(nodes_server *server);

#endif
