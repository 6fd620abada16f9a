// The client side of the store (the key-value service at which the ranks meet): declarations for
// the files by which a rank talks to the store's server. The server itself runs in rank 0 or in a
// launcher (an agent).
#ifndef TRIREME_RENDEZVOUS_STORE_CLIENT_H
#define TRIREME_RENDEZVOUS_STORE_CLIENT_H

#include "base/limits.h"
#include "base/os.h"
#include "rendezvous/store_protocol.h"
#include "rendezvous/store_server.h"

#include <pthread.h>

struct tri_store {
    tri_identity identity;
    // The store's server, if it runs in this process; else NULL. It runs in rank 0, unless another
    // process serves the job.
    store_server *server;
    char server_name[TRI_HOST_NAME_MAX +
                     32]; // the server's name for messages: "rank 0 of 4", "the store at HOST:PORT"
    bool uses_tcp;        // the server may be on another host, so this rank looks for it by TCP too
    store_token token;    // the user's secret, which both ends prove to have; set if uses_tcp
    // Why TCP has failed so far, for messages; "": it has not.
    char tcp_failure[TRI_MESSAGE_MAX_BYTES / 2];
    int fd;
    // A request failed halfway, so the next bytes on the connection may belong to its answer. No
    // further request is sent.
    bool broken;
    pthread_mutex_t lock; // held from a request until its answer has arrived
    int host_count;
    int32_t *host_of; // by rank: the number of its host
};

// Converts a time limit to a monotonic time. Deadlines are kept as times, so that several waits can
// share one limit.
static inline int64_t store_after_ms(int64_t ms) {
    return tri_os.monotonic_ns() + (ms > 0 ? ms : 0) * 1000000;
}

// Finds the server of the store, and starts it if this rank has to serve; sets the store's fd.
// Tries until `until_ns`; timeout_ms, the whole time limit, is only for messages.
tri_status store_connect(tri_store *store, int timeout_ms, int64_t until_ns);
// Opens another connection to the same server, for a thread that must not wait for requests on the
// first connection. TRI_NOT_FOUND: the server cannot be reached now.
tri_status store_connect_again(tri_store *store, int *fd);

typedef struct store_answer {
    tri_status status; // what the server answered; if it is a failure, the value is the message
    int64_t number;
    char *value; // malloc'ed, with a 0 byte at the end
    size_t size;
} store_answer;

// Sends one request and waits for its answer. The caller frees the answer's value, which is NULL
// after any failure. If the server answers with a failure, this function returns it.
tri_status store_request(tri_store *store, store_head head, const char *key, const void *value,
                         store_answer *out);

#endif
