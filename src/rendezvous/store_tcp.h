// The store over TCP, for ranks on several hosts: where rank 0 listens, and how the others find it.
#ifndef TRIREME_RENDEZVOUS_STORE_TCP_H
#define TRIREME_RENDEZVOUS_STORE_TCP_H

#include "base/limits.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/token.h"

typedef struct store_sockets {
    int fds[TRI_MAX_STORE_LISTENERS];
    int count;
} store_sockets;

// Listens only where other ranks look for the store, so that networks that the job does not use
// cannot reach it: at the addresses of TRIREME_INTERFACE, or else at those that the host name
// resolves to. If none of these belongs to this host, listens at all addresses of this host, unless
// address.is_exact. TRI_NOT_FOUND: the address is exact, and belongs to another host or is taken.
// TRI_NETWORK: it is not exact, and listening failed, for example because all ports are taken.
tri_status store_tcp_listen(const tri_identity *identity, store_sockets *out);
// Gets the port at which the first of the sockets listens.
int store_tcp_port(const store_sockets *sockets);

// Connects to a server of this run that has proved itself; the socket is blocking. It tries all
// addresses at the same time and takes up to about `round_ms`. TRI_NOT_FOUND: there is no such
// server yet, and the message says what is known; errno ECONNREFUSED: nobody listens at any
// address. TRI_MISMATCH: this rank's generation has ended.
tri_status store_tcp_connect(const tri_identity *identity, const store_token *token, int round_ms,
                             int *out);
// Sets the options that both ends of a connection need: small messages leave at once, and a dead
// other end is noticed.
void store_tcp_prepare(int fd);

// True if the address can only belong to this host (loopback), so that ranks of other hosts cannot
// use it.
bool store_address_is_loopback(const tri_identity *identity);

#endif
