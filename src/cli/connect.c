// Connects the ranks of a run: what carries their operations is chosen by the recipe, the launcher
// and the hosts. Ranks of one host share memory. Across hosts go messages: of all ranks, or, where
// each host has the same number of ranks, of those that are at the same number on their hosts
// (comm/pair).
#include "cli/connect.h"

#include "base/log.h"
#include "base/module.h"
#include "comm/message/message.h"
#include "comm/pair/pair.h"
#include "comm/shm/shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct connect_request {
    const tri_identity *identity;
    tri_comm_choice choice;
    int timeout_ms;
    tri_store *store;
    int hosts, local_ranks; // ranks of each host, which follow each other; 0: that is not so
} connect_request;

// ---- which ranks share a host

static int count_local_ranks(const tri_store *store, int ranks) {
    int local_ranks = 0, hosts = tri_store_host_count(store);
    while (local_ranks < ranks && tri_store_host_of(store, local_ranks) == 0) local_ranks++;
    if (local_ranks * hosts != ranks) return 0;
    for (int r = 0; r < ranks; r++)
        if (tri_store_host_of(store, r) != r / local_ranks) return 0;
    return local_ranks;
}

// ---- shared memory

static tri_status open_shm(const connect_request *q, tri_comm **out) {
    tri_shm_config config = {.timeout_ms = q->timeout_ms};
    return tri_comm_shm_open(q->identity->rank, q->identity->size, q->store, &config, out);
}

// Of the ranks of this rank's host.
static tri_status open_host(const connect_request *q, tri_comm **out) {
    int host = q->identity->rank / q->local_ranks;
    char name[32];
    int *ranks = calloc((size_t)q->local_ranks, sizeof *ranks);
    if (!ranks) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    for (int i = 0; i < q->local_ranks; i++) ranks[i] = host * q->local_ranks + i;
    snprintf(name, sizeof name, "host%d", host);
    tri_shm_config config = {.timeout_ms = q->timeout_ms, .job_ranks = ranks, .group = name};
    tri_status status = tri_comm_shm_open(q->identity->rank % q->local_ranks, q->local_ranks,
                                          q->store, &config, out);
    free(ranks);
    return status;
}

// ---- messages

static bool is_mpi_launcher(const char *launcher) {
    static const char *const names[] = {"open-mpi", "hydra", "mvapich2", "pals"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(launcher, names[i])) return true;
    return false;
}

static tri_status load(const char *name, const tri_transport **out) {
    const void *table;
    tri_status status = tri_module_load(name, TRI_TRANSPORT_INTERFACE, TRI_TRANSPORT_ABI, &table);
    *out = table;
    return status;
}

static tri_status find_transport(const connect_request *q, const tri_transport **out) {
    if (q->choice == TRI_COMM_MPI) return load("mpi", out);
    bool prefers_mpi = q->choice == TRI_COMM_AUTO && is_mpi_launcher(q->identity->launcher);
    if (prefers_mpi && load("mpi", out) == TRI_OK) return TRI_OK;
    tri_status status = load("ucx", out);
    if (status == TRI_OK || q->choice == TRI_COMM_UCX) return status;
    return tri_status_context(status, "the %d ranks are on %d hosts", q->identity->size, q->hosts);
}

static tri_status open_flat(const connect_request *q, const tri_transport *transport,
                            tri_ledger *ledger, tri_comm **out) {
    tri_comm_meeting meeting = tri_comm_meeting_of(q->store);
    tri_message_config config = {.timeout_ms = q->timeout_ms, .ledger = ledger};
    return tri_comm_message_open(transport, q->identity->rank, q->identity->size, &meeting, &config,
                                 out);
}

static tri_status open_pair(const connect_request *q, const tri_transport *transport,
                            tri_comm **out) {
    tri_comm_pair pair = {0};
    int rank = q->identity->rank;
    TRI_TRY(open_host(q, &pair.inside));
    tri_status status = open_flat(q, transport, pair.inside->ledger, &pair.direct);
    if (status == TRI_OK)
        status =
            pair.direct->backend->split(pair.direct, rank % q->local_ranks, rank, &pair.across);
    if (status == TRI_OK) return tri_comm_pair_open(&pair, out);
    tri_comm_close(pair.direct);
    tri_comm_close(pair.inside);
    return status;
}

static tri_status open_transport(const connect_request *q, tri_comm **out) {
    const tri_transport *transport;
    TRI_TRY(find_transport(q, &transport));
    if (q->hosts > 1 && q->local_ranks > 1) return open_pair(q, transport, out);
    return open_flat(q, transport, NULL, out);
}

static bool needs_messages(const connect_request *q) {
    bool is_far = q->choice == TRI_COMM_MPI || q->choice == TRI_COMM_UCX;
    return is_far || (q->choice == TRI_COMM_AUTO && q->hosts > 1);
}

static tri_status open_chosen(const connect_request *q, tri_comm **out) {
    if (needs_messages(q)) return open_transport(q, out);
    if (q->hosts == 1) return open_shm(q, out);
    return TRI_FAIL(TRI_BAD_INPUT,
                    "comm.backend: %s connects the ranks of one host, and these %d are on %d; set "
                    "it to auto, ucx or mpi",
                    tri_comm_choice_name(q->choice), q->identity->size, q->hosts);
}

// From now on the store watches over the ranks, which it can see on all hosts.
static tri_status watch_ranks(tri_store *store, const tri_comm_options *options, tri_comm *comm,
                              tri_health **health) {
    tri_health_config config = {.silence_s = options ? options->silence_s : 0,
                                .ring = tri_ledger_ring_of(comm->ledger)};
    TRI_TRY(tri_health_start(store, &config, health));
    tri_comm_set_health(comm, *health);
    return TRI_OK;
}

tri_status cli_open_comm(const tri_identity *identity, const tri_comm_options *options,
                         tri_comm **out, tri_health **health) {
    return cli_open_comm_after(identity, options, NULL, NULL, out, health);
}

tri_status cli_open_comm_after(const tri_identity *identity, const tri_comm_options *options,
                               tri_status (*met)(void *context, tri_store *store), void *context,
                               tri_comm **out, tri_health **health) {
    connect_request q = {.identity = identity,
                         .choice = options ? options->backend : TRI_COMM_AUTO,
                         .timeout_ms = tri_comm_timeout_ms(options)};
    *out = NULL;
    *health = NULL;
    // The ranks of one host need the store only to find each other.
    TRI_TRY(tri_store_open(identity, q.timeout_ms, &q.store));
    tri_log_stage("met");
    q.hosts = tri_store_host_count(q.store);
    q.local_ranks = count_local_ranks(q.store, identity->size);
    tri_status status = met && q.hosts > 1 ? met(context, q.store) : TRI_OK;
    if (status == TRI_OK) status = open_chosen(&q, out);
    if (status == TRI_OK && needs_messages(&q)) {
        status = watch_ranks(q.store, options, *out, health);
        if (status == TRI_OK) return TRI_OK;
        tri_comm_close(*out);
        *out = NULL;
    }
    tri_store_close(q.store);
    return status;
}
