// What a rank does so that lost ranks are found (health.h): it runs a thread with a connection of
// its own to the store's server, because a request on the rank's first connection may block for
// long. Over this connection the thread sends beats (signs of life, with what the rank does),
// learns which ranks are lost, and asks what another rank does.
#include "rendezvous/health.h"

#include "base/log.h"
#include "base/quantity.h"
#include "base/thread.h"
#include "rendezvous/store_client.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LOSS_TEXT_BYTES = 768, VALUE_BYTES = sizeof(store_loss) + TRI_LEDGER_PACKED_BYTES };

typedef struct remote { // what this process knows about another rank
    _Atomic bool is_lost;
    store_loss loss;
    tri_ledger_ring *ring; // its latest known actions; NULL: nobody has asked for them
    int awaited;           // the rank for which the other rank waits; TRI_HEALTH_NOBODY: none
    bool is_wanted;        // the thread has to ask the store about this rank
    int64_t known_ns;      // when the store last sent the rank's beat to this process; 0: never
} remote;

struct tri_health {
    tri_store *store;
    tri_health_config config;
    int fd, wake;
    bool has_agent; // a launcher (an agent) serves the store, not rank 0
    // looked_ns: when the thread last checked whether the server is silent. silence_ns: after how
    // much silence the server counts as lost.
    int64_t looked_ns, silence_ns;
    _Atomic int64_t heard_ns;   // when the server last sent something
    _Atomic int awaited;        // the rank for which this rank waits, or TRI_HEALTH_NOBODY
    _Atomic bool is_over, stop; // is_over: the server is gone, or silent for too long
    pthread_t thread;
    pthread_mutex_t lock; // protects the elements of `ranks`
    pthread_cond_t answered;
    remote *ranks; // by rank
    struct {       // the part of a message that has arrived so far
        size_t size;
        char data[sizeof(store_head) + VALUE_BYTES];
    } in;
};

static tri_ledger_ring *ring_of(remote *r) {
    if (!r->ring) r->ring = calloc(1, sizeof *r->ring);
    TRI_ASSERT(r->ring);
    return r->ring;
}

// Stores what a rank told in its beat, so that messages can quote it. The caller holds the lock.
static void take_beat(tri_health *h, int rank, int awaited, const void *data, size_t size) {
    remote *r = &h->ranks[rank];
    r->known_ns = tri_os.monotonic_ns();
    r->awaited = awaited >= 0 && awaited < h->store->identity.size ? awaited : TRI_HEALTH_NOBODY;
    if (size) (void)tri_ledger_unpack(data, size, ring_of(r));
}

static void wake_thread(tri_health *h) {
    // Adds 1 to the counter of the eventfd `wake`, so that the thread's poll returns. Writing would
    // fail only if the counter were full, which takes almost 2^64 writes.
    uint64_t one = 1;
    if (tri_os.write(h->wake, &one, sizeof one) < 0) { /* ignored */
    }
}

// Makes the thread ask the store for a rank's latest beat, unless the known one is less than a
// second old: as ranks send a beat each second, there is hardly a newer one. The caller holds the
// lock.
static void want(tri_health *h, int rank) {
    remote *r = &h->ranks[rank];
    int64_t now_ns = tri_os.monotonic_ns();
    if (r->is_wanted || (r->known_ns && now_ns - r->known_ns < TRI_BEAT_MS * INT64_C(1000000)))
        return;
    r->is_wanted = true;
    wake_thread(h);
}

// Waits until the store has answered what the rank's latest beat is, but only for a limited time,
// because the server may be lost and never answer. The caller holds the lock.
static void wait_for_answer(tri_health *h, int rank) {
    remote *r = &h->ranks[rank];
    int64_t begin_ns = tri_os.monotonic_ns();
    struct timespec until = tri_condition_deadline(TRI_BEAT_ANSWER_MS);
    if (r->known_ns && begin_ns - r->known_ns < TRI_BEAT_MS * INT64_C(1000000)) return;
    while (r->known_ns < begin_ns && !atomic_load(&h->is_over) && !atomic_load(&r->is_lost) &&
           tri_os.monotonic_ns() - atomic_load(&h->heard_ns) <
               TRI_BEAT_ANSWER_MS * INT64_C(1000000))
        if (pthread_cond_timedwait(&h->answered, &h->lock, &until) == ETIMEDOUT) break;
}

void tri_health_ask(tri_health *health, int rank) {
    if (!health || rank == health->store->identity.rank) return;
    pthread_mutex_lock(&health->lock);
    want(health, rank);
    wait_for_answer(health, rank);
    pthread_mutex_unlock(&health->lock);
}

const tri_ledger_ring *tri_health_ring(tri_health *health, int rank) {
    if (!health) return NULL;
    if (rank == health->store->identity.rank) return health->config.ring;
    pthread_mutex_lock(&health->lock);
    want(health, rank);
    const tri_ledger_ring *ring = ring_of(&health->ranks[rank]);
    pthread_mutex_unlock(&health->lock);
    return ring;
}

int tri_health_awaited(tri_health *health, int rank) {
    if (!health) return TRI_HEALTH_NOBODY;
    if (rank == health->store->identity.rank) return atomic_load(&health->awaited);
    tri_health_ask(health, rank);
    pthread_mutex_lock(&health->lock);
    int awaited = health->ranks[rank].awaited;
    pthread_mutex_unlock(&health->lock);
    return awaited;
}

void tri_health_set_awaited(tri_health *health, int rank) {
    if (health) atomic_store(&health->awaited, rank);
}

const char *tri_health_loss(const tri_health *health, int rank) {
    if (!health || !atomic_load(&health->ranks[rank].is_lost)) return NULL;
    return health->ranks[rank].loss.what;
}

static void describe(const remote *r, int rank, char *out, size_t size) {
    char action[224];
    if (r->ring && r->ring->host[0])
        snprintf(out, size, "rank %d (host %s, pid %d) %s %s", rank, r->ring->host,
                 (int)r->ring->pid, r->loss.what, tri_ledger_text(r->ring, action, sizeof action));
    else
        snprintf(out, size, "rank %d (host %s) %s", rank, r->loss.host, r->loss.what);
}

static void lose(tri_health *h, int rank, const store_loss *loss, const void *beat, size_t size) {
    remote *r = &h->ranks[rank];
    char text[LOSS_TEXT_BYTES];
    if (atomic_load(&r->is_lost)) return;
    pthread_mutex_lock(&h->lock);
    r->loss = *loss;
    if (size) take_beat(h, rank, r->awaited, beat, size);
    describe(r, rank, text, sizeof text);
    atomic_store(&r->is_lost, true);
    pthread_cond_broadcast(&h->answered);
    pthread_mutex_unlock(&h->lock);
    if (h->config.on_loss) h->config.on_loss(h->config.context, rank, text);
}

static void end(tri_health *h) {
    pthread_mutex_lock(&h->lock);
    atomic_store(&h->is_over, true);
    pthread_cond_broadcast(&h->answered);
    pthread_mutex_unlock(&h->lock);
}

// Ends the thread's work and reports a loss, because the process that serves the store no longer
// answers: the loss of rank 0 or, if a launcher (an agent) serves, of that launcher.
static void lose_server(tri_health *h, const char *what) {
    const tri_identity *me = &h->store->identity;
    char text[LOSS_TEXT_BYTES];
    end(h);
    store_loss loss = {0};
    snprintf(loss.what, sizeof loss.what, "%s", what);
    snprintf(loss.host, sizeof loss.host, "%.63s",
             h->store->uses_tcp ? me->address.host : me->host);
    if (!h->has_agent) {
        lose(h, 0, &loss, NULL, 0);
        return;
    }
    snprintf(text, sizeof text, "the launcher's agent at %s, which serves the store, %s", loss.host,
             what);
    if (h->config.on_loss) h->config.on_loss(h->config.context, TRI_HEALTH_NOBODY, text);
}

static void take_loss(tri_health *h, int rank, const char *value, size_t size) {
    store_loss loss;
    memcpy(&loss, value, sizeof loss);
    loss.what[sizeof loss.what - 1] = loss.host[sizeof loss.host - 1] = 0;
    // If the store reports this rank itself as lost, the rank was silent for too long, or the run
    // was started again without it. Then this thread has nothing left to do.
    if (rank == h->store->identity.rank) end(h);
    lose(h, rank, &loss, value + sizeof loss, size - sizeof loss);
}

// Handles a message. False: a server of Trireme sends no such message.
static bool handle(tri_health *h, const store_head *head, const char *value) {
    bool has_rank = head->number >= 0 && head->number < h->store->identity.size;
    atomic_store(&h->heard_ns, tri_os.monotonic_ns());
    switch (head->kind) {
    case STORE_REPLY:
        if (head->number == STORE_BY_AGENT) h->has_agent = true;
        return true;
    case STORE_LOST:
        if (!has_rank || head->value_bytes < sizeof(store_loss)) return false;
        take_loss(h, (int)head->number, value, head->value_bytes);
        return true;
    case STORE_LATEST_BEAT:
        if (!has_rank) return false;
        pthread_mutex_lock(&h->lock);
        take_beat(h, (int)head->number, head->argument, value, head->value_bytes);
        pthread_cond_broadcast(&h->answered);
        pthread_mutex_unlock(&h->lock);
        return true;
    case STORE_BYE:
        end(h);
        return true;
    default:
        return false;
    }
}

// Reads what has arrived. False: the connection has ended, or what arrived does not come from a
// server of Trireme.
static bool receive(tri_health *h) {
    ssize_t got =
        tri_os.recv(h->fd, h->in.data + h->in.size, sizeof h->in.data - h->in.size, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    h->in.size += (size_t)got;
    while (h->in.size >= sizeof(store_head)) {
        store_head head;
        memcpy(&head, h->in.data, sizeof head);
        if (store_head_check(&head) != TRI_OK || head.key_bytes || head.value_bytes > VALUE_BYTES)
            return false;
        size_t whole = sizeof head + head.value_bytes;
        if (h->in.size < whole) break;
        if (!handle(h, &head, h->in.data + sizeof head)) return false;
        h->in.size -= whole;
        memmove(h->in.data, h->in.data + whole, h->in.size);
    }
    return true;
}

// Sends a message, if the socket has room for its beginning. The rest then has to follow, because
// half a message would make all later ones unreadable. False: the connection has failed.
static bool send_whole(tri_health *h, const void *message, size_t size) {
    ssize_t sent = tri_os.send(h->fd, message, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    while ((size_t)sent < size) {
        struct pollfd p = {.fd = h->fd, .events = POLLOUT};
        if (poll(&p, 1, TRI_BEAT_MS) <= 0) return false;
        ssize_t more = tri_os.send(h->fd, (const char *)message + sent, size - (size_t)sent,
                                   MSG_NOSIGNAL | MSG_DONTWAIT);
        if (more < 0 && errno != EAGAIN && errno != EINTR) return false;
        if (more > 0) sent += more;
    }
    return true;
}

// Sends one beat, this rank's sign of life. If the socket has no room now, the beat is skipped:
// waiting would delay the thread's other work, and the next beat has newer information.
static bool send_beat(tri_health *h) {
    char message[sizeof(store_head) + TRI_LEDGER_PACKED_BYTES];
    pthread_mutex_lock(&h->lock);
    size_t size =
        h->config.ring ? tri_ledger_pack(h->config.ring, message + sizeof(store_head)) : 0;
    pthread_mutex_unlock(&h->lock);
    store_head head = {
        .kind = STORE_BEAT, .value_bytes = (uint32_t)size, .number = atomic_load(&h->awaited)};
    memcpy(message, &head, sizeof head);
    return send_whole(h, message, size + sizeof head);
}

// Asks the server for the latest beats of those ranks about which somebody wants to know.
static bool send_questions(tri_health *h) {
    bool is_sent = true;
    pthread_mutex_lock(&h->lock);
    for (int r = 0; r < h->store->identity.size && is_sent; r++) {
        if (!h->ranks[r].is_wanted) continue;
        h->ranks[r].is_wanted = false;
        store_head head = {.kind = STORE_LATEST_BEAT, .number = r};
        is_sent = send_whole(h, &head, sizeof head);
    }
    pthread_mutex_unlock(&h->lock);
    return is_sent;
}

// Whether the server has been silent for too long. Time in which this thread did not run (the
// process was suspended, or had no core) does not count.
static bool is_silent(tri_health *h, int64_t now_ns) {
    int64_t gap_ns = now_ns - h->looked_ns;
    h->looked_ns = now_ns;
    if (gap_ns > TRI_BEAT_LATE_MS * INT64_C(1000000)) atomic_fetch_add(&h->heard_ns, gap_ns);
    return now_ns - atomic_load(&h->heard_ns) >= h->silence_ns;
}

// Waits, at most until `until_ns`, until another thread asks about a rank or the server has sent
// something. Passes the question on to the server, and handles what the server has sent. False: the
// connection has ended.
static bool serve_connection(tri_health *h, int64_t until_ns) {
    struct pollfd fds[] = {{.fd = h->wake, .events = POLLIN}, {.fd = h->fd, .events = POLLIN}};
    int64_t left_ms = (until_ns - tri_os.monotonic_ns()) / 1000000 + 1;
    poll(fds, 2, left_ms < 0 ? 0 : (int)left_ms);
    // Sets the counter of the eventfd `wake` back to 0, so that poll sleeps again. A failure is
    // ignored, because reading fails only if the counter is 0 already.
    uint64_t times;
    if (fds[0].revents && tri_os.read(h->wake, &times, sizeof times) < 0) { /* ignored */
    }
    if (fds[0].revents && !send_questions(h)) return false;
    return !fds[1].revents || receive(h);
}

static void *watch(void *context) {
    tri_health *h = context;
    int64_t beat_ns = 0;
    h->looked_ns = tri_os.monotonic_ns();
    atomic_store(&h->heard_ns, h->looked_ns);
    while (!atomic_load(&h->stop) && !atomic_load(&h->is_over)) {
        int64_t now_ns = tri_os.monotonic_ns();
        bool is_connected = true;
        if (is_silent(h, now_ns)) {
            char what[sizeof((store_loss){0}.what)];
            snprintf(what, sizeof what, "has been silent for %s",
                     tri_seconds_text((double)h->silence_ns * 1e-9));
            lose_server(h, what);
            break;
        }
        if (now_ns >= beat_ns) {
            is_connected = send_beat(h);
            beat_ns = now_ns + TRI_BEAT_MS * INT64_C(1000000);
        }
        is_connected = serve_connection(h, beat_ns) && is_connected;
        if (!is_connected && !atomic_load(&h->is_over) && !atomic_load(&h->stop))
            lose_server(h, "died");
    }
    return NULL;
}

static tri_status greet(tri_health *h) {
    const tri_identity *me = &h->store->identity;
    char message[sizeof(store_head) + sizeof me->job];
    size_t length = strlen(me->job);
    store_head head = {.kind = STORE_WATCH,
                       .key_bytes = (uint32_t)length,
                       .argument = (int32_t)(h->silence_ns / 1000000),
                       .number = me->rank};
    memcpy(message, &head, sizeof head);
    memcpy(message + sizeof head, me->job, length);
    length += sizeof head;
    if (tri_os.send(h->fd, message, length, MSG_NOSIGNAL) != (ssize_t)length)
        return TRI_FAIL(TRI_PEER_LOST, "rank %d: the store of the job ended", me->rank);
    return TRI_OK;
}

static tri_status start(tri_health *h) {
    TRI_TRY(store_connect_again(h->store, &h->fd));
    TRI_TRY(greet(h));
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->wake < 0) return tri_os_fail("make an event", "store");
    return tri_thread_demand(&h->thread, watch, h, "the store");
}

static void destroy(tri_health *h) {
    if (h->fd >= 0) tri_os.close(h->fd);
    if (h->wake >= 0) tri_os.close(h->wake);
    for (int r = 0; h->ranks && r < h->store->identity.size; r++) free(h->ranks[r].ring);
    free(h->ranks);
    pthread_cond_destroy(&h->answered);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

tri_status tri_health_start(tri_store *store, const tri_health_config *config, tri_health **out) {
    *out = NULL;
    tri_health *h = calloc(1, sizeof *h);
    TRI_ASSERT(h);
    h->store = store;
    h->config = *config;
    h->fd = h->wake = -1;
    h->silence_ns = config->silence_s > 0 ? (int64_t)(config->silence_s * 1e9)
                                          : TRI_SILENCE_MS * INT64_C(1000000);
    h->awaited = TRI_HEALTH_NOBODY;
    pthread_mutex_init(&h->lock, NULL);
    tri_condition_init(&h->answered);
    h->ranks = calloc((size_t)store->identity.size, sizeof *h->ranks);
    TRI_ASSERT(h->ranks);
    for (int r = 0; r < store->identity.size; r++) h->ranks[r].awaited = TRI_HEALTH_NOBODY;
    tri_status status = start(h);
    if (status == TRI_OK)
        *out = h;
    else
        destroy(h);
    return status;
}

void tri_health_drop_ring(tri_health *health) {
    if (!health) return;
    pthread_mutex_lock(&health->lock);
    health->config.ring = NULL;
    pthread_mutex_unlock(&health->lock);
}

void tri_health_stop(tri_health *health) {
    if (!health) return;
    atomic_store(&health->stop, true);
    wake_thread(health);
    pthread_join(health->thread, NULL);
    store_head bye = {.kind = STORE_BYE};
    if (!atomic_load(&health->is_over))
        tri_os.send(health->fd, &bye, sizeof bye, MSG_NOSIGNAL | MSG_DONTWAIT);
    tri_store *store = health->store;
    destroy(health);
    tri_store_close(store);
}

tri_status tri_health_admit(tri_health *health) {
    return health ? tri_store_admit(health->store) : TRI_OK;
}
