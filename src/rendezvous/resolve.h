// Addresses of sockets, and functions that find them by the name of a host.
#ifndef TRIREME_RENDEZVOUS_RESOLVE_H
#define TRIREME_RENDEZVOUS_RESOLVE_H

#include "base/limits.h"
#include "base/status.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

typedef struct rendezvous_socket_address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage storage;
    };
    socklen_t size;
} rendezvous_socket_address;

typedef struct rendezvous_addresses {
    rendezvous_socket_address at[TRI_MAX_STORE_LISTENERS];
    int count;
} rendezvous_addresses;

// Finds all addresses of a host by name or number, each once. TRI_NOT_FOUND: the name has no
// address now; it may get one later, while a cluster is starting.
tri_status rendezvous_resolve(const char *host, int port, rendezvous_addresses *out);
// Gets the wildcard addresses, which stand for all addresses of this host.
void rendezvous_wildcards(rendezvous_addresses *out);
void rendezvous_set_port(rendezvous_socket_address *address, int port);
int rendezvous_port_of(const rendezvous_socket_address *address);
bool rendezvous_is_loopback(const rendezvous_socket_address *address);
bool rendezvous_is_same_host(const rendezvous_socket_address *a,
                             const rendezvous_socket_address *b); // ports do not matter
// Writes the address as text, for messages. Returns `out`.
const char *rendezvous_address_text(const rendezvous_socket_address *address, char *out,
                                    size_t size);

#endif
