// The server's side of the store (the key-value service at which the ranks meet) over TCP: finds at
// which addresses of this host rank 0 has to listen, and listens there.
#include "rendezvous/store_tcp.h"

#include "base/log.h"
#include "base/os.h"
#include "rendezvous/resolve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool store_address_is_loopback(const tri_identity *identity) {
    const char *host = identity->address.host;
    return !strcmp(host, "localhost") || !strncmp(host, "127.", 4) || !strcmp(host, "::1");
}

void store_tcp_prepare(int fd) {
    int on = 1, patience_ms = TRI_STORE_ANSWER_MS;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, sizeof patience_ms);
}

// Listens at one address and port. Returns a socket, or -1 with errno: the address does not belong
// to this host (EADDRNOTAVAIL), or is taken (EADDRINUSE).
static int listen_at(const rendezvous_socket_address *address) {
    int family = address->any.sa_family, on = 1;
    int fd = tri_os.socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    // Allows listening at the port of a run that has just ended, whose connections the system may
    // still keep in the state TIME_WAIT.
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, &address->any, address->size) == 0 && listen(fd, TRI_MAX_STORE_CLIENTS) == 0)
        return fd;
    int error = errno;
    tri_os.close(fd);
    errno = error;
    return -1;
}

// Listens at the first port of the range that is free at this address, because other jobs on this
// host may have taken the first ports. Port 0: any port. Returns the socket; -1: it failed, and
// errno says why.
static int listen_in_range(const tri_identity *identity, rendezvous_socket_address address) {
    int fd = -1;
    for (int i = 0; fd < 0 && i < identity->address.ports; i++) {
        rendezvous_set_port(&address, identity->address.port + i);
        fd = listen_at(&address);
        if (fd < 0 && errno != EADDRINUSE && errno != EACCES) break;
    }
    return fd;
}

static bool is_usable(const struct ifaddrs *entry, const char *interface) {
    if (!entry->ifa_addr || strcmp(entry->ifa_name, interface) != 0) return false;
    if (entry->ifa_addr->sa_family == AF_INET) return true;
    if (entry->ifa_addr->sa_family != AF_INET6) return false;
    return !IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)entry->ifa_addr)->sin6_addr);
}

static tri_status no_interface(const char *interface) {
    char names[256] = "";
    struct if_nameindex *all = if_nameindex();
    size_t used = 0;
    for (int i = 0; all && all[i].if_index && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 all[i].if_name);
    if (all) if_freenameindex(all);
    return TRI_FAIL(TRI_BAD_INPUT,
                    "TRIREME_INTERFACE=%s: this host has no such interface with an address; it has "
                    "%s",
                    interface, names);
}

static tri_status addresses_of_interface(const char *interface, rendezvous_addresses *out) {
    struct ifaddrs *all;
    out->count = 0;
    if (getifaddrs(&all) != 0) return tri_os_fail("list", "network interfaces");
    for (const struct ifaddrs *entry = all; entry; entry = entry->ifa_next) {
        if (!is_usable(entry, interface) || out->count == TRI_MAX_STORE_LISTENERS) continue;
        rendezvous_socket_address *to = &out->at[out->count++];
        bool is_v4 = entry->ifa_addr->sa_family == AF_INET;
        to->size = is_v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        memcpy(&to->storage, entry->ifa_addr, to->size);
    }
    freeifaddrs(all);
    return out->count ? TRI_OK : no_interface(interface);
}

// Checks that the interface that the user gave (TRIREME_INTERFACE) has an address at which ranks of
// other hosts look for rank 0. If it has none, they would never find rank 0.
static tri_status check_interface(const tri_identity *identity, const rendezvous_addresses *own) {
    rendezvous_addresses named;
    char text[INET6_ADDRSTRLEN];
    if (rendezvous_resolve(identity->address.host, identity->address.port, &named) != TRI_OK)
        return TRI_OK;
    bool is_known = false;
    for (int i = 0; i < named.count; i++) {
        is_known |= !rendezvous_is_loopback(&named.at[i]);
        for (int k = 0; k < own->count; k++)
            if (rendezvous_is_same_host(&named.at[i], &own->at[k])) return TRI_OK;
    }
    if (!is_known) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "TRIREME_INTERFACE=%s is not where the others look for this host (%s): set "
                    "%s to the interface's address, %s",
                    identity->interface, identity->address.host, identity->address.source,
                    rendezvous_address_text(&own->at[0], text, sizeof text));
}

// Finds the addresses at which rank 0 has to listen. Some may belong to other hosts; listening
// there fails, and the next one is tried.
static tri_status addresses_of(const tri_identity *identity, rendezvous_addresses *out) {
    if (identity->interface[0]) {
        TRI_TRY(addresses_of_interface(identity->interface, out));
        return check_interface(identity, out);
    }
    if (rendezvous_resolve(identity->address.host, identity->address.port, out) != TRI_OK)
        out->count = 0;
    bool only_loopback = true;
    for (int i = 0; i < out->count; i++) only_loopback &= rendezvous_is_loopback(&out->at[i]);
    // /etc/hosts may give this host's own name a loopback address, at which no other host can reach
    // it. Then the result is the same as for a name without addresses.
    if (only_loopback && !store_address_is_loopback(identity)) out->count = 0;
    return TRI_OK;
}

int store_tcp_port(const store_sockets *sockets) {
    rendezvous_socket_address address = {.size = sizeof address.storage};
    if (!sockets->count || getsockname(sockets->fds[0], &address.any, &address.size) != 0) return 0;
    return rendezvous_port_of(&address);
}

static void listen_everywhere(const tri_identity *identity, store_sockets *out) {
    rendezvous_addresses all;
    tri_identity me = *identity;
    rendezvous_wildcards(&all);
    for (int i = 0; i < all.count; i++) {
        int fd = listen_in_range(&me, all.at[i]);
        if (fd >= 0) out->fds[out->count++] = fd;
        if (fd >= 0 && me.address.port == 0) me.address.port = store_tcp_port(out);
    }
    if (out->count && identity->address.port)
        tri_log_line(
            TRI_LOG_WARNING,
            "this process listens at all addresses of %s, because %s=%s names none of them; "
            "TRIREME_INTERFACE names an interface",
            identity->host, identity->address.source, identity->address.host);
}

tri_status store_tcp_listen(const tri_identity *identity, store_sockets *out) {
    rendezvous_addresses all;
    const tri_store_address *address = &identity->address;
    int error = EADDRNOTAVAIL;
    out->count = 0;
    tri_identity me = *identity;
    TRI_TRY(addresses_of(identity, &all));
    for (int i = 0; i < all.count && out->count < TRI_MAX_STORE_LISTENERS; i++) {
        int fd = listen_in_range(&me, all.at[i]);
        if (fd >= 0)
            out->fds[out->count++] = fd;
        else if (errno != EADDRNOTAVAIL)
            error = errno;
        if (fd >= 0 && me.address.port == 0) me.address.port = store_tcp_port(out);
    }
    if (!out->count && error == EADDRNOTAVAIL && !address->is_exact)
        listen_everywhere(identity, out);
    if (out->count) return TRI_OK;
    if (address->is_exact && (error == EADDRINUSE || error == EADDRNOTAVAIL))
        return TRI_FAIL(TRI_NOT_FOUND, "%s port %d: %s", address->host, address->port,
                        strerror(error));
    return TRI_FAIL(TRI_NETWORK, "cannot listen at %s, ports %d to %d: %s; set another %s",
                    address->host, address->port, address->port + address->ports - 1,
                    strerror(error), address->port_source);
}
