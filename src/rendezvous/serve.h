// Runs the server of the store (the key-value service at which the ranks meet) in a process that is
// not a rank but a launcher, which is then called an agent. The launcher outlives its ranks, so
// that ranks still find the store after rank 0 is restarted. Ranks find it by
// TRIREME_STORE=HOST:PORT.
#ifndef TRIREME_RENDEZVOUS_SERVE_H
#define TRIREME_RENDEZVOUS_SERVE_H

#include "rendezvous/rendezvous.h"

typedef struct store_server tri_store_server;

// Serves one start of a run (a generation) over TCP. `identity` is the identity of any rank of the
// run, as tri_identity_read finds it in that rank's environment. The server listens at
// identity->address (port 0: at any free port). If identity->interface is not "", it listens only
// at that network interface. Otherwise, if address.is_exact is false and the host name resolves to
// no address of this host, it listens at all addresses of this host. TRI_NOT_FOUND: is_exact is
// true, so the server may listen only at this address, but the address belongs to another host, or
// another process listens there already.
tri_status tri_store_serve(const tri_identity *identity, tri_store_server **out);
int tri_store_server_port(const tri_store_server *server);
// Begins the next generation, that is, serves the next start of the run: the keys are removed, and
// ranks of earlier starts are told that they have been replaced. The number of ranks may change.
// `identity` as in tri_store_serve.
void tri_store_server_begin(tri_store_server *server, const tri_identity *identity);
void tri_store_server_end(tri_store_server *server); // NULL allowed

#endif
