// Finds the addresses of a host by its name. Compares and prints addresses of IPv4 and IPv6.
#include "rendezvous/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

static bool is_known(const rendezvous_addresses *all, const rendezvous_socket_address *one) {
    for (int i = 0; i < all->count; i++)
        if (rendezvous_is_same_host(&all->at[i], one)) return true;
    return false;
}

tri_status rendezvous_resolve(const char *host, int port, rendezvous_addresses *out) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    out->count = 0;
    int failed = getaddrinfo(host, NULL, &hints, &found);
    if (failed)
        return TRI_FAIL(TRI_NOT_FOUND, "the host name %.200s: %s", host, gai_strerror(failed));
    for (const struct addrinfo *i = found; i && out->count < TRI_MAX_STORE_LISTENERS;
         i = i->ai_next) {
        rendezvous_socket_address one = {.size = i->ai_addrlen};
        if (i->ai_family != AF_INET && i->ai_family != AF_INET6) continue;
        memcpy(&one.storage, i->ai_addr, i->ai_addrlen);
        rendezvous_set_port(&one, port);
        if (!is_known(out, &one)) out->at[out->count++] = one;
    }
    freeaddrinfo(found);
    return TRI_OK;
}

void rendezvous_wildcards(rendezvous_addresses *out) {
    out->count = 2;
    out->at[0] = (rendezvous_socket_address){.size = sizeof(struct sockaddr_in)};
    out->at[0].v4 = (struct sockaddr_in){.sin_family = AF_INET};
    out->at[1] = (rendezvous_socket_address){.size = sizeof(struct sockaddr_in6)};
    out->at[1].v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
}

void rendezvous_set_port(rendezvous_socket_address *address, int port) {
    if (address->any.sa_family == AF_INET)
        address->v4.sin_port = htons((uint16_t)port);
    else
        address->v6.sin6_port = htons((uint16_t)port);
}

int rendezvous_port_of(const rendezvous_socket_address *address) {
    return ntohs(address->any.sa_family == AF_INET ? address->v4.sin_port : address->v6.sin6_port);
}

bool rendezvous_is_loopback(const rendezvous_socket_address *address) {
    if (address->any.sa_family == AF_INET)
        return ntohl(address->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
}

bool rendezvous_is_same_host(const rendezvous_socket_address *a,
                             const rendezvous_socket_address *b) {
    if (a->any.sa_family != b->any.sa_family) return false;
    if (a->any.sa_family == AF_INET) return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
    return IN6_ARE_ADDR_EQUAL(&a->v6.sin6_addr, &b->v6.sin6_addr) &&
           a->v6.sin6_scope_id == b->v6.sin6_scope_id;
}

const char *rendezvous_address_text(const rendezvous_socket_address *address, char *out,
                                    size_t size) {
    const void *number = address->any.sa_family == AF_INET ? (const void *)&address->v4.sin_addr
                                                           : (const void *)&address->v6.sin6_addr;
    if (!inet_ntop(address->any.sa_family, number, out, (socklen_t)size))
        snprintf(out, size, "an address");
    return out;
}
