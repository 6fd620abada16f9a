// Fills in launch_members for each attempt, that is, for each start of a run's workers. For a run
// on one node, the rendezvous backend of `trireme run` (static or c10d) chooses where rank 0
// listens. For a run on several nodes, the members come from the serving agent, the one launcher
// that decides for all nodes.
#include "launch/members.h"

#include "base/os.h"
#include "launch/port.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

typedef struct backend {
    const char *name;
    tri_status (*join)(const launch_options *options, launch_members *out);
} backend;

// Fills in the members of a run on one node: rank 0 listens at `address`, at the port in the
// options.
static tri_status join_at(const launch_options *options, const char *address, launch_members *out) {
    out->group_size = 1;
    out->world_size = options->workers;
    if (strlen(address) >= sizeof out->master_addr)
        return TRI_FAIL(TRI_BAD_INPUT, "--master-addr: longer than %zu bytes",
                        sizeof out->master_addr - 1);
    snprintf(out->master_addr, sizeof out->master_addr, "%s", address);
    out->master_port = options->master_port;
    return TRI_OK;
}

static tri_status static_join(const launch_options *options, launch_members *out) {
    return join_at(options, options->master_addr, out);
}

// The rendezvous backend c10d (torchrun's name) for a run on one node; nodes.c has the one for
// several nodes. Unless the user gave a port, each start of the workers takes a new free port,
// because the port of the previous start may still be in use.
static tri_status c10d_join(const launch_options *options, launch_members *out) {
    TRI_TRY(
        join_at(options, options->local_addr ? options->local_addr : options->master_addr, out));
    return options->master_port_given ? TRI_OK : launch_free_port(true, &out->master_port);
}

static const backend backends[] = {
    {"static", static_join},
    {"c10d", c10d_join},
};

static tri_status draw_hex(char *out, size_t size) {
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return tri_os_fail("draw", "random bytes");
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(out + 2 * i, size - 2 * i, "%02x", bytes[i]);
    return TRI_OK;
}

static const backend *find_backend(const launch_options *options) {
    const char *name = options->standalone ? "c10d" : options->backend;
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (!strcmp(backends[i].name, name)) return &backends[i];
    return NULL;
}

tri_status launch_members_check(const launch_options *options, launch_members *out) {
    if (!find_backend(options))
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "--rdzv-backend: '%.40s' is not supported; use static or c10d",
                        options->backend);
    if (strlen(options->run_id) >= sizeof out->run_id)
        return TRI_FAIL(TRI_BAD_INPUT, "--rdzv-id: longer than %zu bytes", sizeof out->run_id - 1);
    snprintf(out->run_id, sizeof out->run_id, "%s", options->run_id);
    if (options->standalone) TRI_TRY(draw_hex(out->run_id, sizeof out->run_id));
    return options->nodes_max > 1 ? TRI_OK : find_backend(options)->join(options, out);
}

tri_status launch_members_join(const launch_options *options, launch_members *out) {
    TRI_TRY(draw_hex(out->nonce, sizeof out->nonce));
    return find_backend(options)->join(options, out);
}

void launch_members_take(const launch_options *options, const nodes_message *message,
                         launch_members *out) {
    const nodes_round *round = &message->round;
    snprintf(out->master_addr, sizeof out->master_addr, "%s", round->master_addr);
    snprintf(out->nonce, sizeof out->nonce, "%.32s", round->nonce);
    snprintf(out->job, sizeof out->job, "%s", round->job);
    bool is_v6 = strchr(round->master_addr, ':') != NULL;
    out->store[0] = 0;
    if (round->store_port)
        snprintf(out->store, sizeof out->store, is_v6 ? "[%.250s]:%d" : "%.250s:%d",
                 round->master_addr, round->store_port);
    out->master_port = round->master_port;
    out->group_rank = round->group_rank;
    out->group_size = round->group_size;
    out->first_rank = round->group_rank * options->workers;
    out->world_size = round->group_size * options->workers;
    out->generation = message->head.round;
    out->restarts = round->restarts;
}
