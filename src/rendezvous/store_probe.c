// A rank's search over TCP for the server of the store (the key-value service at which the ranks
// meet): it tries all ports of all addresses that rank 0's host name has. Some ports may not
// answer, or may belong to other programs. So the rank tries all at the same time: the wait is then
// one timeout, and not one for each of these ports. A probe is the connection to one address and
// port. It begins with the greeting, by which both ends prove that they have the user's token
// (greeting.h).
#include "rendezvous/store_tcp.h"

#include "base/os.h"
#include "rendezvous/greeting.h"
#include "rendezvous/resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { PROBES = TRI_MAX_STORE_LISTENERS * TRI_STORE_PORTS };

typedef struct probe {
    rendezvous_socket_address address;
    bool is_connected;
    size_t got; // how many bytes of the challenge, the server's first message, have arrived
    store_challenge challenge;
} probe;

typedef struct probing {
    const tri_identity *identity;
    const store_token *token;
    int64_t end_ns;
    // count: how many probes there are. found: the socket of our server; -1: not found yet.
    int count, found;
    int tried, refused; // how many addresses were tried, and at how many of them nobody listens
    tri_status failed;  // a status that ends the search; TRI_OK: none
    char note[256];     // what answered instead of our server; "": nothing did
    struct pollfd fds[PROBES]; // fd -1: this probe was given up
    probe at[PROBES];
} probing;

static void give_up(probing *p, int index) {
    if (p->fds[index].fd >= 0) tri_os.close(p->fds[index].fd);
    p->fds[index].fd = -1;
}

static void start(probing *p, const rendezvous_socket_address *address) {
    int fd = tri_os.socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    p->tried++;
    if (fd < 0) return;
    if (tri_os.connect(fd, &address->any, address->size) != 0 && errno != EINPROGRESS) {
        p->refused += errno == ECONNREFUSED;
        tri_os.close(fd);
        return;
    }
    p->fds[p->count] = (struct pollfd){.fd = fd, .events = POLLOUT};
    p->at[p->count++] = (probe){.address = *address};
}

static int left_ms(const probing *p) {
    int64_t left = (p->end_ns - tri_os.monotonic_ns() + 999999) / 1000000;
    return left < 0 ? 0 : (int)left;
}

// Sends the `size` bytes of `send` or, if that is NULL, receives as many into `receive`. False: the
// other end has closed the connection, or the time is over.
static bool exchange(int fd, const void *send, void *receive, size_t size) {
    size_t done = 0;
    int64_t end_ns = tri_os.monotonic_ns() + TRI_STORE_GREETING_MS * INT64_C(1000000);
    while (done < size) {
        ssize_t moved = send ? tri_os.send(fd, (const char *)send + done, size - done, MSG_NOSIGNAL)
                             : tri_os.recv(fd, (char *)receive + done, size - done, 0);
        if (moved > 0) {
            done += (size_t)moved;
            continue;
        }
        if (moved == 0 || (errno != EAGAIN && errno != EINTR)) return false;
        struct pollfd one = {.fd = fd, .events = send ? POLLOUT : POLLIN};
        poll(&one, 1, 100);
        if (tri_os.monotonic_ns() >= end_ns) return false;
    }
    return true;
}

static void keep_note(probing *p, const probe *one, const char *what) {
    char host[INET6_ADDRSTRLEN];
    snprintf(p->note, sizeof p->note, "%s port %d answers, but %s",
             rendezvous_address_text(&one->address, host, sizeof host),
             rendezvous_port_of(&one->address), what);
}

static void refuse_stale(probing *p, int64_t newer) {
    const tri_identity *me = p->identity;
    p->failed = TRI_FAIL(TRI_MISMATCH,
                         "rank %d on %s is of generation %lld of the run, which has ended: "
                         "generation %lld has taken its place",
                         me->rank, me->host, (long long)me->generation, (long long)newer);
}

// Does the rest of the greeting, after the server has sent its challenge.
static void greet(probing *p, int index) {
    probe *one = &p->at[index];
    int fd = p->fds[index].fd;
    store_proof proof;
    store_verdict verdict;
    if (store_proof_make(p->token, p->identity, &one->challenge, &proof) != TRI_OK)
        keep_note(p, one, "it is not a store");
    else if (!exchange(fd, &proof, NULL, sizeof proof) ||
             !exchange(fd, NULL, &verdict, sizeof verdict))
        keep_note(p, one, "turned this rank away: it has another token (TRIREME_TOKEN_FILE)");
    else if (store_verdict_check(p->token, &one->challenge, &proof, &verdict) != TRI_OK)
        keep_note(p, one, "does not have this job's token");
    else if (verdict.admission == STORE_ADMITTED)
        p->found = fd;
    else if (verdict.admission == STORE_STALE)
        refuse_stale(p, verdict.generation);
    else
        keep_note(p, one,
                  verdict.admission == STORE_EARLY ? "serves an earlier generation of the run"
                                                   : "serves another job");
    if (p->found != fd) give_up(p, index);
}

static void advance(probing *p, int index) {
    probe *one = &p->at[index];
    int fd = p->fds[index].fd, error = 0;
    socklen_t size = sizeof error;
    if (!one->is_connected) {
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error) {
            p->refused += error == ECONNREFUSED;
            give_up(p, index);
            return;
        }
        one->is_connected = true;
        p->fds[index].events = POLLIN;
        return;
    }
    ssize_t got = tri_os.recv(fd, (char *)&one->challenge + one->got,
                              sizeof one->challenge - one->got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        give_up(p, index);
        return;
    }
    one->got += (size_t)got;
    if (one->got == sizeof one->challenge) greet(p, index);
}

static bool goes_on(const probing *p) {
    bool any = false;
    for (int i = 0; i < p->count; i++) any |= p->fds[i].fd >= 0;
    return any && p->found < 0 && p->failed == TRI_OK && left_ms(p) > 0;
}

static void search(probing *p, const rendezvous_addresses *addresses) {
    const tri_store_address *where = &p->identity->address;
    for (int port = 0; port < where->ports && port < TRI_STORE_PORTS; port++)
        for (int i = 0; i < addresses->count; i++) {
            rendezvous_socket_address address = addresses->at[i];
            rendezvous_set_port(&address, where->port + port);
            start(p, &address);
        }
    while (goes_on(p)) {
        poll(p->fds, (nfds_t)p->count, left_ms(p));
        for (int i = 0; i < p->count && p->found < 0 && p->failed == TRI_OK; i++)
            if (p->fds[i].fd >= 0 && p->fds[i].revents) advance(p, i);
    }
    for (int i = 0; i < p->count; i++)
        if (p->fds[i].fd != p->found) give_up(p, i);
}

tri_status store_tcp_connect(const tri_identity *identity, const store_token *token, int round_ms,
                             int *out) {
    const tri_store_address *where = &identity->address;
    rendezvous_addresses addresses;
    tri_status status = rendezvous_resolve(where->host, where->port, &addresses);
    if (status != TRI_OK) {
        errno = 0; // not ECONNREFUSED, which would tell the caller that nobody listens
        return status;
    }
    probing p = {.identity = identity,
                 .token = token,
                 .end_ns = tri_os.monotonic_ns() + round_ms * INT64_C(1000000),
                 .found = -1};
    search(&p, &addresses);
    if (p.failed != TRI_OK) return p.failed;
    if (p.found < 0) {
        status = TRI_FAIL(TRI_NOT_FOUND, "%s",
                          p.note[0] ? p.note : "nothing answers there for this job");
        errno = p.tried && p.refused == p.tried ? ECONNREFUSED : 0;
        return status;
    }
    (void)fcntl(p.found, F_SETFL, fcntl(p.found, F_GETFL) & ~O_NONBLOCK);
    store_tcp_prepare(p.found);
    *out = p.found;
    return TRI_OK;
}
