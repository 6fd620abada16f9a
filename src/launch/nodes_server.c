// The server in the serving agent, the one launcher of a run over several nodes that decides for
// all. Its thread polls the connections of the agents (the launchers of the nodes) and passes their
// messages to nodes_core.c, which makes the decisions. store_strangers.c admits only connections
// that prove to have the user's token, a secret.
#include "launch/nodes_server.h"

#include "base/os.h"
#include "base/thread.h"
#include "launch/nodes_core.h"
#include "launch/port.h"
#include "launch/store.h"
#include "rendezvous/store_strangers.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>

// The first four are indices into the array `fds`, which has all descriptors of the server, so that
// one poll waits for all of them.
enum {
    WAKE, // an event that wakes the server's thread when it has to end
    TCP,  // from here on the sockets that listen
    // From here on the strangers: connections that have not proved yet that they have the token.
    STRANGERS = TCP + TRI_MAX_STORE_LISTENERS,
    CLIENTS = STRANGERS + TRI_MAX_STORE_STRANGERS, // from here on the nodes' launchers, by number
    MAX_PENDING = 1 << 20 // most bytes that may wait for a node that does not read
};

typedef struct client {
    size_t got; // how many bytes of `in` have arrived
    nodes_message in;
    char *out;
    size_t pending, capacity;
    bool must_go; // the connection of this client has to be closed
} client;

struct nodes_server {
    nodes_core *core;
    tri_identity identity;
    const launch_options *options;
    launch_store store; // the store, through which the workers find each other
    pthread_t thread;
    atomic_bool stopping;
    int tcp_count, client_end;
    store_strangers strangers;
    client *clients; // one for each connected launcher, by its number
    struct pollfd fds[CLIENTS + TRI_MAX_NODES];
};

static void queue_message(void *context, int agent, const nodes_message *message) {
    nodes_server *s = context;
    client *c = &s->clients[agent];
    size_t bytes = nodes_message_bytes(message->head.kind);
    if (c->pending + bytes > MAX_PENDING) {
        c->must_go = true;
        return;
    }
    if (c->pending + bytes > c->capacity) {
        c->capacity = 2 * (c->pending + bytes);
        c->out = realloc(c->out, c->capacity);
        TRI_ASSERT(c->out);
    }
    memcpy(c->out + c->pending, message, bytes);
    c->pending += bytes;
}

// Fills in where the ranks of a round (a start of the workers on all nodes) find each other. Rank 0
// is on the serving agent's node, because all other nodes have reached that one.
static tri_status publish(void *context, int round, const nodes_join *first, nodes_round *out) {
    nodes_server *s = context;
    unsigned char bytes[16];
    const char *host = first->address[0] ? first->address : s->identity.address.host;
    snprintf(out->master_addr, sizeof out->master_addr, "%s", host);
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return tri_os_fail("draw", "random bytes");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out->nonce + 2 * i, sizeof out->nonce - 2 * i, "%02x", bytes[i]);
    int port;
    TRI_TRY(launch_free_port(false, &port));
    out->master_port = port;
    return launch_store_begin(&s->store, s->options, &s->identity.address, round, out);
}

static void close_client(nodes_server *s, int agent) {
    client *c = &s->clients[agent];
    if (s->fds[CLIENTS + agent].fd >= 0) tri_os.close(s->fds[CLIENTS + agent].fd);
    s->fds[CLIENTS + agent].fd = -1;
    free(c->out);
    *c = (client){0};
}

static void flush(nodes_server *s, int agent) {
    client *c = &s->clients[agent];
    while (c->pending) {
        ssize_t sent = tri_os.send(s->fds[CLIENTS + agent].fd, c->out, c->pending,
                                   MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) break; // the next poll reports a connection that has ended
        c->pending -= (size_t)sent;
        memmove(c->out, c->out + sent, c->pending);
    }
    s->fds[CLIENTS + agent].events = c->pending ? POLLIN | POLLOUT : POLLIN;
}

// Reads and handles the messages that have arrived from an agent (the launcher of a node). False:
// the agent has disconnected, or broke the protocol.
static bool receive(nodes_server *s, int agent) {
    client *c = &s->clients[agent];
    for (;;) {
        size_t wanted =
            c->got < sizeof c->in.head ? sizeof c->in.head : nodes_message_bytes(c->in.head.kind);
        if (wanted == 0) return false;
        if (c->got == wanted && wanted >= sizeof c->in.head) {
            c->got = 0;
            if (c->in.head.kind == NODES_BYE || nodes_message_check(&c->in) != TRI_OK ||
                !nodes_core_receive(s->core, agent, &c->in, tri_os.monotonic_ns()))
                return false;
            continue;
        }
        ssize_t got = tri_os.recv(s->fds[CLIENTS + agent].fd, (char *)&c->in + c->got,
                                  wanted - c->got, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno == EAGAIN;
        if (got == 0) return false;
        c->got += (size_t)got;
        // If all wanted bytes have arrived, the loop goes on: they may be the head of a longer
        // message, or a whole message, because some kinds are only a head.
        if (c->got < wanted) return true;
    }
}

static void let_go(nodes_server *s, int agent) {
    flush(s, agent);
    nodes_core_depart(s->core, agent, tri_os.monotonic_ns());
    close_client(s, agent);
}

static void add_client(nodes_server *s, int fd) {
    int agent = nodes_core_arrive(s->core, tri_os.monotonic_ns());
    if (agent == NODES_NOBODY) {
        tri_os.close(fd);
        return;
    }
    s->fds[CLIENTS + agent] = (struct pollfd){.fd = fd, .events = POLLIN};
    if (agent >= s->client_end) s->client_end = agent + 1;
}

static void accept_strangers(nodes_server *s) {
    for (int i = TCP; i < TCP + s->tcp_count; i++) {
        int64_t now_ns = tri_os.monotonic_ns();
        if (!s->fds[i].revents || !store_strangers_have_room(&s->strangers, now_ns)) continue;
        int fd = tri_os.accept(s->fds[i].fd, NULL, NULL);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE) tri_os.sleep_ns(100000000);
            continue;
        }
        int flags = fcntl(fd, F_GETFL);
        if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
            tri_os.close(fd);
            continue;
        }
        store_tcp_prepare(fd);
        store_strangers_take(&s->strangers, fd, now_ns);
    }
    for (int i = 0; i < TRI_MAX_STORE_STRANGERS; i++) {
        if (s->strangers.fds[i].fd < 0 || !s->strangers.fds[i].revents) continue;
        int fd = store_strangers_read(&s->strangers, i);
        if (fd >= 0) add_client(s, fd);
    }
}

static int64_t expire(nodes_server *s) {
    for (;;) {
        int silent;
        int64_t next_ns = nodes_core_expire(s->core, tri_os.monotonic_ns(), &silent);
        if (silent == NODES_NOBODY) return next_ns;
        flush(s, silent);
        close_client(s, silent);
    }
}

static void wait_for_events(nodes_server *s, int64_t until_ns) {
    int64_t now_ns = tri_os.monotonic_ns();
    int64_t expires_ns = store_strangers_expire(&s->strangers, now_ns);
    if (expires_ns < until_ns) until_ns = expires_ns;
    bool has_room = store_strangers_have_room(&s->strangers, now_ns);
    for (int i = TCP; i < TCP + s->tcp_count; i++) s->fds[i].events = has_room ? POLLIN : 0;
    while (s->client_end > 0 && s->fds[CLIENTS + s->client_end - 1].fd < 0) s->client_end--;
    int64_t left_ms = until_ns == INT64_MAX ? -1 : (until_ns - now_ns) / 1000000 + 1;
    if (until_ns <= now_ns) left_ms = 0;
    nfds_t count = (nfds_t)(CLIENTS + s->client_end);
    for (nfds_t i = 0; i < count; i++) s->fds[i].revents = 0;
    poll(s->fds, count, left_ms > INT_MAX ? INT_MAX : (int)left_ms);
}

static void *serve(void *context) {
    nodes_server *s = context;
    int64_t end_ns = INT64_MAX;
    for (;;) {
        for (int i = 0; i < s->client_end; i++) {
            const struct pollfd *p = &s->fds[CLIENTS + i];
            if (p->fd >= 0 && (s->clients[i].must_go || (p->revents && !receive(s, i))))
                let_go(s, i);
        }
        int64_t next_ns = expire(s);
        for (int i = 0; i < s->client_end; i++)
            if (s->fds[CLIENTS + i].fd >= 0) flush(s, i);
        if (atomic_load(&s->stopping) && end_ns == INT64_MAX) {
            end_ns = tri_os.monotonic_ns() + TRI_MAX_SHUTDOWN_MS * INT64_C(1000000);
            s->fds[WAKE].fd = -1;
        }
        if (end_ns != INT64_MAX &&
            (nodes_core_connected(s->core) == 0 || tri_os.monotonic_ns() >= end_ns))
            return NULL;
        wait_for_events(s, next_ns < end_ns ? next_ns : end_ns);
        accept_strangers(s);
    }
}

static void end(nodes_server *s, int wake) {
    for (int i = 0; i < s->client_end; i++) close_client(s, i);
    for (int i = TCP; i < TCP + s->tcp_count; i++) tri_os.close(s->fds[i].fd);
    store_strangers_close(&s->strangers);
    if (wake >= 0) tri_os.close(wake);
    launch_store_end(&s->store);
    nodes_core_destroy(s->core);
    free(s->clients);
    free(s);
}

tri_status nodes_server_start(const nodes_server_config *config, nodes_server **out) {
    nodes_server *s = calloc(1, sizeof *s);
    TRI_ASSERT(s);
    const launch_options *o = config->options;
    s->options = o;
    s->identity = *config->identity;
    s->clients = calloc(TRI_MAX_NODES, sizeof *s->clients);
    TRI_ASSERT(s->clients);
    nodes_rules rules = {o->nodes_min,
                         o->nodes_max,
                         o->max_restarts,
                         !strcmp(o->backend, "static"),
                         o->conf.join_timeout_s,
                         o->conf.last_call_s,
                         o->conf.silence_s,
                         queue_message,
                         publish,
                         s};
    s->core = nodes_core_create(&rules, tri_os.monotonic_ns());
    for (size_t i = 0; i < sizeof s->fds / sizeof *s->fds; i++)
        s->fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    s->tcp_count = config->sockets.count;
    for (int i = 0; i < s->tcp_count; i++) s->fds[TCP + i].fd = config->sockets.fds[i];
    s->strangers.fds = s->fds + STRANGERS;
    s->strangers.gate = (store_gate){config->token, store_run_hash(&s->identity), 0};
    int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->fds[WAKE].fd = wake;
    tri_status status = wake < 0 ? tri_os_fail("make an event", "the agents' server")
                                 : tri_thread_demand(&s->thread, serve, s, "the agents' server");
    if (status != TRI_OK)
        end(s, wake);
    else
        *out = s;
    return status;
}

void nodes_server_stop(nodes_server *s) {
    if (!s) return;
    int wake = s->fds[WAKE].fd;
    uint64_t one = 1;
    atomic_store(&s->stopping, true);
    if (tri_os.write(wake, &one, sizeof one) < 0) { /* cannot fail: the counter is not full */
    }
    pthread_join(s->thread, NULL);
    end(s, wake);
}
