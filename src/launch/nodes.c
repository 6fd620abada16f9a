// The connection of an agent (a node's launcher) to the serving agent, the one that decides what
// all nodes do. The connection begins with a greeting, in which both ends prove that they have the
// user's token (a secret). Then a thread of its own reads the connection and sends beats (signs of
// life), so that this node does not look lost while the launcher's main thread is busy. In a static
// run (--rdzv-backend static) the user has numbered the nodes; other runs number them in the order
// in which they join. Read next: nodes_core.c, the decisions of the serving agent.
#include "launch/nodes.h"

#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "base/thread.h"
#include "launch/nodes_server.h"
#include "rendezvous/address.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { DEFAULT_PORT = 29400, PAUSE_MS = 100, FIRST_PROBE_MS = 500, QUEUE = 64 };

struct launch_nodes {
    const launch_options *options;
    tri_identity identity;
    nodes_server *server; // set if this launcher is the serving agent; NULL: another one is
    int signal_fd;
    store_token token;
    int fd;
    bool is_listening; // the reading thread has been started
    int returns;       // how often this node was cut off and has joined again
    int event;         // an event counter that wakes the main thread
    int wake[2];       // a pipe that ends the reading thread
    pthread_t thread;
    atomic_int round; // number of the latest round (start of the workers on all nodes)
    pthread_mutex_t sending;
    pthread_mutex_t lock; // protects the members below
    nodes_message queue[QUEUE];
    int count;
    bool has_ended; // the message END (the run ends) is in the queue, or was taken from it
};

static bool is_static(const launch_options *o) { return !strcmp(o->backend, "static"); }

static tri_status read_endpoint(const char *text, tri_store_address *out) {
    if (rendezvous_split_address(text, DEFAULT_PORT, out->host, &out->port)) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "--rdzv-endpoint: '%.80s' is not HOST or HOST:PORT (of IPv6: [ADDRESS] or "
                    "[ADDRESS]:PORT)",
                    text);
}

static bool is_addressed(const launch_options *o) {
    return *o->endpoint || is_static(o) || strcmp(o->master_addr, "127.0.0.1") != 0;
}

// Makes the identity with which this agent greets the serving agent: the run, this host, and the
// address at which the serving agent listens.
static tri_status describe(const launch_options *o, tri_identity *out) {
    *out = (tri_identity){.rank = o->node_rank, .size = o->nodes_max};
    const char *interface = getenv("TRIREME_INTERFACE");
    if (gethostname(out->host, sizeof out->host - 1) != 0) return tri_os_fail("read", "host name");
    snprintf(out->run, sizeof out->run, "agents of %.50s", o->run_id);
    snprintf(out->job, sizeof out->job, "%.60s", out->run);
    if (interface) snprintf(out->interface, sizeof out->interface, "%s", interface);
    tri_store_address *address = &out->address;
    address->ports = 1;
    if (*o->endpoint) {
        address->source = address->port_source = "--rdzv-endpoint";
        return read_endpoint(o->endpoint, address);
    }
    if (strlen(o->master_addr) >= sizeof address->host)
        return TRI_FAIL(TRI_BAD_INPUT, "--master-addr: longer than %zu bytes",
                        sizeof address->host - 1);
    snprintf(address->host, sizeof address->host, "%s", o->master_addr);
    address->port = o->master_port;
    address->source = "--master-addr";
    address->port_source = "--master-port";
    return TRI_OK;
}

tri_status launch_nodes_check(const launch_options *o) {
    tri_identity identity;
    if (!is_addressed(o))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "--rdzv-endpoint: a run over several nodes needs HOST:PORT, one of its "
                        "nodes and a free port there");
    if (o->nodes_max > TRI_MAX_NODES || o->nodes_max * o->workers > TRI_MAX_RANKS)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "--nnodes: %d nodes with %d workers (at most %d nodes, and %d workers "
                        "in all)",
                        o->nodes_max, o->workers, TRI_MAX_NODES, TRI_MAX_RANKS);
    if (o->local_addr && strlen(o->local_addr) >= TRI_HOST_NAME_MAX)
        return TRI_FAIL(TRI_BAD_INPUT, "--local-addr: longer than %d bytes", TRI_HOST_NAME_MAX - 1);
    return describe(o, &identity);
}

static bool is_own_name(const tri_identity *me) {
    size_t first = strcspn(me->host, ".");
    return !strcmp(me->address.host, me->host) ||
           (strlen(me->address.host) == first && !strncmp(me->address.host, me->host, first));
}

// Starts the server to which the launchers of all nodes connect, if this node has to serve. TRI_OK
// without a server: another node serves.
static tri_status serve(launch_nodes *n) {
    tri_identity me = n->identity;
    nodes_server_config config = {.options = n->options, .identity = &me, .token = n->token};
    if (is_static(n->options) && n->options->node_rank != 0) return TRI_OK;
    // In a static run node 0 serves. It listens at all addresses of its host if the given address
    // is none of them (is_exact is false).
    //
    // In other runs the launcher of each node (its agent) tries to listen at exactly the given
    // address. This succeeds only on the host that has the address, and the agent there serves. But
    // /etc/hosts may give a host's own name an address that other hosts cannot reach (Debian:
    // 127.0.1.1). So if the given address is this host's name, and listening there failed, the
    // agent tries all addresses of this host.
    me.address.is_exact = !is_static(n->options);
    tri_status status = store_tcp_listen(&me, &config.sockets);
    if (status == TRI_NOT_FOUND && is_own_name(&me)) {
        me.address.is_exact = false;
        status = store_tcp_listen(&me, &config.sockets);
        if (status == TRI_NETWORK) return TRI_OK; // another launcher on this host serves
    }
    if (status == TRI_NOT_FOUND) return TRI_OK;
    TRI_TRY(status);
    return nodes_server_start(&config, &n->server);
}

// Reads the signals that have arrived, and returns the first that asks the run to end; 0: there is
// none.
static int read_signals(const launch_nodes *n) {
    struct signalfd_siginfo info;
    while (tri_os.read(n->signal_fd, &info, sizeof info) == sizeof info) {
        if (sigismember(&n->options->signals, (int)info.ssi_signo) == 1) return (int)info.ssi_signo;
        if (info.ssi_signo == SIGTSTP) tri_os_suspend(); // there are no workers now
    }
    return 0;
}

// Connects to the serving agent, the launcher that decides for all nodes. Tries again until
// `limit_s` have passed, because that agent may not have started yet. `is_return`: this node was
// connected before. Then this gives up as soon as nobody listens at the address any more, because
// the run is over. A signal that asks the run to end also ends the search: then the result is
// TRI_OK and *signal is not 0.
static tri_status connect_to_server(launch_nodes *n, double limit_s, bool is_return, int *signal) {
    const tri_store_address *where = &n->identity.address;
    int64_t begin_ns = tri_os.monotonic_ns();
    bool is_reported = is_return;
    // The first try is short, because a signal is seen only between two tries. Later tries are
    // longer, because the greeting takes several round trips, which are slow to a far host.
    for (int round_ms = FIRST_PROBE_MS;; round_ms = TRI_STORE_PROBE_MS) {
        tri_status status = store_tcp_connect(&n->identity, &n->token, round_ms, &n->fd);
        if (status == TRI_OK) return status;
        n->fd = -1;
        bool has_ended = is_return && errno == ECONNREFUSED;
        if (status != TRI_NOT_FOUND) return status;
        double waited_s = (double)(tri_os.monotonic_ns() - begin_ns) * 1e-9;
        if (has_ended)
            return TRI_FAIL(TRI_PEER_LOST, "%s:%d (%s): nobody listens there any more", where->host,
                            where->port, where->source);
        if (waited_s >= limit_s)
            return TRI_FAIL(TRI_TIMEOUT, "%s:%d (%s) was not reached within %s: %.300s",
                            where->host, where->port, where->source, tri_seconds_text(limit_s),
                            tri_error_message());
        if (!is_reported && waited_s * 1e3 >= TRI_STILL_AFTER_MS) {
            is_reported = true;
            tri_log_line(TRI_LOG_WARNING, "run: waits for the agent at %s:%d (%s): %.300s",
                         where->host, where->port, where->source, tri_error_message());
        }
        struct pollfd p = {.fd = n->signal_fd, .events = POLLIN};
        if (poll(&p, 1, PAUSE_MS) > 0 && (*signal = read_signals(n))) return TRI_OK;
    }
}

// Sends a message without waiting. If the socket has no room for all of it, because the serving
// agent does not read, this closes the connection: the serving agent could not read anything after
// half a message, and would wait in vain for a message that was dropped. Only a beat (a sign of
// life) may be dropped.
static void send_message(launch_nodes *n, nodes_message *message, nodes_kind kind) {
    message->head = (nodes_head){.kind = kind, .round = atomic_load(&n->round)};
    size_t bytes = nodes_message_bytes(kind);
    pthread_mutex_lock(&n->sending);
    ssize_t sent = tri_os.send(n->fd, message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    bool may_be_left_out = sent < 0 && kind == NODES_BEAT;
    if (sent != (ssize_t)bytes && !may_be_left_out) shutdown(n->fd, SHUT_RDWR);
    pthread_mutex_unlock(&n->sending);
}

static void push(launch_nodes *n, const nodes_message *message) {
    uint64_t one = 1;
    pthread_mutex_lock(&n->lock);
    if (!n->has_ended && n->count < QUEUE) n->queue[n->count++] = *message;
    n->has_ended |= message->head.kind == NODES_END;
    // Adds 1 to the eventfd's counter, which makes it readable. Writing would fail only if the
    // counter were full, which takes almost 2^64 writes.
    if (tri_os.write(n->event, &one, sizeof one) < 0) { /* ignored */
    }
    pthread_mutex_unlock(&n->lock);
}

static void push_loss(launch_nodes *n, const char *how) {
    nodes_message message = {.head = {.kind = NODES_END}, .order = {.code = 1, .is_cut_off = 1}};
    const tri_store_address *where = &n->identity.address;
    snprintf(message.order.text, sizeof message.order.text,
             "the agent that serves the run at %s:%d was lost: %s", where->host, where->port, how);
    push(n, &message);
}

typedef struct reader {
    launch_nodes *nodes;
    nodes_message in;
    size_t got;
    int64_t heard_ns, looked_ns, beat_ns;
} reader;

// Reads what has arrived. False: nothing more can be read, because the connection has ended or
// brought something that is no message.
static bool read_messages(reader *r) {
    for (;;) {
        size_t wanted =
            r->got < sizeof r->in.head ? sizeof r->in.head : nodes_message_bytes(r->in.head.kind);
        if (wanted == 0) return false;
        if (r->got == wanted) {
            r->got = 0;
            r->heard_ns = tri_os.monotonic_ns();
            if (nodes_message_check(&r->in) != TRI_OK) return false;
            if (r->in.head.kind != NODES_BEAT) push(r->nodes, &r->in);
            continue;
        }
        ssize_t got =
            tri_os.recv(r->nodes->fd, (char *)&r->in + r->got, wanted - r->got, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno == EAGAIN;
        if (got == 0) return false;
        r->got += (size_t)got;
    }
}

static void beat(reader *r, int64_t now_ns) {
    nodes_message message;
    if (now_ns < r->beat_ns) return;
    send_message(r->nodes, &message, NODES_BEAT);
    r->beat_ns = now_ns + TRI_NODES_BEAT_MS * INT64_C(1000000);
}

// The reading thread: sends signs of life to the serving agent, the launcher that decides what all
// nodes do, and watches for its answers, until the serving agent is lost or this launcher ends.
static void *listen_to_server(void *context) {
    reader r = {.nodes = context};
    launch_nodes *n = context;
    double silence_s = n->options->conf.silence_s;
    r.heard_ns = r.looked_ns = tri_os.monotonic_ns();
    for (;;) {
        int64_t now_ns = tri_os.monotonic_ns();
        // Time in which this process itself did not run does not count as silence of the serving
        // agent, because messages may have arrived that were not read.
        if (now_ns - r.looked_ns > TRI_NODES_LATE_MS * INT64_C(1000000)) r.heard_ns = now_ns;
        r.looked_ns = now_ns;
        beat(&r, now_ns);
        if ((double)(now_ns - r.heard_ns) * 1e-9 >= silence_s) {
            char how[64];
            snprintf(how, sizeof how, "it was silent for %s", tri_seconds_text(silence_s));
            push_loss(n, how);
            return NULL;
        }
        struct pollfd fds[] = {{.fd = n->fd, .events = POLLIN},
                               {.fd = n->wake[0], .events = POLLIN}};
        poll(fds, 2, TRI_NODES_BEAT_MS / 4);
        if (fds[1].revents) return NULL;
        if (fds[0].revents && !read_messages(&r)) {
            push_loss(n, "its connection ended");
            return NULL;
        }
    }
}

static void join_run(launch_nodes *n) {
    const launch_options *o = n->options;
    nodes_message message = {.join = {.version = NODES_VERSION,
                                      .workers = o->workers,
                                      .nodes_min = o->nodes_min,
                                      .nodes_max = o->nodes_max,
                                      .node_rank = is_static(o) ? o->node_rank : 0,
                                      .is_serving = n->server != NULL}};
    snprintf(message.join.host, sizeof message.join.host, "%s", n->identity.host);
    if (o->local_addr)
        snprintf(message.join.address, sizeof message.join.address, "%s", o->local_addr);
    send_message(n, &message, NODES_JOIN);
}

static tri_status listen_and_join(launch_nodes *n) {
    TRI_TRY(tri_thread_demand(&n->thread, listen_to_server, n, "the run's agents"));
    n->is_listening = true;
    join_run(n);
    return TRI_OK;
}

static tri_status start(launch_nodes *n, int *signal) {
    TRI_TRY(describe(n->options, &n->identity));
    TRI_TRY(store_token_find((const char *(*)(const char *))getenv, &n->token));
    n->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (n->event < 0 || pipe2(n->wake, O_CLOEXEC) != 0)
        return tri_os_fail("make an event", "the run's agents");
    TRI_TRY(serve(n));
    TRI_TRY(connect_to_server(n, n->options->conf.join_timeout_s, false, signal));
    return *signal ? TRI_OK : listen_and_join(n);
}

static void release(launch_nodes *n) {
    int fds[] = {n->fd, n->event, n->wake[0], n->wake[1]};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0) tri_os.close(fds[i]);
    nodes_server_stop(n->server);
    free(n);
}

tri_status launch_nodes_open(const launch_options *options, int signal_fd, int *signal,
                             launch_nodes **out) {
    launch_nodes *n = calloc(1, sizeof *n);
    TRI_ASSERT(n);
    *n = (launch_nodes){
        .options = options, .signal_fd = signal_fd, .fd = -1, .event = -1, .wake = {-1, -1}};
    pthread_mutex_init(&n->lock, NULL);
    pthread_mutex_init(&n->sending, NULL);
    tri_status status = start(n, signal);
    *out = status == TRI_OK && !*signal ? n : NULL;
    if (!*out) release(n);
    return status;
}

static void stop_listening(launch_nodes *n) {
    char byte;
    if (!n->is_listening) return;
    if (tri_os.write(n->wake[1], "", 1) < 0) { /* cannot fail: the empty pipe has room */
    }
    pthread_join(n->thread, NULL);
    n->is_listening = false;
    if (tri_os.read(n->wake[0], &byte, 1) < 0) { /* cannot fail: the pipe has the byte */
    }
}

void launch_nodes_close(launch_nodes *n) {
    if (!n) return;
    nodes_message message;
    if (n->is_listening) send_message(n, &message, NODES_BYE);
    stop_listening(n);
    release(n);
}

// Forgets the lost connection and everything that came over it, before a new one is made.
static void forget_connection(launch_nodes *n) {
    nodes_message message;
    stop_listening(n);
    while (launch_nodes_next(n, &message)) continue;
    tri_os.close(n->fd);
    n->fd = -1;
    n->has_ended = false;
    atomic_store(&n->round, 0);
}

tri_status launch_nodes_return(launch_nodes *n, int *signal) {
    const launch_options *o = n->options;
    bool goes_on = o->nodes_min < o->nodes_max || o->max_restarts > 0;
    if (goes_on && !n->server && n->returns >= TRI_MAX_NODE_RETURNS)
        return TRI_FAIL(TRI_NETWORK,
                        "this node was cut off more than %d times, and joins no more: look at its "
                        "network",
                        TRI_MAX_NODE_RETURNS);
    if (!goes_on || n->server) return TRI_FAIL(TRI_UNSUPPORTED, "this node cannot join again");
    forget_connection(n);
    tri_log_line(TRI_LOG_INFO, "looks for the agent at %s:%d again, for %s",
                 n->identity.address.host, n->identity.address.port,
                 tri_seconds_text(o->conf.read_timeout_s));
    TRI_TRY(connect_to_server(n, o->conf.read_timeout_s, true, signal));
    if (*signal) return TRI_OK;
    n->returns++;
    tri_log_line(TRI_LOG_INFO, "has reached it, and joins again");
    return listen_and_join(n);
}

int launch_nodes_fd(const launch_nodes *n) { return n->event; }

bool launch_nodes_next(launch_nodes *n, nodes_message *out) {
    uint64_t count;
    pthread_mutex_lock(&n->lock);
    bool has_one = n->count > 0;
    if (has_one) {
        *out = n->queue[0];
        memmove(n->queue, n->queue + 1, (size_t)--n->count * sizeof *n->queue);
    }
    if (!n->count &&
        tri_os.read(n->event, &count, sizeof count) < 0) { /* the event's counter was already 0 */
    }
    pthread_mutex_unlock(&n->lock);
    if (has_one && out->head.kind == NODES_ROUND) atomic_store(&n->round, out->head.round);
    return has_one;
}

void launch_nodes_wait(launch_nodes *n, int *signal, nodes_message *out) {
    for (;;) {
        while (launch_nodes_next(n, out))
            if (out->head.kind != NODES_STOP) return;
        struct pollfd fds[] = {{.fd = n->event, .events = POLLIN},
                               {.fd = n->signal_fd, .events = POLLIN}};
        poll(fds, 2, -1);
        int number = fds[1].revents ? read_signals(n) : 0;
        if (!number || *signal) continue;
        *signal = number;
        launch_nodes_leave(n, number);
    }
}

void launch_nodes_failing(launch_nodes *n, const char *text) {
    nodes_message message = {0};
    snprintf(message.order.text, sizeof message.order.text, "%s", text);
    send_message(n, &message, NODES_FAILING);
}

void launch_nodes_leave(launch_nodes *n, int signal) {
    nodes_message message = {.order = {.code = signal}};
    send_message(n, &message, NODES_LEAVE);
}

void launch_nodes_report(launch_nodes *n, const nodes_report *report) {
    nodes_message message = {.report = *report};
    send_message(n, &message, NODES_REPORT);
}
