// How a rank finds the server of the store (the key-value service at which the ranks meet). Rank 0
// starts the server, unless a launcher (an agent) serves. All ranks look for it first on their own
// host, by a unix socket that only the same user can open, and then at rank 0's address over TCP.
#include "base/log.h"
#include "base/quantity.h"
#include "rendezvous/store_client.h"
#include "rendezvous/store_unix.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Keeps the text of the latest failure, for messages.
static void keep_tcp_failure(tri_store *store) {
    snprintf(store->tcp_failure, sizeof store->tcp_failure, "%.500s", tri_error_message());
}

// Gets the command with which the user's launcher sets TRIREME_STORE on all ranks. A message tells
// the user this command if the ranks cannot find out on which host rank 0 is.
static const char *store_line(const char *launcher) {
    static const struct {
        const char *launcher, *line;
    } lines[] = {
        {"open-mpi", "mpirun -x TRIREME_STORE=HOST:29500"},
        {"hydra", "mpiexec -genv TRIREME_STORE HOST:29500"},
        {"pals", "mpiexec --env TRIREME_STORE=$(head -n 1 $PBS_NODEFILE):29500"},
        {"mvapich2", "mpirun_rsh -np N -hostfile FILE TRIREME_STORE=HOST:29500"},
        {"flux", "flux run --env=TRIREME_STORE=$(flux hostlist -n 0 instance):29500"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strcmp(launcher, lines[i].launcher)) return lines[i].line;
    return "TRIREME_STORE=HOST:29500";
}

// Finds whether ranks may be on other hosts, and if so the user's token (a secret), which is needed
// only then.
static tri_status prepare_tcp(tri_store *store) {
    const tri_identity *me = &store->identity;
    bool is_one_host = me->local_size == me->size, has_address = me->address.host[0] != 0;
    bool is_spread = me->address.is_exact || (me->local_size && !is_one_host);
    if (me->size == 1 || (is_one_host && !me->address.is_exact)) return TRI_OK;
    if (!has_address && is_spread)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "rank %d on %s: %d of the job's %d ranks are on this host, and nothing "
                        "says where rank 0 is: start them with `%s …`, where the host is rank "
                        "0's and the port is free there",
                        me->rank, me->host, me->local_size, me->size, store_line(me->launcher));
    if (!has_address || (store_address_is_loopback(me) && !me->address.is_exact)) return TRI_OK;
    tri_status status = store_token_find((const char *(*)(const char *))getenv, &store->token);
    store->uses_tcp = status == TRI_OK;
    if (status != TRI_OK && !is_spread) keep_tcp_failure(store);
    return is_spread ? status : TRI_OK;
}

static void close_sockets(store_server_config *config) {
    if (config->unix_fd >= 0) tri_os.close(config->unix_fd);
    for (int i = 0; i < config->tcp.count; i++) tri_os.close(config->tcp.fds[i]);
}

// Opens the sockets at which rank 0 listens. TRI_NOT_FOUND: another process serves the job, or an
// earlier run of the same name has not ended yet.
static tri_status listen_for_ranks(tri_store *store, store_server_config *config) {
    const tri_identity *me = &store->identity;
    // If TRIREME_STORE gives the store's address (is_exact), rank 0 first tries to listen there.
    // That fails if a launcher (an agent) already listens at this address. Then the launcher
    // serves, and rank 0 does not, not even at the unix socket.
    bool is_first = store->uses_tcp && me->address.is_exact;
    if (is_first) TRI_TRY(store_tcp_listen(me, &config->tcp));
    tri_status status = store_unix_listen(me, &config->unix_fd);
    if (status == TRI_NETWORK && errno == EADDRINUSE) return TRI_NOT_FOUND;
    TRI_TRY(status);
    if (is_first || !store->uses_tcp) return TRI_OK;
    status = store_tcp_listen(me, &config->tcp);
    if (status == TRI_OK || me->local_size) return status;
    keep_tcp_failure(store);
    return TRI_OK; // not a failure, because all ranks may be on this host
}

// Starts the server of rank 0. TRI_OK with store->server still NULL: other processes have the
// addresses at the moment, and the caller tries again.
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

// Looks for the server once, on this host and then over TCP for up to `round_ms`. TRI_NOT_FOUND: it
// cannot be reached now.
static tri_status connect_once(tri_store *store, int round_ms, int *fd) {
    tri_status status = store_unix_connect(&store->identity, fd);
    if (status == TRI_OK && (status = store_unix_admit(*fd)) != TRI_OK) tri_os.close(*fd);
    if (status != TRI_NOT_FOUND || !store->uses_tcp) return status;
    status = store_tcp_connect(&store->identity, &store->token, round_ms, fd);
    if (status == TRI_NOT_FOUND) keep_tcp_failure(store);
    return status;
}

static void report_wait(const tri_store *store) {
    const tri_identity *me = &store->identity;
    const char *between = store->tcp_failure[0] ? ": " : "";
    const char *waited = tri_seconds_text(TRI_STILL_AFTER_MS * 1e-3);
    char advice[TRI_ADVICE_MAX];
    tri_identity_advise(me, advice, sizeof advice);
    if (me->address.is_exact)
        tri_log_line(TRI_LOG_WARNING, "%s was not reached after %s%s%s%s", store->server_name,
                     waited, between, store->tcp_failure, advice);
    else
        tri_log_line(TRI_LOG_WARNING,
                     "rank 0 (%s) does not move: it has not arrived after %s%s%s%s",
                     store->uses_tcp ? me->address.host : me->host, waited, between,
                     store->tcp_failure, advice);
}

// How long to pause before the next look for rank 0: a tenth of the time waited so far, within
// bounds. So the wait ends soon after rank 0 appears, and a long wait costs little.
static int64_t pause_ns(int64_t waited_ns) {
    const int64_t least = 500000, most = 50000000;
    int64_t tenth = waited_ns / 10;
    return tenth < least ? least : tenth > most ? most : tenth;
}

static tri_status connect_to_rank_0(tri_store *store, int timeout_ms, int64_t until_ns) {
    int64_t begin_ns = tri_os.monotonic_ns();
    const tri_identity *me = &store->identity;
    bool is_reported = me->rank != 1; // only rank 1 warns, so that the warning appears once
    // Rank 0 tries to listen until this time, and then fails because another job has its name. It
    // does not fail at once, because the unix socket's address is made from the job's name, and an
    // earlier job of the same name that is about to end may still have it.
    int64_t limit_ns = store_after_ms(TRI_STORE_ANSWER_MS);
    if (limit_ns > until_ns) limit_ns = until_ns;
    // A launcher (an agent) may serve the store, but only at an address that is given by
    // TRIREME_STORE (is_exact). With such an address rank 0 first looks for that server, and tries
    // to serve only if it finds none.
    bool may_serve = me->rank == 0 && !me->address.is_exact;
    for (int round_ms = 100;; round_ms = round_ms < TRI_STORE_PROBE_MS ? 2 * round_ms : round_ms) {
        if (may_serve && !store->server) TRI_TRY(serve(store, limit_ns));
        may_serve = me->rank == 0;
        tri_status status = connect_once(store, round_ms, &store->fd);
        if (status != TRI_OK) store->fd = -1;
        if (status != TRI_NOT_FOUND) return status;
        if (tri_os.monotonic_ns() >= until_ns)
            return TRI_FAIL(TRI_TIMEOUT, "rank %d: %s %s within %s%s%s", me->rank,
                            store->server_name,
                            me->address.is_exact ? "was not reached" : "did not arrive",
                            tri_seconds_text(timeout_ms / 1e3), store->tcp_failure[0] ? ": " : "",
                            store->tcp_failure);
        if (!is_reported && tri_os.monotonic_ns() - begin_ns >= TRI_STILL_AFTER_MS * 1000000ll) {
            is_reported = true;
            report_wait(store);
        }
        tri_os.sleep_ns(pause_ns(tri_os.monotonic_ns() - begin_ns));
    }
}

tri_status store_connect(tri_store *store, int timeout_ms, int64_t until_ns) {
    TRI_TRY(prepare_tcp(store));
    return connect_to_rank_0(store, timeout_ms, until_ns);
}

tri_status store_connect_again(tri_store *store, int *fd) {
    return connect_once(store, TRI_STORE_PROBE_MS, fd);
}
