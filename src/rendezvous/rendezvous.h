// How the ranks of a job find each other: they get their numbers from the launcher's variables, and
// exchange addresses through a small key-value store. All ranks connect to the store's server,
// which runs in rank 0, or in a launcher, which is then called an agent. A job is one start of a
// run; a run that is restarted or requeued has several.
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

// Where ranks of other hosts find the server of the store.
typedef struct tri_store_address {
    char host[TRI_HOST_NAME_MAX]; // "": not known
    // The server listens at the first free port of the `ports` ports from `port` on.
    int port, ports;
    // True (TRIREME_STORE=HOST:PORT): the server listens at this address or not at all. If another
    // process already listens there, such as a launcher (an agent), that process serves instead of
    // rank 0. False: if the host name resolves to no address of this host, the server listens at
    // all addresses of this host.
    bool is_exact;
    const char *source, *port_source; // the variables from which host and port come; static texts
} tri_store_address;

typedef struct tri_identity {
    char launcher[TRI_LAUNCHER_NAME_MAX]; // "none", "torchrun", "open-mpi", "slurm", …
    // The launcher is `trireme run`, although `launcher` is "torchrun": both set the same
    // variables.
    bool is_own_launcher;
    int rank, size;
    // The variables that say so, for messages: "RANK=0 WORLD_SIZE=4"; "": there are none, or
    // `trireme run` has set them.
    char claimed[128];
    // The rank's number among the ranks of this host, and how many there are. Before
    // tri_identity_settle has compared hosts, they come from the launcher or are guessed;
    // local_size 0: nothing is known.
    int local_rank, local_size;
    // The rank's number among those of its launcher on this host; -1: the launcher gave none. With
    // several launchers on a host, as in containers, it numbers the devices that they see.
    int launcher_local_rank;
    struct {
        bool local_rank, local_size; // true: the launcher has given the number
    } given;
    char host[TRI_HOST_NAME_MAX];
    // The job's name: the same on all ranks of the job, and different from other jobs on this host.
    char job[128];
    // The run's name. It stays the same when the run is started again (restarts, requeues). Each
    // start is a generation. So a rank of an earlier generation can be told that it has been
    // replaced.
    char run[64];
    int64_t generation;
    char master_host[TRI_HOST_NAME_MAX]; // "": the launcher gave no address
    int master_port;
    tri_store_address address;
    // The only network interface at which rank 0 listens; "": at any.
    char interface[TRI_INTERFACE_NAME_MAX];
} tri_identity;

// Reads the environment through `get` (getenv except in tests). The table in identity.c lists each
// launcher's variables, in order of precedence. TRI_BAD_INPUT: a number cannot be a rank's, or two
// launchers disagree; then the message names both.
tri_status tri_identity_read(const char *(*get)(const char *name), tri_identity *out);

// Writes, for a message that other ranks do not arrive, which variables say that there are other
// ranks, and what to do if there are none: the variables may be left over in a shell. "" if
// `trireme run` started the rank.
enum { TRI_ADVICE_MAX = 256 };
void tri_identity_advise(const tri_identity *identity, char *text, size_t size);
// Finds the launcher's process on this host, which distinguishes two runs: the nearest ancestor
// that does not have the variable of the rank. There may be shells in between.
long tri_launcher_process(const char *rank_variable);
// Names the launcher for messages.
const char *tri_launcher_text(const tri_identity *identity);

// What a rank tells all other ranks about its host. From these claims all ranks find which of them
// share a host.
typedef struct tri_host_claim {
    char host[TRI_HOST_NAME_MAX];
    char boot[64];              // id of the host's current boot; "": not known
    int local_rank, local_size; // the numbers that the launcher gave; -1: it gave none
} tri_host_claim;
void tri_host_claim_make(const tri_identity *identity, tri_host_claim *out);
bool tri_host_claim_is_same_host(const tri_host_claim *a, const tri_host_claim *b);
// Sets the identity's local rank and local size to the true ones, which follow from the claims of
// all ranks: launchers often do not give them, or guess. Local ranks count in the order of ranks,
// unless the launcher has numbered all ranks of the host. The ranks of several launchers on a host
// are numbered together. TRI_BAD_INPUT on every rank, with the
// same message: a launcher's numbers are wrong.
tri_status tri_identity_settle(const tri_host_claim *claims, int count, tri_identity *identity);

typedef struct tri_store tri_store;

// Connects the ranks of the job: rank 0, or a launcher (an agent), serves, and all ranks connect to
// that server. On rank 0's host they use an abstract unix socket, which ends with the process and
// admits only the same user. Unless all ranks are known to be on one host, rank 0 also listens at
// its address over TCP, where it admits only ranks that have the user's token (token.h). Returns
// when all ranks have arrived. TRI_TIMEOUT: not all have arrived within `timeout_ms`.
// TRI_PEER_LOST: a rank or the server ended before that. TRI_MISMATCH: two jobs have one name, or
// the run was started again without this process. TRI_REFUSED: see tri_store_refuse. TRI_BAD_INPUT:
// there are more than TRI_MAX_RUN_RANKS ranks, rank 0's address or the token is missing or wrong,
// or another user has the job's address.
tri_status tri_store_open(const tri_identity *identity, int timeout_ms, tri_store **out);
void tri_store_close(tri_store *store); // NULL allowed
// How many hosts the ranks are on, and the number of a rank's host. Hosts are numbered in the order
// of their lowest ranks.
int tri_store_host_count(const tri_store *store);
int tri_store_host_of(const tri_store *store, int rank);
// Sets a value of up to TRI_STORE_VALUE_MAX_BYTES; it replaces the key's earlier value.
tri_status tri_store_set(tri_store *store, const char *key, const void *value, size_t size);
// Waits until the key is set. *size is the value's size. TRI_INTERNAL: the value is larger than
// `capacity`.
tri_status tri_store_get(tri_store *store, const char *key, int timeout_ms, void *value,
                         size_t capacity, size_t *size);
// Whether this run may commit a checkpoint; see tri_health_admit. TRI_PEER_LOST: a rank or the
// store's server was lost. TRI_MISMATCH: the run was started again without this process.
tri_status tri_store_admit(tri_store *store);
// Tells all ranks that this one cannot continue. Every wait for a key then ends with `status` and
// the message of tri_error_message, to which this rank's number is added, so that all ranks report
// the cause and not a timeout. If several ranks fail, the first failure counts.
// Returns `status`, with that message. Exception: if `status` is TRI_NETWORK, TRI_TIMEOUT or
// TRI_PEER_LOST, an earlier failure of another rank may be its cause. Then that failure is
// returned.
tri_status tri_store_fail(tri_store *store, tri_status status);
// Returns TRI_OK once every rank has called this function, so that all know that none has failed.
// Collective. If a rank calls tri_store_fail instead, the call fails on all ranks at once. `what`
// is the same on all ranks and must not have been used before.
tri_status tri_store_agree(tri_store *store, const char *what, int timeout_ms);
// A refusal: a rank ends with exit code 2, because usage or input is bad. This struct has what
// tri_store_refuse must know of the refusal, and what it finds out from the other ranks.
typedef struct tri_refusal {
    // This rank has a reason of its own to end; false: it only learned that another rank has one
    // (TRI_REFUSED).
    bool has_reason;
    void (*print)(const char *line);
    // Results. is_printed: this rank has printed why it ends. is_answered: the ranks have agreed on
    // one line that says why, which is in `answer`.
    bool is_printed, is_answered;
    char answer[TRI_MESSAGE_MAX_BYTES];
} tri_refusal;
// Agrees on one line that tells why the job ends; one rank prints it. Collective over all ranks
// that end with exit code 2, before or after they have met; the store of the job must be closed. If
// all ranks have the same reason (`text`), that is the line. Otherwise the line begins with the
// lowest rank that has a reason of its own: "rank 2 (host b): REASON". Ranks that wait in
// tri_store_open fail with TRI_REFUSED, and then call this function too. If ranks are missing, the
// call takes seconds, and a rank that gets no answer prints a line of its own.
void tri_store_refuse(const tri_identity *identity, const char *text, tri_refusal *refusal);

// Adds `amount` to the counter `key`, which begins at 0 and is stored as decimal text. *out is its
// new value. So if all ranks add 1, each gets a different number.
tri_status tri_store_add(tri_store *store, const char *key, int64_t amount, int64_t *out);

#endif
