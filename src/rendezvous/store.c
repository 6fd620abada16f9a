// The client side of the store: a rank sends one request at a time to rank 0 and waits for the
// answer.
#include "base/limits.h"
#include "base/log.h"
#include "base/os.h"
#include "rendezvous/store_core.h"
#include "rendezvous/store_server.h"
#include "rendezvous/store_unix.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tri_store {
    tri_identity identity;
    store_server *server; // on rank 0, unless another process serves the job; else NULL
    bool uses_tcp;        // ranks may be on several hosts
    store_token token;    // if uses_tcp
    char note[TRI_MESSAGE_MAX_BYTES / 2]; // why rank 0 could not be reached over TCP so far
    int fd;
    bool broken;          // a request failed halfway: the next bytes may belong to its answer
    pthread_mutex_t lock; // held from a request to its answer
    int host_count;
    int32_t *host_of; // by rank
};

static int64_t after_ms(int64_t ms) { return tri_os.monotonic_ns() + (ms > 0 ? ms : 0) * 1000000; }

static tri_status lost_rank_0(const tri_store *store) {
    return TRI_FAIL(TRI_PEER_LOST, "rank 0 of %d ended", store->identity.size);
}

static tri_status wait_for(const tri_store *store, short events, int64_t until_ns) {
    for (;;) {
        int64_t left_ms = (until_ns - tri_os.monotonic_ns() + 999999) / 1000000;
        struct pollfd p = {.fd = store->fd, .events = events};
        int ready = poll(&p, 1, left_ms <= 0 ? 0 : left_ms > INT_MAX ? INT_MAX : (int)left_ms);
        if (ready > 0) return TRI_OK;
        if (ready == 0 && left_ms <= 0)
            return TRI_FAIL(TRI_TIMEOUT, "rank 0 of %d does not answer", store->identity.size);
        if (ready < 0 && errno != EINTR) return tri_os_fail("wait", "store");
    }
}

static tri_status send_bytes(tri_store *store, const void *data, size_t size, int64_t until_ns) {
    const char *at = data;
    while (size > 0) {
        ssize_t sent = tri_os.send(store->fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            at += sent;
            size -= (size_t)sent;
        } else if (sent < 0 && errno == EAGAIN) {
            TRI_TRY(wait_for(store, POLLOUT, until_ns));
        } else if (sent < 0 && errno != EINTR) {
            return lost_rank_0(store);
        }
    }
    return TRI_OK;
}

static tri_status receive_bytes(tri_store *store, void *data, size_t size, int64_t until_ns) {
    char *at = data;
    while (size > 0) {
        ssize_t got = tri_os.recv(store->fd, at, size, MSG_DONTWAIT);
        if (got > 0) {
            at += got;
            size -= (size_t)got;
        } else if (got < 0 && errno == EAGAIN) {
            TRI_TRY(wait_for(store, POLLIN, until_ns));
        } else if (got == 0 || errno != EINTR) {
            return lost_rank_0(store);
        }
    }
    return TRI_OK;
}

typedef struct answer {
    tri_status status; // on rank 0; if it failed, the value is the message
    int64_t number;
    char *value; // malloc'ed, with a 0 byte at the end
    size_t size;
} answer;

static tri_status receive_answer(tri_store *store, answer *out, int64_t until_ns) {
    store_head head;
    TRI_TRY(receive_bytes(store, &head, sizeof head, until_ns));
    TRI_TRY(store_head_check(&head));
    if (head.kind != STORE_REPLY || head.key_bytes || head.timeout_ms < 0 ||
        head.timeout_ms >= TRI_STATUS_COUNT)
        return TRI_FAIL(TRI_INTERNAL, "store: rank 0 sent something else than an answer");
    *out = (answer){(tri_status)head.timeout_ms, head.number, malloc(head.value_bytes + 1),
                    head.value_bytes};
    TRI_ASSERT(out->value);
    out->value[out->size] = 0;
    return receive_bytes(store, out->value, out->size, until_ns);
}

// Sends one message and waits for the answer, whose value the caller frees.
static tri_status ask(tri_store *store, store_head head, const char *key, const void *value,
                      answer *out) {
    int64_t until_ns =
        after_ms((head.timeout_ms > 0 ? head.timeout_ms : 0) + (int64_t)TRI_STORE_ANSWER_MS);
    head.key_bytes = (uint32_t)strlen(key);
    TRI_TRY(send_bytes(store, &head, sizeof head, until_ns));
    TRI_TRY(send_bytes(store, key, head.key_bytes, until_ns));
    TRI_TRY(send_bytes(store, value, head.value_bytes, until_ns));
    return receive_answer(store, out, until_ns);
}

// Like ask, but a failure on rank 0 becomes a failure here. out->value is NULL after any failure.
static tri_status request(tri_store *store, store_head head, const char *key, const void *value,
                          answer *out) {
    if (strlen(key) > TRI_MAX_NAME_BYTES)
        return TRI_FAIL(TRI_INTERNAL, "store: key '%.40s...' is longer than %d bytes", key,
                        TRI_MAX_NAME_BYTES);
    *out = (answer){0};
    pthread_mutex_lock(&store->lock);
    tri_status status = store->broken ? lost_rank_0(store) : ask(store, head, key, value, out);
    store->broken |= status != TRI_OK;
    pthread_mutex_unlock(&store->lock);
    if (status == TRI_OK && out->status != TRI_OK)
        status = TRI_FAIL(out->status, "rank %d: %s", store->identity.rank, out->value);
    if (status != TRI_OK) {
        free(out->value);
        out->value = NULL;
    }
    return status;
}

static void note_failure(tri_store *store) {
    snprintf(store->note, sizeof store->note, "%.500s", tri_error_message());
}

// Whether ranks of other hosts are possible, and the token for them.
static tri_status prepare_tcp(tri_store *store) {
    const tri_identity *me = &store->identity;
    bool is_one_host = me->local_size == me->size, has_address = me->address.host[0] != 0;
    bool is_spread = me->address.is_exact || (me->local_size && !is_one_host);
    if (me->size == 1 || (is_one_host && !me->address.is_exact)) return TRI_OK;
    if (!has_address && is_spread)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "rank %d on %s: %d of the job's %d ranks are on this host, and nothing "
                        "says where rank 0 is: set TRIREME_STORE=HOST:PORT, or MASTER_ADDR and "
                        "MASTER_PORT, to rank 0's host and a free port there",
                        me->rank, me->host, me->local_size, me->size);
    if (!has_address || (store_address_is_loopback(me) && !me->address.is_exact)) return TRI_OK;
    tri_status status = store_token_find((const char *(*)(const char *))getenv, &store->token);
    store->uses_tcp = status == TRI_OK;
    if (status != TRI_OK && !is_spread) note_failure(store);
    return is_spread ? status : TRI_OK;
}

static void close_sockets(store_server_config *config) {
    if (config->unix_fd >= 0) tri_os.close(config->unix_fd);
    for (int i = 0; i < config->tcp.count; i++) tri_os.close(config->tcp.fds[i]);
}

// TRI_NOT_FOUND: another process serves the job, or an earlier run is about to end.
static tri_status listen_for_ranks(tri_store *store, store_server_config *config) {
    const tri_identity *me = &store->identity;
    bool is_first = store->uses_tcp && me->address.is_exact; // it decides whether this rank serves
    if (is_first) TRI_TRY(store_tcp_listen(me, &config->tcp));
    tri_status status = store_unix_listen(me, &config->unix_fd);
    if (status == TRI_NETWORK && errno == EADDRINUSE) return TRI_NOT_FOUND;
    TRI_TRY(status);
    if (is_first || !store->uses_tcp) return TRI_OK;
    status = store_tcp_listen(me, &config->tcp);
    if (status == TRI_OK || me->local_size) return status;
    note_failure(store);
    return TRI_OK; // all ranks may be on this host
}

// Starts the server of rank 0. TRI_OK without one: its addresses are taken for now.
static tri_status serve(tri_store *store, int64_t limit_ns) {
    const tri_identity *me = &store->identity;
    store_server_config config = {.identity = me, .unix_fd = -1, .token = store->token};
    tri_status status = listen_for_ranks(store, &config);
    if (status == TRI_OK) return store_server_start(&config, &store->server);
    bool has_agent = status == TRI_NOT_FOUND && !config.tcp.count && me->address.is_exact;
    close_sockets(&config);
    if (status != TRI_NOT_FOUND || has_agent) return status == TRI_NOT_FOUND ? TRI_OK : status;
    if (tri_os.monotonic_ns() < limit_ns) return TRI_OK;
    return TRI_FAIL(TRI_MISMATCH,
                    "rank 0: another job of the name %s runs on %s; set another MASTER_PORT for "
                    "one of them",
                    me->job, me->host);
}

// TRI_NOT_FOUND: rank 0 cannot be reached now.
static tri_status connect_once(tri_store *store, int round_ms) {
    tri_status status = store_unix_connect(&store->identity, &store->fd);
    if (status == TRI_OK) return store_unix_admit(store->fd);
    store->fd = -1;
    if (status != TRI_NOT_FOUND || !store->uses_tcp) return status;
    status = store_tcp_connect(&store->identity, &store->token, round_ms, &store->fd);
    if (status == TRI_NOT_FOUND) note_failure(store);
    return status;
}

static void report_wait(const tri_store *store) {
    const tri_identity *me = &store->identity;
    tri_log(TRI_LOG_WARNING, "rank 0 (%s) does not move: it has not arrived after %d s%s%s",
            store->uses_tcp ? me->address.host : me->host, TRI_STILL_AFTER_MS / 1000,
            store->note[0] ? ": " : "", store->note);
}

static tri_status connect_to_rank_0(tri_store *store, int timeout_ms, int64_t until_ns) {
    int64_t pause_ns = 1000000, begin_ns = tri_os.monotonic_ns();
    const tri_identity *me = &store->identity;
    bool is_reported = me->rank != 1; // one rank reports for all
    // An earlier run that is about to end frees the address sooner than this.
    int64_t limit_ns = after_ms(TRI_STORE_ANSWER_MS);
    if (limit_ns > until_ns) limit_ns = until_ns;
    for (int round_ms = 100;; round_ms = round_ms < TRI_STORE_PROBE_MS ? 2 * round_ms : round_ms) {
        if (me->rank == 0 && !store->server) TRI_TRY(serve(store, limit_ns));
        tri_status status = connect_once(store, round_ms);
        if (status != TRI_NOT_FOUND) return status;
        if (tri_os.monotonic_ns() >= until_ns)
            return TRI_FAIL(TRI_TIMEOUT, "rank %d: rank 0 of %d did not arrive within %g s%s%s",
                            me->rank, me->size, timeout_ms / 1e3, store->note[0] ? ": " : "",
                            store->note);
        if (!is_reported && tri_os.monotonic_ns() - begin_ns >= TRI_STILL_AFTER_MS * 1000000ll) {
            is_reported = true;
            report_wait(store);
        }
        tri_os.sleep_ns(pause_ns);
        if (pause_ns < 50000000) pause_ns *= 2;
    }
}

// Keeps which rank is on which host.
static tri_status take_hosts(tri_store *store, answer *got) {
    size_t size = (size_t)store->identity.size * sizeof *store->host_of;
    if (got->size != size || got->number < 1 || got->number > store->identity.size)
        return TRI_FAIL(TRI_INTERNAL, "store: rank 0 sent something else than the ranks' hosts");
    store->host_count = (int)got->number;
    store->host_of = (int32_t *)got->value;
    got->value = NULL;
    return TRI_OK;
}

static tri_status meet(tri_store *store, int timeout_ms) {
    int64_t until_ns = after_ms(timeout_ms);
    TRI_TRY(prepare_tcp(store));
    TRI_TRY(connect_to_rank_0(store, timeout_ms, until_ns));
    int64_t left_ms = (until_ns - tri_os.monotonic_ns() + 999999) / 1000000;
    store_hello body = {.size = store->identity.size, .total_ms = timeout_ms};
    tri_host_claim_make(&store->identity, &body.claim);
    store_head hello = {.kind = STORE_HELLO,
                        .value_bytes = sizeof body,
                        .number = store->identity.rank,
                        .timeout_ms = left_ms < 0 ? 0 : (int32_t)left_ms};
    answer got;
    TRI_TRY(request(store, hello, store->identity.job, &body, &got));
    tri_status status = take_hosts(store, &got);
    free(got.value);
    return status;
}

tri_status tri_store_open(const tri_identity *identity, int timeout_ms, tri_store **out) {
    *out = NULL;
    tri_store *store = calloc(1, sizeof *store);
    TRI_ASSERT(store);
    store->identity = *identity;
    store->fd = -1;
    pthread_mutex_init(&store->lock, NULL);
    tri_status status = meet(store, timeout_ms);
    if (status == TRI_OK)
        *out = store;
    else
        tri_store_close(store);
    return status;
}

void tri_store_close(tri_store *store) {
    if (!store) return;
    if (store->fd >= 0) {
        // Not through ask, which would replace the thread's error message.
        store_head bye = {.kind = STORE_BYE};
        if (!store->broken) tri_os.send(store->fd, &bye, sizeof bye, MSG_NOSIGNAL | MSG_DONTWAIT);
        tri_os.close(store->fd);
    }
    store_server_stop(store->server);
    pthread_mutex_destroy(&store->lock);
    free(store->host_of);
    free(store);
}

int tri_store_host_count(const tri_store *store) { return store->host_count; }

int tri_store_host_of(const tri_store *store, int rank) { return store->host_of[rank]; }

tri_status tri_store_set(tri_store *store, const char *key, const void *value, size_t size) {
    if (size > TRI_STORE_VALUE_MAX_BYTES)
        return TRI_FAIL(TRI_INTERNAL, "store: the value of '%.80s' has %zu bytes (at most %d)", key,
                        size, TRI_STORE_VALUE_MAX_BYTES);
    answer got;
    TRI_TRY(request(store, (store_head){.kind = STORE_SET, .value_bytes = (uint32_t)size}, key,
                    value, &got));
    free(got.value);
    return TRI_OK;
}

tri_status tri_store_get(tri_store *store, const char *key, int timeout_ms, void *value,
                         size_t capacity, size_t *size) {
    answer got;
    *size = 0;
    TRI_TRY(
        request(store, (store_head){.kind = STORE_GET, .timeout_ms = timeout_ms}, key, NULL, &got));
    *size = got.size;
    bool fits = got.size <= capacity;
    if (fits && got.size) memcpy(value, got.value, got.size);
    free(got.value);
    if (!fits)
        return TRI_FAIL(TRI_INTERNAL,
                        "store: the value of '%.80s' has %zu bytes, more than the %zu that fit",
                        key, *size, capacity);
    return TRI_OK;
}

tri_status tri_store_add(tri_store *store, const char *key, int64_t amount, int64_t *out) {
    answer got;
    TRI_TRY(request(store, (store_head){.kind = STORE_ADD, .number = amount}, key, NULL, &got));
    *out = got.number;
    free(got.value);
    return TRI_OK;
}
