// Serves the workers' store (store.h), the key-value service through which the workers, the ranks'
// processes, find each other. This code runs in the serving agent, the launcher that decides for
// all nodes. When workers connect, they name their run, and which start of the run they belong to
// (its generation). The server has to know both before they connect. So this code makes the
// environment variables that a worker will get, and reads run and generation from them as a worker
// does.
#include "launch/store.h"

#include "base/os.h"
#include "launch/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

// A worker's environment variables, "NAME=value", while tri_identity_read reads them. They are kept
// in a static variable, because tri_identity_read calls get_variable with nothing but a name.
static _Thread_local char **variables;

static const char *get_variable(const char *name) {
    size_t length = strlen(name);
    for (char **at = variables; *at; at++)
        if (!strncmp(*at, name, length) && (*at)[length] == '=') return *at + length + 1;
    return NULL;
}

static tri_status read_identity(const launch_options *options, int generation,
                                const nodes_round *round, tri_identity *out) {
    nodes_message message = {.head = {.round = generation}, .round = *round};
    launch_members members = {0};
    tri_arena *arena = tri_arena_create(NULL, "store");
    snprintf(members.run_id, sizeof members.run_id, "%s", options->run_id);
    launch_members_take(options, &message, &members);
    variables = launch_command_environment(arena, options, &members, 0, "");
    tri_status status = tri_identity_read(get_variable, out);
    variables = NULL;
    tri_arena_destroy(arena);
    return status;
}

// Chooses the job's name: the run's id and a random number. So another run with the same --rdzv-id
// has another name, and the two cannot be confused.
static tri_status name_job(const launch_options *options, launch_store *store) {
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return tri_os_fail("draw", "random bytes");
    snprintf(store->job, sizeof store->job, "%.40s-%016llx", options->run_id,
             (unsigned long long)number);
    return TRI_OK;
}

static tri_status start(launch_store *store, tri_identity *identity) {
    tri_store_address *address = &identity->address;
    tri_status status = tri_store_serve(identity, &store->server);
    // The host name in `address` may belong to a service (of Kubernetes, for example) that leads to
    // this host, and resolve to none of this host's own addresses. Then the store listens at all
    // addresses of this host.
    if (status == TRI_NOT_FOUND && address->is_exact) {
        address->is_exact = false;
        status = tri_store_serve(identity, &store->server);
    }
    return status;
}

tri_status launch_store_begin(launch_store *store, const launch_options *options,
                              const tri_store_address *where, int generation, nodes_round *out) {
    tri_identity identity;
    if (!store->job[0]) TRI_TRY(name_job(options, store));
    snprintf(out->job, sizeof out->job, "%s", store->job);
    TRI_TRY(read_identity(options, generation, out, &identity));
    identity.address = *where;
    snprintf(identity.address.host, sizeof identity.address.host, "%s", out->master_addr);
    identity.address.port = 0; // 0: any free port
    identity.address.ports = 1;
    if (store->server)
        tri_store_server_begin(store->server, &identity);
    else
        TRI_TRY(start(store, &identity));
    out->store_port = tri_store_server_port(store->server);
    return TRI_OK;
}

void launch_store_end(launch_store *store) { tri_store_server_end(store->server); }
