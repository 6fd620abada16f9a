// Who am I, and where are the others: ranks from the launcher's variables, and a small key-value
// store through which the ranks of a job exchange addresses.
#ifndef TRIREME_RENDEZVOUS_RENDEZVOUS_H
#define TRIREME_RENDEZVOUS_RENDEZVOUS_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { TRI_LAUNCHER_NAME_MAX = 32, TRI_HOST_NAME_MAX = 256, TRI_STORE_VALUE_MAX_BYTES = 1 << 20 };

typedef struct tri_identity {
    char launcher[TRI_LAUNCHER_NAME_MAX]; // "none", "torchrun", "open-mpi", "slurm", …
    int rank, size;
    int local_rank, local_size; // on this host; local_size 0: unknown until all have met
    char host[TRI_HOST_NAME_MAX];
    char job[128]; // the same on all ranks of a job and of no other on this host
    char master_host[TRI_HOST_NAME_MAX]; // "" when the launcher named none
    int master_port;
} tri_identity;

// Reads the environment through `get` (getenv outside tests). Precedence and variables by launcher:
// see the table in identity.c. TRI_BAD_INPUT for numbers that are no ranks and for two launchers
// that disagree, both named.
tri_status tri_identity_read(const char *(*get)(const char *name), tri_identity *out);

typedef struct tri_store tri_store;

// Meets the other ranks. Rank 0 serves, the others connect; on one host over an abstract unix
// socket that ends with the process and admits only the same user.
tri_status tri_store_open(const tri_identity *identity, int timeout_ms, tri_store **out);
void tri_store_close(tri_store *store); // NULL allowed
// A value of up to TRI_STORE_VALUE_MAX_BYTES; setting a key again replaces it.
tri_status tri_store_set(tri_store *store, const char *key, const void *value, size_t size);
// Waits until the key is set. *size is the value's size; larger than `capacity` is TRI_INTERNAL.
tri_status tri_store_get(tri_store *store, const char *key, int timeout_ms, void *value,
                         size_t capacity, size_t *size);
// Adds to a decimal counter and returns its new value in *out (missing: 0).
tri_status tri_store_add(tri_store *store, const char *key, int64_t amount, int64_t *out);

#endif
