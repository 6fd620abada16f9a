// The check before the ranks are connected: whether each host can open a TCP connection to each
// other host. The transport that later connects the ranks would try for minutes, and could not tell
// which pair of hosts failed.
//
// The first rank of each host listens at all addresses of its host, publishes them through the
// store (the key-value service at which the ranks have met), and connects to those of the other
// hosts. The system accepts connections by itself; nothing is read or written.
#include "preflight/state.h"

#include "base/os.h"
#include "base/quantity.h"
#include "rendezvous/resolve.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ADDRESSES = 8, AT_ONCE = 32, VERDICT_BYTES = 2 * PREFLIGHT_TEXT_BYTES };

typedef struct reach_card { // what a host tells the other hosts about how it can be reached
    char host[64];
    int32_t count;
    rendezvous_socket_address at[MAX_ADDRESSES];
} reach_card;

typedef struct reach_listeners {
    int fds[MAX_ADDRESSES];
    reach_card card;
} reach_listeners;

static bool is_usable(const preflight *p, const struct ifaddrs *entry) {
    const char *interface = p->identity.interface;
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP)) return false;
    if (interface[0] && strcmp(interface, entry->ifa_name) != 0) return false;
    if (entry->ifa_flags & IFF_LOOPBACK) return false;
    if (entry->ifa_addr->sa_family == AF_INET) return true;
    return entry->ifa_addr->sa_family == AF_INET6 &&
           !IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)entry->ifa_addr)->sin6_addr);
}

static void listen_at(const struct sockaddr *address, int backlog, reach_listeners *out) {
    int family = address->sa_family, on = 1;
    rendezvous_socket_address at = {.size = family == AF_INET ? sizeof(struct sockaddr_in)
                                                              : sizeof(struct sockaddr_in6)};
    memcpy(&at.storage, address, at.size);
    rendezvous_set_port(&at, 0);
    int fd = tri_os.socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    if (family == AF_INET6) (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, &at.any, at.size) != 0 || listen(fd, backlog) != 0 ||
        getsockname(fd, &at.any, &at.size) != 0) {
        tri_os.close(fd);
        return;
    }
    out->fds[out->card.count] = fd;
    out->card.at[out->card.count++] = at;
}

static tri_status begin_listening(const preflight *p, int hosts, reach_listeners *out) {
    struct ifaddrs *all;
    memset(out, 0, sizeof *out);
    snprintf(out->card.host, sizeof out->card.host, "%.63s", p->identity.host);
    if (getifaddrs(&all) != 0) return tri_os_fail("list", "network interfaces");
    for (const struct ifaddrs *entry = all; entry; entry = entry->ifa_next)
        if (out->card.count < MAX_ADDRESSES && is_usable(p, entry))
            listen_at(entry->ifa_addr, hosts * MAX_ADDRESSES, out);
    freeifaddrs(all);
    return TRI_OK;
}

static void end_listening(reach_listeners *listeners) {
    for (int i = 0; i < listeners->card.count; i++) tri_os.close(listeners->fds[i]);
}

static int connect_to(const rendezvous_socket_address *address, bool *is_done) {
    int fd = tri_os.socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    int result = tri_os.connect(fd, &address->any, address->size);
    *is_done = result == 0;
    if (result == 0 || errno == EINPROGRESS) return fd;
    tri_os.close(fd);
    return -1;
}

static bool is_connected(int fd) {
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

// Connects to all addresses of up to AT_ONCE hosts at the same time, so that hosts that do not
// answer cost only one time limit. reached[i]: some address of host i was reached.
static void connect_all(const reach_card *cards, int count, double limit_s, char *reached) {
    struct pollfd waits[AT_ONCE * MAX_ADDRESSES];
    int host_of[AT_ONCE * MAX_ADDRESSES], used = 0;
    for (int h = 0; h < count; h++)
        for (int i = 0; i < cards[h].count && i < MAX_ADDRESSES; i++) {
            bool is_done = false;
            int fd = connect_to(&cards[h].at[i], &is_done);
            reached[h] |= is_done;
            if (fd < 0) continue;
            waits[used] = (struct pollfd){.fd = fd, .events = POLLOUT};
            host_of[used++] = h;
        }
    double until = tri_os_seconds() + limit_s;
    for (bool is_left = true; is_left && tri_os_seconds() < until;) {
        (void)poll(waits, (nfds_t)used, 50);
        is_left = false;
        for (int i = 0; i < used; i++) {
            if (waits[i].fd >= 0 && waits[i].revents) {
                reached[host_of[i]] |= is_connected(waits[i].fd);
                tri_os.close(waits[i].fd);
                waits[i].fd = -1;
            }
            is_left |= waits[i].fd >= 0 && !reached[host_of[i]];
        }
    }
    for (int i = 0; i < used; i++)
        if (waits[i].fd >= 0) tri_os.close(waits[i].fd);
}

static int timeout_ms(const preflight *p) { return (int)(p->request->timeout_s * 1e3); }

static tri_status get(const preflight *p, tri_store *store, const char *what, int host, void *value,
                      size_t size) {
    char key[48];
    size_t got;
    snprintf(key, sizeof key, "preflight/%s/%d", what, host);
    memset(value, 0, size);
    return tri_store_get(store, key, timeout_ms(p), value, size, &got);
}

static tri_status set(tri_store *store, const char *what, int host, const void *value,
                      size_t size) {
    char key[48];
    snprintf(key, sizeof key, "preflight/%s/%d", what, host);
    return tri_store_set(store, key, value, size);
}

// Tries to reach the other hosts. Runs on the first rank of host `own`.
static tri_status try_others(const preflight *p, tri_store *store, int own, int hosts) {
    char *reached = TRI_NEW_ARRAY(p->arena, char, hosts);
    for (int h = 0; h < hosts; h += AT_ONCE) {
        reach_card cards[AT_ONCE] = {0};
        int count = hosts - h < AT_ONCE ? hosts - h : AT_ONCE;
        for (int i = 0; i < count; i++)
            if (h + i != own) TRI_TRY(get(p, store, "at", h + i, &cards[i], sizeof cards[i]));
        connect_all(cards, count, p->request->limits.reach_s, reached + h);
    }
    preflight_failures failures = {0};
    for (int h = 0; h < hosts; h++) {
        if (h == own || reached[h]) continue;
        if (failures.count < PREFLIGHT_NAMED_FAILURES) failures.host[failures.count] = h;
        failures.count++;
    }
    return set(store, "failures", own, &failures, sizeof failures);
}

static int named(const preflight_failures *f) {
    return f->count < PREFLIGHT_NAMED_FAILURES ? f->count : PREFLIGHT_NAMED_FAILURES;
}

static bool names_host(const preflight_failures *f, int host) {
    for (int i = 0; i < named(f); i++)
        if (f->host[i] == host) return true;
    return false;
}

// Counts for each host how many other hosts it cannot reach, or cannot be reached from.
static int *count_failures(tri_arena *arena, const preflight_failures *all, int hosts) {
    int *count = TRI_NEW_ARRAY(arena, int, hosts);
    for (int i = 0; i < hosts; i++) count[i] += all[i].count;
    for (int i = 0; i < hosts; i++)
        for (int k = 0; k < named(&all[i]); k++) {
            int j = all[i].host[k];
            if (j >= 0 && j < hosts && !names_host(&all[j], i)) count[j]++;
        }
    return count;
}

const char *preflight_unreached(tri_arena *arena, const preflight_failures *all,
                                const char *const *names, int hosts) {
    preflight_list list = {.arena = arena};
    const int *count = count_failures(arena, all, hosts);
    for (int i = 0; i < hosts; i++)
        if (hosts > 2 && count[i] >= hosts - 1)
            preflight_list_add(&list, "%s and any other host", names[i]);
    for (int i = 0; i < hosts; i++)
        for (int k = 0; k < named(&all[i]); k++) {
            int j = all[i].host[k];
            bool is_alone = hosts > 2 && (count[i] >= hosts - 1 || count[j] >= hosts - 1);
            if (is_alone || (j < i && names_host(&all[j], i))) continue;
            preflight_list_add(&list, "%s and %s", names[i < j ? i : j], names[i < j ? j : i]);
        }
    return preflight_list_text(&list);
}

// Writes to `verdict`, on rank 0, which hosts cannot reach each other, from what all hosts have
// found; "": all can.
static tri_status judge_pairs(const preflight *p, tri_store *store, int hosts, char *verdict) {
    preflight_failures *failures = TRI_NEW_ARRAY(p->arena, preflight_failures, hosts);
    const char **names = TRI_NEW_ARRAY(p->arena, const char *, hosts);
    for (int h = 0; h < hosts; h++) {
        reach_card card;
        TRI_TRY(get(p, store, "at", h, &card, sizeof card));
        TRI_TRY(get(p, store, "failures", h, &failures[h], sizeof failures[h]));
        names[h] = tri_arena_strdup(p->arena, card.host);
    }
    snprintf(verdict, VERDICT_BYTES, "%s", preflight_unreached(p->arena, failures, names, hosts));
    return TRI_OK;
}

static tri_status exchange(const preflight *p, tri_store *store, const reach_listeners *listeners,
                           int own) {
    char verdict[VERDICT_BYTES] = "";
    int hosts = tri_store_host_count(store);
    if (own >= 0) {
        TRI_TRY(set(store, "at", own, &listeners->card, sizeof listeners->card));
        TRI_TRY(try_others(p, store, own, hosts));
    }
    if (p->identity.rank == 0) {
        TRI_TRY(judge_pairs(p, store, hosts, verdict));
        TRI_TRY(set(store, "verdict", 0, verdict, sizeof verdict));
    }
    TRI_TRY(get(p, store, "verdict", 0, verdict, sizeof verdict));
    if (!verdict[0]) return TRI_OK;
    return TRI_FAIL(TRI_NETWORK,
                    "ranks on %s cannot open TCP connections to each other within %s; look for "
                    "firewalls and routes, or name the right network by TRIREME_INTERFACE",
                    verdict, tri_seconds_text(p->request->limits.reach_s));
}

tri_status preflight_reach(void *context, tri_store *store) {
    preflight *p = context;
    reach_listeners listeners = {0};
    p->has_met = true;
    int rank = p->identity.rank, own = tri_store_host_of(store, rank);
    for (int r = 0; r < rank; r++)
        if (tri_store_host_of(store, r) == own) return exchange(p, store, &listeners, -1);
    TRI_TRY(begin_listening(p, tri_store_host_count(store), &listeners));
    tri_status status = exchange(p, store, &listeners, own);
    end_listening(&listeners);
    return status;
}
