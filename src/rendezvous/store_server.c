// The thread that serves the store (the key-value service at which the ranks meet): polls the
// sockets of its clients (ranks that are connected) and passes their bytes to store_core.c. Bytes
// of a TCP connection are passed on only after store_strangers.c has admitted the connection.
#include "rendezvous/store_server.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "base/thread.h"
#include "rendezvous/store_core.h"
#include "rendezvous/store_strangers.h"
#include "rendezvous/store_unix.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

// The first five are indices into `fds`, the descriptors for which one poll waits. Strangers are
// connections over TCP that have not proved yet that they have the user's token, a secret. Without
// TCP there are neither strangers nor listening TCP sockets, so the clients begin at index TCP.
enum {
    WAKE, // the event by which other threads wake the server's thread
    UNIX, // the socket that listens for ranks of this host
    TCP,  // the sockets that listen for ranks of other hosts
    STRANGERS = TCP + TRI_MAX_STORE_LISTENERS,
    CLIENTS = STRANGERS + TRI_MAX_STORE_STRANGERS,
    READ_BYTES = 1 << 16,
    SPARE_DESCRIPTORS = 128, // descriptors for the rest of the process
    NO_ROOM_US = 100000
};

struct store_server {
    store_core *core;
    tri_identity identity;
    int tcp_count;
    // When to report which rank has not arrived, if one has not; INT64_MAX: this was done.
    int64_t report_missing_ns;
    pthread_t thread;
    atomic_bool stopping;
    bool is_agent;
    int port, wake;
    pthread_mutex_t lock; // protects `next`
    tri_identity *next;   // the start of the run (the generation) to serve next; NULL: none
    bool has_warned;
    store_strangers strangers;
    struct pollfd *clients; // the clients' entries in `fds`
    int client_end;         // entries of `clients` from this index on are not in use
    // Poll ignores entries with a negative descriptor.
    struct pollfd fds[CLIENTS + TRI_MAX_STORE_CLIENTS];
    char buffer[READ_BYTES];
};

static void leave(store_server *s, int client) {
    store_core_leave(s->core, client);
    tri_os.close(s->clients[client].fd);
    s->clients[client].fd = -1;
}

// Pauses if accept has failed because no descriptor or memory was free: the client stays in the
// listening queue, so poll would report it again at once, and the thread would spin.
static void wait_for_room(store_server *s) {
    bool is_full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (!is_full) return;
    if (!s->has_warned)
        tri_log_line(TRI_LOG_WARNING, "the store on %s cannot accept another of %d ranks: %s%s",
                     s->identity.host, s->identity.size, strerror(errno),
                     errno == EMFILE ? "; raise ulimit -n" : "");
    s->has_warned = true;
    usleep(NO_ROOM_US);
}

static int accept_at(store_server *s, int listener) {
    int fd = tri_os.accept(s->fds[listener].fd, NULL, NULL);
    if (fd < 0) {
        wait_for_room(s);
        return -1;
    }
    int flags = fcntl(fd, F_GETFL);
    if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0)
        return fd;
    tri_os.close(fd);
    return -1;
}

// Takes over the socket of a client that was admitted.
static void add_client(store_server *s, int fd) {
    int client = store_core_join(s->core);
    if (client == STORE_NO_CLIENT) {
        if (!s->has_warned)
            tri_log_line(TRI_LOG_WARNING,
                         "the store on %s closes a connection: it has %d, the most",
                         s->identity.host, TRI_MAX_STORE_CLIENTS);
        s->has_warned = true;
        tri_os.close(fd);
        return;
    }
    s->clients[client] = (struct pollfd){.fd = fd, .events = POLLIN};
    if (client >= s->client_end) s->client_end = client + 1;
}

static void accept_local(store_server *s) {
    int fd = accept_at(s, UNIX);
    if (fd < 0) return;
    if (store_unix_admit(fd) == TRI_OK) {
        add_client(s, fd);
        return;
    }
    tri_log_line(TRI_LOG_WARNING, "%s", tri_error_message());
    tri_os.close(fd);
}

static void accept_strangers(store_server *s) {
    for (int i = TCP; i < TCP + s->tcp_count; i++) {
        if (s->fds[i].fd < 0 || !s->fds[i].revents) continue;
        int64_t now_ns = tri_os.monotonic_ns();
        if (!store_strangers_have_room(&s->strangers, now_ns)) return;
        int fd = accept_at(s, i);
        if (fd < 0) continue;
        store_tcp_prepare(fd);
        store_strangers_take(&s->strangers, fd, now_ns);
    }
}

static void read_strangers(store_server *s) {
    for (int i = 0; s->tcp_count && i < TRI_MAX_STORE_STRANGERS; i++) {
        const struct pollfd *p = &s->strangers.fds[i];
        if (p->fd < 0 || !p->revents) continue;
        int fd = store_strangers_read(&s->strangers, i);
        if (fd >= 0) add_client(s, fd);
    }
}

static void flush(store_server *s, int client) {
    size_t size;
    const void *data;
    while (data = store_core_output(s->core, client, &size), size > 0) {
        ssize_t sent = tri_os.send(s->clients[client].fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return;
        store_core_sent(s->core, client, (size_t)sent);
    }
}

// Reads what a client has sent. False: the client is gone, or its connection has to end.
static bool receive(store_server *s, int client) {
    for (;;) {
        ssize_t got = tri_os.recv(s->clients[client].fd, s->buffer, sizeof s->buffer, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno == EAGAIN;
        if (got == 0) return false;
        if (!store_core_input(s->core, client, s->buffer, (size_t)got, tri_os.monotonic_ns())) {
            flush(s, client);
            return false;
        }
        if ((size_t)got < sizeof s->buffer) return true;
    }
}

static int wait_ms(int64_t until_ns) {
    if (until_ns == INT64_MAX) return -1;
    int64_t left = until_ns - tri_os.monotonic_ns();
    if (left <= 0) return 0;
    return left / 1000000 >= INT_MAX ? INT_MAX : (int)(left / 1000000) + 1;
}

static void receive_all(store_server *s) {
    for (int i = 0; i < s->client_end; i++) {
        struct pollfd *p = &s->clients[i];
        if (p->fd >= 0 && p->revents && !receive(s, i)) leave(s, i);
    }
}

// Sends to all clients what is pending. Called after all input and all timeouts were handled,
// because a request of one client, or its leaving, can answer the requests of other clients.
static void send_all(store_server *s) {
    for (int i = 0; i < s->client_end; i++) {
        struct pollfd *p = &s->clients[i];
        if (p->fd < 0) continue;
        size_t pending;
        // What the socket did not take is sent when it has room. If sending failed, the next poll
        // reports it.
        flush(s, i);
        store_core_output(s->core, i, &pending);
        p->events = pending ? POLLIN | POLLOUT : POLLIN;
    }
}

static void name_missing(store_server *s) {
    int64_t now_ns = tri_os.monotonic_ns();
    if (now_ns < s->report_missing_ns) return;
    // A launcher that serves (an agent) may begin to serve before its ranks start. Until the first
    // of them has arrived, none is reported as missing.
    bool has_begun = store_core_rank_connections(s->core) > 0;
    s->report_missing_ns = has_begun ? INT64_MAX : now_ns + TRI_STILL_AFTER_MS * 1000000ll;
    if (!has_begun) return;
    int rank = store_core_missing(s->core);
    if (rank == STORE_NO_RANK) return;
    // A launcher that serves (an agent) does not know on which hosts its ranks are.
    char host[TRI_HOST_NAME_MAX + 4] = "";
    if (!s->is_agent) snprintf(host, sizeof host, " (%s)", s->identity.host);
    int waiting = store_core_rank_connections(s->core);
    // If this rank is the only one, there may be no others.
    char advice[TRI_ADVICE_MAX] = "";
    if (waiting == 1 && !s->is_agent) tri_identity_advise(&s->identity, advice, sizeof advice);
    tri_log_line(TRI_LOG_WARNING,
                 "rank %d%s does not move: it has not arrived after %s; %d of %d ranks wait%s",
                 rank, host, tri_seconds_text(TRI_STILL_AFTER_MS * 1e-3), waiting, s->identity.size,
                 advice);
}

// Returns how many entries of `fds` poll gets. poll fails if they are more than the descriptors
// that the process may have (ulimit -n), even if some entries are not in use. So poll gets no
// unused entries at the end. Few unused entries lie between used ones, because a new client gets
// the lowest free entry.
static nfds_t used(store_server *s) {
    while (s->client_end > 0 && s->clients[s->client_end - 1].fd < 0) s->client_end--;
    return (nfds_t)(s->clients - s->fds) + (nfds_t)s->client_end;
}

// Stops listening, so that the next job of this name can listen while the last ranks of this one
// finish.
static void close_listeners(store_server *s) {
    for (int i = UNIX; i < TCP + s->tcp_count; i++) {
        if (s->fds[i].fd >= 0) tri_os.close(s->fds[i].fd);
        s->fds[i].fd = -1;
    }
    if (s->tcp_count) store_strangers_close(&s->strangers);
}

// Waits until something happens, at most until `until_ns`. Connections that have not proved yet
// that they have the token (strangers) get a fixed number of entries of `fds`. If all of these are
// in use, poll ignores the sockets that listen over TCP, so that no further connection is accepted.
static void wait_for_events(store_server *s, int64_t until_ns) {
    int64_t now_ns = tri_os.monotonic_ns();
    if (s->tcp_count) {
        int64_t expires_ns = store_strangers_expire(&s->strangers, now_ns);
        if (expires_ns < until_ns) until_ns = expires_ns;
        bool has_room = store_strangers_have_room(&s->strangers, now_ns);
        for (int i = TCP; i < TCP + s->tcp_count; i++) s->fds[i].events = has_room ? POLLIN : 0;
    }
    nfds_t count = used(s);
    for (nfds_t i = 0; i < count; i++) s->fds[i].revents = 0;
    poll(s->fds, count, wait_ms(until_ns));
}

// Raises the process's limit on descriptors, as far as the system allows, to what the server needs
// for `ranks` ranks, because each rank has two connections and the usual limit is low. Fails if not
// even CLIENTS + SPARE_DESCRIPTORS are allowed: poll gets CLIENTS entries before those of the
// clients, and fails if it gets more entries than the process may have descriptors.
static tri_status make_room(int ranks) {
    struct rlimit limit;
    rlim_t needed = 2 * (rlim_t)ranks + CLIENTS + SPARE_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return tri_os_fail("read", "ulimit -n");
    rlim_t most = limit.rlim_max;
    if (limit.rlim_cur < needed) {
        limit.rlim_cur = needed < most ? needed : most;
        // If a rank then finds no room, accept_at reports it.
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (most >= CLIENTS + SPARE_DESCRIPTORS) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "this process may open %ld files (ulimit -n); to serve ranks of several hosts "
                    "it needs %d at least",
                    (long)most, CLIENTS + SPARE_DESCRIPTORS);
}

static void serve_generation(store_server *s, const tri_identity *identity) {
    s->identity = *identity;
    s->core = store_core_create(identity->job, identity->size);
    if (s->is_agent) store_core_serve_as_agent(s->core);
    s->strangers.gate.run = store_run_hash(identity);
    s->strangers.gate.generation = identity->generation;
    s->report_missing_ns = tri_os.monotonic_ns() + TRI_STILL_AFTER_MS * 1000000ll;
}

// Stops serving the present start of the run (a generation) and serves the next one, if
// store_server_begin has asked for that.
static void begin_next(store_server *s) {
    // Sets the counter of the eventfd back to 0, so that poll sleeps again. A failure is ignored,
    // because reading fails only if the counter is 0 already.
    uint64_t times;
    if (tri_os.read(s->fds[WAKE].fd, &times, sizeof times) < 0) { /* ignored */
    }
    pthread_mutex_lock(&s->lock);
    tri_identity *next = s->next;
    s->next = NULL;
    pthread_mutex_unlock(&s->lock);
    if (!next) return;
    store_core_say_replaced(s->core);
    send_all(s);
    for (int i = 0; i < s->client_end; i++)
        if (s->clients[i].fd >= 0) leave(s, i);
    store_core_destroy(s->core);
    // A failure does not matter: when the server started, this call checked that there are enough
    // descriptors without any client, and accept_at reports a rank for which there is no room.
    (void)make_room(next->size);
    serve_generation(s, next);
    free(next);
}

// Begins to end the server, which was told to stop: it listens no longer, unless ranks may still
// come to learn why other ranks refused to run. Returns the time by which the server has to end.
static int64_t begin_end(store_server *s) {
    bool stays = store_core_has_refusals(s->core);
    if (!stays) close_listeners(s);
    s->fds[WAKE].fd = -1;
    return tri_os.monotonic_ns() +
           (stays ? TRI_REFUSAL_STAY_MS : TRI_MAX_SHUTDOWN_MS) * INT64_C(1000000);
}

static void *serve(void *context) {
    store_server *s = context;
    int64_t end_ns = INT64_MAX;
    for (;;) {
        receive_all(s);
        int64_t next = store_core_expire(s->core, tri_os.monotonic_ns());
        send_all(s);
        name_missing(s);
        if (next > s->report_missing_ns) next = s->report_missing_ns;
        if (atomic_load(&s->stopping) && end_ns == INT64_MAX) end_ns = begin_end(s);
        // If this process is a rank, the server waits for ranks that are still connected, because
        // they may still need keys. If it is a launcher (an agent), the server does not wait: a
        // launcher ends only after its ranks have ended, so a rank that still seems to be connected
        // is lost.
        bool is_awaited = store_core_rank_connections(s->core) || store_core_has_refusals(s->core);
        if (end_ns != INT64_MAX &&
            (s->is_agent || !is_awaited || tri_os.monotonic_ns() >= end_ns)) {
            store_core_say_bye(s->core);
            send_all(s);
            break;
        }
        wait_for_events(s, next < end_ns ? next : end_ns);
        if (s->fds[WAKE].fd >= 0 && s->fds[WAKE].revents) begin_next(s);
        read_strangers(s);
        if (s->fds[UNIX].fd >= 0 && s->fds[UNIX].revents) accept_local(s);
        accept_strangers(s);
    }
    return NULL;
}

static void end(store_server *s) {
    for (int i = 0; i < s->client_end; i++)
        if (s->clients[i].fd >= 0) leave(s, i);
    close_listeners(s);
    if (s->wake >= 0) tri_os.close(s->wake);
    store_core_destroy(s->core);
    pthread_mutex_destroy(&s->lock);
    free(s->next);
    free(s);
}

tri_status store_server_start(const store_server_config *config, store_server **out) {
    store_server *s = calloc(1, sizeof *s);
    TRI_ASSERT(s);
    s->is_agent = config->is_agent;
    s->port = store_tcp_port(&config->tcp);
    pthread_mutex_init(&s->lock, NULL);
    s->tcp_count = config->tcp.count;
    s->clients = s->fds + (s->tcp_count ? CLIENTS : TCP);
    s->strangers.fds = s->fds + STRANGERS;
    s->strangers.gate.token = config->token;
    serve_generation(s, config->identity);
    for (size_t i = 0; i < sizeof s->fds / sizeof *s->fds; i++)
        s->fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    s->fds[UNIX].fd = config->unix_fd;
    for (int i = 0; i < s->tcp_count; i++) s->fds[TCP + i].fd = config->tcp.fds[i];
    s->wake = s->fds[WAKE].fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tri_status status = s->tcp_count ? make_room(s->identity.size) : TRI_OK;
    if (status == TRI_OK)
        status = s->wake < 0 ? tri_os_fail("make an event", "store")
                             : tri_thread_demand(&s->thread, serve, s, "the store");
    if (status == TRI_OK)
        *out = s;
    else
        end(s);
    return status;
}

static void wake_thread(store_server *s) {
    uint64_t one = 1;
    // Adds 1 to the eventfd's counter, so that the thread's poll returns. Writing would fail only
    // if the counter were full, which takes almost 2^64 writes.
    if (tri_os.write(s->wake, &one, sizeof one) < 0) { /* ignored */
    }
}

void store_server_begin(store_server *s, const tri_identity *identity) {
    tri_identity *next = malloc(sizeof *next);
    TRI_ASSERT(next);
    *next = *identity;
    pthread_mutex_lock(&s->lock);
    free(s->next);
    s->next = next;
    pthread_mutex_unlock(&s->lock);
    wake_thread(s);
}

int store_server_port(const store_server *s) { return s->port; }

void store_server_stop(store_server *s) {
    if (!s) return;
    atomic_store(&s->stopping, true);
    wake_thread(s);
    pthread_join(s->thread, NULL);
    end(s);
}
