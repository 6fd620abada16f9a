// The rendezvous backends of `trireme run`: who takes part in an attempt, and where rank 0 listens.
#include "launch/members.h"

#include "base/os.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

typedef struct backend {
    const char *name;
    tri_status (*join)(const launch_options *options, launch_members *out);
} backend;

static tri_status join_one_node(const launch_options *options, launch_members *out) {
    if (options->nodes_max > 1)
        return TRI_FAIL(
            TRI_UNSUPPORTED,
            "--nnodes: a job over several nodes is not supported yet; start it on one node "
            "(--standalone), or its ranks by srun or mpirun");
    if (strlen(options->run_id) >= sizeof out->run_id)
        return TRI_FAIL(TRI_BAD_INPUT, "--rdzv-id: longer than %zu bytes", sizeof out->run_id - 1);
    if (!out->run_id[0]) snprintf(out->run_id, sizeof out->run_id, "%s", options->run_id);
    out->group_size = 1;
    out->world_size = options->workers;
    return TRI_OK;
}

// Rank 0 listens at `address`, on the port of the options.
static tri_status join_at(const launch_options *options, const char *address, launch_members *out) {
    TRI_TRY(join_one_node(options, out));
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

// A port that is free now. The system hands out free ports in turn, so that this one will very
// probably still be free when rank 0 binds it.
static tri_status find_port(int *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = tri_os.socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 &&
                 getsockname(fd, (struct sockaddr *)&address, &size) == 0;
    tri_status status = found ? TRI_OK : tri_os_fail("find a free port", "127.0.0.1");
    if (fd >= 0) tri_os.close(fd);
    *port = ntohs(address.sin_port);
    return status;
}

// torchrun's rendezvous at the node of rank 0. With one node, each attempt uses a new free port.
static tri_status c10d_join(const launch_options *options, launch_members *out) {
    TRI_TRY(
        join_at(options, options->local_addr ? options->local_addr : options->master_addr, out));
    return options->master_port_given ? TRI_OK : find_port(&out->master_port);
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

tri_status launch_members_join(const launch_options *options, launch_members *out) {
    const char *name = options->standalone ? "c10d" : options->backend;
    if (options->standalone && !out->run_id[0]) TRI_TRY(draw_hex(out->run_id, sizeof out->run_id));
    TRI_TRY(draw_hex(out->nonce, sizeof out->nonce));
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (!strcmp(backends[i].name, name)) return backends[i].join(options, out);
    return TRI_FAIL(TRI_UNSUPPORTED, "--rdzv-backend: '%.40s' is not supported; use static or c10d",
                    name);
}
