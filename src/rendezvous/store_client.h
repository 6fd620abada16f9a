// The client side of the store: what the files of this room share that talk to a store's server
// (store.c, store_request.c, store_connect.c, health.c).
#ifndef TRIREME_RENDEZVOUS_STORE_CLIENT_H
#define TRIREME_RENDEZVOUS_STORE_CLIENT_H

#include "base/limits.h"
#include "base/os.h"
#include "rendezvous/store_protocol.h"
#include "rendezvous/store_server.h"

#include <pthread.h>

struct tri_store {
    tri_identity identity;
    store_server *server; // on rank 0, unless another process serves the job; else NULL
    char server_name[TRI_HOST_NAME_MAX +
                     32];                 // for messages: "rank 0 of 4", "the store at HOST:PORT"
    bool uses_tcp;                        // ranks may be on several hosts
    store_token token;                    // if uses_tcp
    char note[TRI_MESSAGE_MAX_BYTES / 2]; // why rank 0 could not be reached over TCP so far
    int fd;
    bool broken;          // a request failed halfway: the next bytes may belong to its answer
    pthread_mutex_t lock; // held from a request to its answer
    int host_count;
    int32_t *host_of; // by rank
};

// The monotonic time so many milliseconds from now: deadlines are kept as times, so that several
// waits share one.
static inline int64_t store_after_ms(int64_t ms) {
    return tri_os.monotonic_ns() + (ms > 0 ? ms : 0) * 1000000;
}

// Finds the server of the store, and starts it if this is the rank that serves; sets the store's
// fd. Messages name timeout_ms.
tri_status store_connect(tri_store *store, int timeout_ms, int64_t until_ns);
// Opens another connection to the server that was found before, for a thread that must not wait for
// the first connection's requests. TRI_NOT_FOUND: the server cannot be reached now.
tri_status store_connect_again(tri_store *store, int *fd);

typedef struct store_answer {
    tri_status status; // on rank 0; if it failed, the value is the message
    int64_t number;
    char *value; // malloc'ed, with a 0 byte at the end
    size_t size;
} store_answer;

// Sends one request and waits for its answer, whose value the caller frees; NULL after any failure.
// If the server answers with a failure, that is returned here.
tri_status store_request(tri_store *store, store_head head, const char *key, const void *value,
                         store_answer *out);

#endif
