// The server of a store in a process that is no rank: a launcher's agent, which outlives its
// workers. Ranks find it by TRIREME_STORE=HOST:PORT.
#ifndef TRIREME_RENDEZVOUS_SERVE_H
#define TRIREME_RENDEZVOUS_SERVE_H

#include "rendezvous/rendezvous.h"

typedef struct store_server tri_store_server;

// Serves a generation of a run over TCP. `identity`: of any of its ranks, as tri_identity_read
// finds it in that rank's environment; its address says where to listen (port 0: at any free one),
// its interface at which interface only. TRI_NOT_FOUND: the address is another host's, or taken.
tri_status tri_store_serve(const tri_identity *identity, tri_store_server **out);
int tri_store_server_port(const tri_store_server *server);
// The next generation begins: the keys are gone, and ranks of earlier ones are told that they have
// been replaced. The size may be another one. `identity` as above.
void tri_store_server_begin(tri_store_server *server, const tri_identity *identity);
void tri_store_server_end(tri_store_server *server); // NULL allowed

#endif
