// The store over TCP, for ranks of several hosts: where rank 0 listens, and how the others find it.
#ifndef TRIREME_RENDEZVOUS_STORE_TCP_H
#define TRIREME_RENDEZVOUS_STORE_TCP_H

#include "base/limits.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/token.h"

typedef struct store_sockets {
    int fds[TRI_MAX_STORE_LISTENERS];
    int count;
} store_sockets;

// Listens at the addresses of this host that the identity's address names, and at no others, so
// that networks which the job does not use cannot reach the store: those of TRIREME_INTERFACE, else
// those that the host name resolves to. Only if the name resolves to none of this host's, at all of
// them. TRI_NOT_FOUND: TRIREME_STORE names another host, or another process listens there already.
tri_status store_tcp_listen(const tri_identity *identity, store_sockets *out);
// The port at which the first of the sockets listens.
int store_tcp_port(const store_sockets *sockets);

// Connects to a server of this run that has proved itself; the socket is blocking. Takes up to
// about `round_ms` and tries all addresses at once. TRI_NOT_FOUND: there is none yet, and the
// message says what is known; errno ECONNREFUSED: nobody listens at any of them. TRI_MISMATCH: this
// rank's generation has ended.
tri_status store_tcp_connect(const tri_identity *identity, const store_token *token, int round_ms,
                             int *out);
// Sets what both ends of a connection set: small messages leave at once, and a dead peer is
// noticed.
void store_tcp_prepare(int fd);

// True if the address can only be this host's own, so that ranks of other hosts cannot use it.
bool store_address_is_loopback(const tri_identity *identity);

#endif
