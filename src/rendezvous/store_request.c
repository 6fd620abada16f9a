// A rank's requests to the server of the store (the key-value service at which the ranks meet). The
// rank sends one request at a time and waits for its answer, so that an answer need not say to
// which request it belongs.
#include "rendezvous/store_client.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

static tri_status lost_server(const tri_store *store) {
    return TRI_FAIL(TRI_PEER_LOST, "%s ended", store->server_name);
}

static tri_status wait_for(const tri_store *store, short events, int64_t until_ns) {
    for (;;) {
        int64_t left_ms = (until_ns - tri_os.monotonic_ns() + 999999) / 1000000;
        struct pollfd p = {.fd = store->fd, .events = events};
        int ready = poll(&p, 1, left_ms <= 0 ? 0 : left_ms > INT_MAX ? INT_MAX : (int)left_ms);
        if (ready > 0) return TRI_OK;
        if (ready == 0 && left_ms <= 0)
            return TRI_FAIL(TRI_TIMEOUT, "%s does not answer", store->server_name);
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
            return lost_server(store);
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
            return lost_server(store);
        }
    }
    return TRI_OK;
}

static tri_status receive_answer(tri_store *store, store_answer *out, int64_t until_ns) {
    store_head head;
    TRI_TRY(receive_bytes(store, &head, sizeof head, until_ns));
    TRI_TRY(store_head_check(&head));
    if (head.kind != STORE_REPLY || head.key_bytes || head.argument < 0 ||
        head.argument >= TRI_STATUS_COUNT)
        return TRI_FAIL(TRI_INTERNAL, "store: got something else than an answer");
    *out = (store_answer){(tri_status)head.argument, head.number, malloc(head.value_bytes + 1),
                          head.value_bytes};
    TRI_ASSERT(out->value);
    out->value[out->size] = 0;
    return receive_bytes(store, out->value, out->size, until_ns);
}

// Sends one message and waits for the answer, whose value the caller frees. The wait ends some time
// after the server's own time limit, in case the server never answers.
static tri_status ask(tri_store *store, store_head head, const char *key, const void *value,
                      store_answer *out) {
    int64_t until_ns =
        store_after_ms((head.argument > 0 ? head.argument : 0) + (int64_t)TRI_STORE_ANSWER_MS);
    head.key_bytes = (uint32_t)strlen(key);
    TRI_TRY(send_bytes(store, &head, sizeof head, until_ns));
    TRI_TRY(send_bytes(store, key, head.key_bytes, until_ns));
    TRI_TRY(send_bytes(store, value, head.value_bytes, until_ns));
    return receive_answer(store, out, until_ns);
}

tri_status store_request(tri_store *store, store_head head, const char *key, const void *value,
                         store_answer *out) {
    if (strlen(key) > TRI_MAX_NAME_BYTES)
        return TRI_FAIL(TRI_INTERNAL, "store: key '%.40s...' is longer than %d bytes", key,
                        TRI_MAX_NAME_BYTES);
    *out = (store_answer){0};
    pthread_mutex_lock(&store->lock);
    tri_status status = store->broken ? lost_server(store) : ask(store, head, key, value, out);
    store->broken |= status != TRI_OK;
    pthread_mutex_unlock(&store->lock);
    if (status == TRI_OK && out->status != TRI_OK)
        status = out->number == STORE_OF_RANK
                     ? TRI_FAIL(out->status, "%s", out->value)
                     : TRI_FAIL(out->status, "rank %d: %s", store->identity.rank, out->value);
    if (status != TRI_OK) {
        free(out->value);
        out->value = NULL;
    }
    return status;
}
