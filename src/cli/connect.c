// Connects the ranks of a run by shared memory, by messages over the network, or by both. The
// recipe, the launcher and the number of hosts decide which. With both (comm/pair), ranks of one
// host share memory, and messages go between ranks with the same local rank (number among the ranks
// of the host). That needs consecutive ranks on each host, and the same number of them; else all
// ranks send messages to each other.
//
// The store is the small key-value service at which the ranks meet first, before they are
// connected. A transport is what carries messages between ranks, by UCX or MPI; it is loaded as a
// module.
#include "cli/connect.h"

#include "base/log.h"
#include "base/module.h"
#include "base/variable.h"
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
    // `hosts`: how many hosts the job has. `local_ranks`: how many ranks each host has, if all
    // hosts have the same number and the ranks of a host are consecutive; else 0.
    int hosts, local_ranks;
} connect_request;

// Rank 0 stores its value of the setting `what`, and each other rank checks that it has the same.
// The setting determines how the ranks are connected, so it is checked through the store, before
// they are connected. Other settings are checked later, when the connected ranks compare their
// recipes.
static tri_status compare_with_first(const connect_request *q, const char *what, const char *value,
                                     const char *advice) {
    struct {
        char value[32], host[64];
    } first = {0};
    size_t size;
    snprintf(first.value, sizeof first.value, "%s", value);
    snprintf(first.host, sizeof first.host, "%.63s", q->identity->host);
    if (q->identity->rank == 0) return tri_store_set(q->store, what, &first, sizeof first);
    TRI_TRY(tri_store_get(q->store, what, q->timeout_ms, &first, sizeof first, &size));
    first.value[sizeof first.value - 1] = first.host[sizeof first.host - 1] = 0;
    if (!strcmp(first.value, value)) return TRI_OK;
    return TRI_FAIL(
        TRI_BAD_INPUT, "rank %d (host %.63s) has %s %s, and rank 0 (host %s) has %s: %s",
        q->identity->rank, q->identity->host, what, value, first.host, first.value, advice);
}

static int count_local_ranks(const tri_store *store, int ranks) {
    int local_ranks = 0, hosts = tri_store_host_count(store);
    while (local_ranks < ranks && tri_store_host_of(store, local_ranks) == 0) local_ranks++;
    if (local_ranks * hosts != ranks) return 0;
    for (int r = 0; r < ranks; r++)
        if (tri_store_host_of(store, r) != r / local_ranks) return 0;
    return local_ranks;
}

static tri_status open_shm(const connect_request *q, tri_comm **out) {
    tri_shm_config config = {.timeout_ms = q->timeout_ms};
    return tri_comm_shm_open(q->identity->rank, q->identity->size, q->store, &config, out);
}

// Opens shared memory between the ranks of this rank's host, because it is faster than messages.
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
    tri_comm_choice choice = tri_comm_control_choice(q->choice);
    if (choice == TRI_COMM_MPI) return load("mpi", out);
    bool prefers_mpi = choice == TRI_COMM_AUTO && is_mpi_launcher(q->identity->launcher);
    if (prefers_mpi && load("mpi", out) == TRI_OK) return TRI_OK;
    tri_status status = load("ucx", out);
    if (status == TRI_OK || choice == TRI_COMM_UCX) return status;
    return tri_status_context(status, "the %d ranks are on %d hosts", q->identity->size, q->hosts);
}

static tri_status agree_to_open(void *context) {
    const connect_request *q = context;
    return tri_store_agree(q->store, "to open the transport", q->timeout_ms);
}

// Waits, at the store, until every rank has received the addresses of all ranks over the transport,
// which shows that the transport reaches all of them. If a rank cannot use the network, it writes
// the reason to the store (tell_failure), and the ranks that wait here get that reason. Ranks that
// waited for a message of the transport instead would not learn the reason.
static tri_status agree_to_begin(void *context) {
    const connect_request *q = context;
    return tri_store_agree(q->store, "that the transport reaches all ranks", q->timeout_ms);
}

static tri_status tell_failure(void *context, tri_status status) {
    const connect_request *q = context;
    return tri_store_fail(q->store, status);
}

static tri_status open_flat(connect_request *q, const tri_transport *transport, tri_ledger *ledger,
                            tri_comm **out) {
    tri_comm_meeting meeting = tri_comm_meeting_of(q->store);
    tri_message_config config = {.timeout_ms = q->timeout_ms,
                                 .ledger = ledger,
                                 .opened = agree_to_open,
                                 .reached = agree_to_begin,
                                 .failed = tell_failure,
                                 .context = q};
    return tri_comm_message_open(transport, q->identity->rank, q->identity->size, &meeting, &config,
                                 out);
}

static tri_status open_pair(connect_request *q, const tri_transport *transport, tri_comm **out) {
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

// Chooses how the ranks of several hosts are connected. "in hosts": ranks of one host share memory,
// and messages go between hosts. "flat", chosen by TRIREME_HIERARCHY=0: all ranks send messages to
// each other. The variable exists so that the two ways can be compared.
static tri_status choose_arrangement(const connect_request *q, const char **out) {
    const char *wanted = q->hosts > 1 && q->local_ranks > 1 ? "1" : "0";
    *out = "flat";
    if (!strcmp(wanted, "1")) TRI_TRY(tri_variable_choice(NULL, "TRIREME_HIERARCHY", &wanted));
    if (!strcmp(wanted, "1")) *out = "in hosts";
    return TRI_OK;
}

// Opens the transport. A rank that lacks its module or cannot open it fails here, and the caller
// then tells the other ranks through the store, because the ranks have no other connection yet.
static tri_status open_transport(connect_request *q, tri_comm **out) {
    const tri_transport *transport;
    TRI_TRY(find_transport(q, &transport));
    TRI_TRY(compare_with_first(q, "module", transport->name,
                               "install the same modules on all hosts, or set comm.backend"));
    TRI_TRY(tri_store_agree(q->store, "to load the module", q->timeout_ms));
    const char *arranged;
    TRI_TRY(choose_arrangement(q, &arranged));
    TRI_TRY(compare_with_first(q, "arrangement of ranks", arranged,
                               "set TRIREME_HIERARCHY on all hosts, or on none"));
    TRI_TRY(tri_store_agree(q->store, "on the arrangement of ranks", q->timeout_ms));
    if (!strcmp(arranged, "flat")) return open_flat(q, transport, NULL, out);
    return open_pair(q, transport, out);
}

static bool needs_messages(const connect_request *q) {
    tri_comm_choice choice = tri_comm_control_choice(q->choice);
    bool is_far = choice == TRI_COMM_MPI || choice == TRI_COMM_UCX;
    return is_far || (choice == TRI_COMM_AUTO && q->hosts > 1);
}

static tri_status open_chosen(connect_request *q, tri_comm **out) {
    TRI_TRY(compare_with_first(q, "comm.backend", tri_comm_choice_name(q->choice),
                               "start all ranks with the same recipe"));
    TRI_TRY(tri_store_agree(q->store, "on comm.backend", q->timeout_ms));
    if (needs_messages(q)) return open_transport(q, out);
    if (q->hosts == 1) return open_shm(q, out);
    return TRI_FAIL(TRI_BAD_INPUT,
                    "comm.backend: %s connects the ranks of one host, and these %d are on %d; set "
                    "it to auto, ucx or mpi",
                    tri_comm_choice_name(q->choice), q->identity->size, q->hosts);
}

// Makes the store watch all ranks from now on, because the store hears from the ranks of all hosts,
// while shared memory shows only those of one host.
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
    // The store is closed at the end if shared memory alone connects the ranks, because then they
    // need the store only to find each other. If messages connect the ranks, the store stays open
    // and watches them.
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
    if (status != TRI_OK) status = tri_store_fail(q.store, status);
    tri_store_close(q.store);
    return status;
}
