// How the ranks of a job find each other: their numbers from the launcher's variables, and a small
// key-value store through which they exchange addresses.
#ifndef TRIREME_RENDEZVOUS_RENDEZVOUS_H
#define TRIREME_RENDEZVOUS_RENDEZVOUS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRI_LAUNCHER_NAME_MAX = 32,
    TRI_HOST_NAME_MAX = 256,
    TRI_INTERFACE_NAME_MAX = 64,
    TRI_STORE_VALUE_MAX_BYTES = 1 << 20
};

// Where ranks of other hosts look for the server of the store: rank 0, or the launcher's agent that
// serves in its stead.
typedef struct tri_store_address {
    char host[TRI_HOST_NAME_MAX]; // "": nothing is known
    int port, ports;              // the server listens at the first free one of so many
    bool is_exact; // TRIREME_STORE: if another process listens there, it serves instead of rank 0
    const char *source, *port_source; // the variables to which host and port are due; static texts
} tri_store_address;

typedef struct tri_identity {
    char launcher[TRI_LAUNCHER_NAME_MAX]; // "none", "torchrun", "open-mpi", "slurm", …
    bool is_own_launcher; // "torchrun" is `trireme run`, which sets the same variables
    int rank, size;
    // The rank's number among those on this host, and how many these are. Until tri_identity_settle
    // has compared hosts, this is what the launcher says, or a guess; local_size 0: nothing is
    // known.
    int local_rank, local_size;
    struct {
        bool local_rank, local_size; // the launcher says so
    } stated;
    char host[TRI_HOST_NAME_MAX];
    char job[128]; // the same on all ranks of a job and of no other on this host
    // The run's name: the same in all generations of a run, which are its starts (restarts,
    // requeues), so that a rank of an earlier one can be told that it has been replaced.
    char run[64];
    int64_t generation;
    char master_host[TRI_HOST_NAME_MAX]; // "": the launcher gave none
    int master_port;
    tri_store_address address;
    char interface[TRI_INTERFACE_NAME_MAX]; // the only one at which rank 0 listens; "": any
} tri_identity;

// Reads the environment through `get` (getenv outside tests). The table in identity.c has each
// launcher's variables, in order of precedence. TRI_BAD_INPUT for numbers that cannot be ranks, and
// for two launchers that disagree; the message names both.
tri_status tri_identity_read(const char *(*get)(const char *name), tri_identity *out);

// The launcher as messages name it.
const char *tri_launcher_text(const tri_identity *identity);

// What a rank tells all others about its host, from which all find which ranks share one.
typedef struct tri_host_claim {
    char host[TRI_HOST_NAME_MAX];
    char boot[64];              // of its system; "": unknown
    int local_rank, local_size; // as the launcher says; -1: it does not
} tri_host_claim;
void tri_host_claim_make(const tri_identity *identity, tri_host_claim *out);
bool tri_host_claim_is_same_host(const tri_host_claim *a, const tri_host_claim *b);
// Sets the identity's local rank and size to the true ones, from the claims of all ranks: launchers
// often do not give them, or guess. Local ranks count in the order of ranks, unless the launcher
// has numbered all ranks of the host. TRI_BAD_INPUT on every rank, with the same message, where a
// launcher's numbers are wrong.
tri_status tri_identity_settle(const tri_host_claim *claims, int count, tri_identity *identity);

typedef struct tri_store tri_store;

// Connects the ranks of the job: rank 0 serves, all ranks connect to it. On one host this is an
// abstract unix socket, which ends with the process and admits only the same user. Unless all ranks
// are known to be on one host, rank 0 also listens at its address over TCP, where it admits only
// ranks that have the user's token (token.h). Returns when all ranks have arrived. TRI_TIMEOUT,
// TRI_PEER_LOST, TRI_MISMATCH (two jobs of one name, a generation that has ended), TRI_BAD_INPUT
// (also for more than TRI_MAX_RUN_RANKS ranks).
tri_status tri_store_open(const tri_identity *identity, int timeout_ms, tri_store **out);
void tri_store_close(tri_store *store); // NULL allowed
// On how many hosts the ranks are, and the number of a rank's host: hosts are numbered in the order
// of their lowest ranks.
int tri_store_host_count(const tri_store *store);
int tri_store_host_of(const tri_store *store, int rank);
// Sets a value of up to TRI_STORE_VALUE_MAX_BYTES; it replaces the key's earlier value.
tri_status tri_store_set(tri_store *store, const char *key, const void *value, size_t size);
// Waits until the key is set. *size is the value's size; larger than `capacity` is TRI_INTERNAL.
tri_status tri_store_get(tri_store *store, const char *key, int timeout_ms, void *value,
                         size_t capacity, size_t *size);
// Whether this run may commit a checkpoint; see tri_health_admit. TRI_PEER_LOST: a rank was lost,
// or the store's server; TRI_MISMATCH: a newer generation of the run has taken this one's place.
tri_status tri_store_admit(tri_store *store);
// Tells all ranks that this one cannot go on, for the reason of tri_error_message: every wait for a
// key ends with `status` and that message, which names the rank. So all report the cause instead of
// a timeout. Returns `status` with its message; but if another rank failed before and `status` may
// only be a consequence (TRI_NETWORK, TRI_TIMEOUT, TRI_PEER_LOST), returns that rank's.
tri_status tri_store_fail(tri_store *store, tri_status status);
// Collective. Returns TRI_OK once every rank has called it, so that all know that none has failed.
// Ends at once on all ranks if one of them calls tri_store_fail instead. `what` is the same on all
// ranks, and not used before.
tri_status tri_store_agree(tri_store *store, const char *what, int timeout_ms);
// What a rank that ends with exit code 2 has to tell, and hears.
typedef struct tri_refusal {
    bool has_reason; // of its own; else it heard of another rank's (TRI_REFUSED)
    void (*print)(const char *line);
    // Results: whether this rank has printed a line, and the line for all ranks.
    bool is_printed, is_answered;
    char answer[TRI_MESSAGE_MAX_BYTES];
} tri_refusal;
// Collective over all ranks that end with exit code 2, before or after they have met; the store of
// the job is closed. One rank prints one line: the reason if all have the same one, else with the
// lowest rank that has one, and its host. Ranks that wait in tri_store_open fail with TRI_REFUSED,
// and then call this too. Takes seconds if ranks are missing; a rank that gets no answer prints its
// own line.
void tri_store_refuse(const tri_identity *identity, const char *text, tri_refusal *refusal);

// Adds to a decimal counter, which begins at 0, and returns its new value in *out: each rank that
// adds gets another number.
tri_status tri_store_add(tri_store *store, const char *key, int64_t amount, int64_t *out);

#endif
