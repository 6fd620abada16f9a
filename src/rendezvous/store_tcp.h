// The store (the key-value service at which the ranks meet) over TCP, for ranks on several hosts:
// where rank 0, which serves the store, listens, and how the other ranks find it.
#ifndef TRIREME_RENDEZVOUS_STORE_TCP_H
#define TRIREME_RENDEZVOUS_STORE_TCP_H

#include "base/limits.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/token.h"

typedef struct store_sockets {
    int fds[TRI_MAX_STORE_LISTENERS];
    int count;
} store_sockets;

// Listens at the addresses of TRIREME_INTERFACE or, if that is not set, at those to which
// address.host resolves. There the other ranks look for the store. It listens nowhere else, so that
// networks that the job does not use cannot reach the store. But if none of these addresses belongs
// to this host and address.is_exact is false, it listens at all addresses of this host.
// TRI_NOT_FOUND: the address is exact, and belongs to another host or is taken. TRI_NETWORK: it is
// not exact, and listening failed, for example because all ports are taken.
tri_status store_tcp_listen(const tri_identity *identity, store_sockets *out);
// Gets the port at which the first of the sockets listens.
int store_tcp_port(const store_sockets *sockets);

// Connects to the server of this run, and checks by the first messages (greeting.h) that it has the
// user's token, a secret. Tries all addresses and ports at the same time, for at most about
// `round_ms`. *out is the socket, which is blocking. TRI_NOT_FOUND: no such server answered. Then
// the message says what answered instead, if anything did, and errno is ECONNREFUSED if nobody
// listens at any of the addresses. TRI_MISMATCH: the run was started again, and the server serves
// the later start.
tri_status store_tcp_connect(const tri_identity *identity, const store_token *token, int round_ms,
                             int *out);
// Sets the options that both ends of a connection need: small messages leave at once, and a dead
// other end is noticed.
void store_tcp_prepare(int fd);

// True if the address can only belong to this host (loopback), so that ranks of other hosts cannot
// use it.
bool store_address_is_loopback(const tri_identity *identity);

#endif
