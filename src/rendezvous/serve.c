// Serves the store (the key-value service at which the ranks meet) from a process that is not a
// rank but a launcher (an agent). See serve.h.
#include "rendezvous/serve.h"

#include "rendezvous/store_server.h"

#include <stdlib.h>

tri_status tri_store_serve(const tri_identity *identity, tri_store_server **out) {
    store_server_config config = {.identity = identity, .unix_fd = -1, .is_agent = true};
    TRI_TRY(store_token_find((const char *(*)(const char *))getenv, &config.token));
    TRI_TRY(store_tcp_listen(identity, &config.tcp));
    return store_server_start(&config, out);
}

int tri_store_server_port(const tri_store_server *server) { return store_server_port(server); }

void tri_store_server_begin(tri_store_server *server, const tri_identity *identity) {
    store_server_begin(server, identity);
}

void tri_store_server_end(tri_store_server *server) { store_server_stop(server); }
