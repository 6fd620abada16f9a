// The functions by which a rank uses the store (the key-value service at which the ranks meet): to
// open it, and to set and get values. Each sends a request to the store's server
// (store_request.c), which runs in rank 0 or in a launcher (an agent).
#include "rendezvous/store_client.h"

#include "base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Stores which rank is on which host, as the server has found it.
static tri_status take_hosts(tri_store *store, store_answer *got) {
    size_t size = (size_t)store->identity.size * sizeof *store->host_of;
    if (got->size != size || got->number < 1 || got->number > store->identity.size)
        return TRI_FAIL(TRI_INTERNAL, "store: got something else than the ranks' hosts");
    store->host_count = (int)got->number;
    store->host_of = (int32_t *)got->value;
    got->value = NULL;
    return TRI_OK;
}

static tri_status say_hello(tri_store *store, int timeout_ms, int64_t until_ns) {
    TRI_TRY(store_connect(store, timeout_ms, until_ns));
    int64_t left_ms = (until_ns - tri_os.monotonic_ns() + 999999) / 1000000;
    store_hello body = {.size = store->identity.size, .total_ms = timeout_ms};
    tri_host_claim_make(&store->identity, &body.claim);
    store_head hello = {.kind = STORE_HELLO,
                        .value_bytes = sizeof body,
                        .number = store->identity.rank,
                        .argument = left_ms < 0 ? 0 : (int32_t)left_ms};
    store_answer got;
    TRI_TRY(store_request(store, hello, store->identity.job, &body, &got));
    tri_status status = take_hosts(store, &got);
    free(got.value);
    return status;
}

// Opens the store. If rank 0 has bad input, or learns that another rank has, it ends its server and
// starts a second one, which tells the ranks why (store_refuse.c). So if the connection is lost,
// this function looks for rank 0's server once more.
static tri_status meet(tri_store *store, int timeout_ms) {
    int64_t until_ns = store_after_ms(timeout_ms);
    tri_status status = say_hello(store, timeout_ms, until_ns);
    if (status != TRI_PEER_LOST || !store->broken || store->server) return status;
    char why[TRI_MESSAGE_MAX_BYTES];
    snprintf(why, sizeof why, "%s", tri_error_message());
    int64_t soon_ns = store_after_ms(TRI_REFUSAL_GATHER_MS);
    tri_os.close(store->fd);
    store->fd = -1;
    store->broken = false;
    status = say_hello(store, TRI_REFUSAL_GATHER_MS, soon_ns < until_ns ? soon_ns : until_ns);
    return status == TRI_TIMEOUT || status == TRI_PEER_LOST ? TRI_FAIL(TRI_PEER_LOST, "%s", why)
                                                            : status;
}

tri_status tri_store_open(const tri_identity *identity, int timeout_ms, tri_store **out) {
    *out = NULL;
    if (identity->size > TRI_MAX_RUN_RANKS)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%d ranks are too many for one run: the store serves at most %d, because "
                        "it keeps two connections to each; use fewer ranks",
                        identity->size, TRI_MAX_RUN_RANKS);
    tri_store *store = calloc(1, sizeof *store);
    TRI_ASSERT(store);
    store->identity = *identity;
    store->fd = -1;
    const tri_store_address *where = &identity->address;
    if (where->is_exact)
        snprintf(store->server_name, sizeof store->server_name, "the store at %s:%d", where->host,
                 where->port);
    else
        snprintf(store->server_name, sizeof store->server_name, "rank 0 of %d", identity->size);
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
        // This message is not sent by store_request, which would replace the thread's error message
        // if sending failed.
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
    store_answer got;
    TRI_TRY(store_request(store, (store_head){.kind = STORE_SET, .value_bytes = (uint32_t)size},
                          key, value, &got));
    free(got.value);
    return TRI_OK;
}

tri_status tri_store_get(tri_store *store, const char *key, int timeout_ms, void *value,
                         size_t capacity, size_t *size) {
    store_answer got;
    *size = 0;
    TRI_TRY(store_request(store, (store_head){.kind = STORE_GET, .argument = timeout_ms}, key, NULL,
                          &got));
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
    store_answer got;
    TRI_TRY(
        store_request(store, (store_head){.kind = STORE_ADD, .number = amount}, key, NULL, &got));
    *out = got.number;
    free(got.value);
    return TRI_OK;
}

tri_status tri_store_fail(tri_store *store, tri_status status) {
    const tri_identity *me = &store->identity;
    char why[TRI_MESSAGE_MAX_BYTES], text[TRI_MESSAGE_MAX_BYTES];
    store_answer got;
    snprintf(why, sizeof why, "%s", tri_error_message());
    int used = 0;
    if (strncmp(why, "rank", 4) != 0) // such a message already says which rank it was
        used = snprintf(text, sizeof text, "rank %d (host %.63s): ", me->rank, me->host);
    snprintf(text + used, sizeof text - (size_t)used, "%.*s", (int)sizeof text - used - 1, why);
    store_head head = {
        .kind = STORE_FAIL, .value_bytes = (uint32_t)strlen(text), .argument = (int32_t)status};
    tri_status first = store_request(store, head, "", text, &got);
    bool is_consequence = status == TRI_NETWORK || status == TRI_TIMEOUT || status == TRI_PEER_LOST;
    return is_consequence && !store->broken ? first : TRI_FAIL(status, "%s", text);
}

tri_status tri_store_agree(tri_store *store, const char *what, int timeout_ms) {
    char key[TRI_MAX_NAME_BYTES], done;
    int64_t agreed;
    size_t size;
    snprintf(key, sizeof key, "agree/%s", what);
    TRI_TRY(tri_store_add(store, key, 1, &agreed));
    snprintf(key, sizeof key, "agreed/%s", what);
    if (agreed == store->identity.size) return tri_store_set(store, key, "", 0);
    return tri_store_get(store, key, timeout_ms, &done, sizeof done, &size);
}

tri_status tri_store_admit(tri_store *store) {
    store_answer got;
    tri_status status = store_request(store, (store_head){.kind = STORE_ADMIT}, "", NULL, &got);
    if (status == TRI_OK) free(got.value);
    // When a run is started again, the server closes the connections of the earlier start. So a
    // lost connection may mean that this rank was replaced. If so, the server says that to a new
    // connection.
    int fd;
    if (status != TRI_PEER_LOST || !store->broken) return status;
    char why[TRI_MESSAGE_MAX_BYTES];
    snprintf(why, sizeof why, "%s", tri_error_message());
    tri_status again = store_connect_again(store, &fd);
    if (again == TRI_OK) tri_os.close(fd);
    return again == TRI_MISMATCH ? again : TRI_FAIL(status, "%s", why);
}
