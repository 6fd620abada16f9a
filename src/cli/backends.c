// The devices and communicators of this program: the only list of concrete backends.
#include "cli/cli.h"

#include "comm/shm/shm.h"
#include "device/cpu/cpu.h"
#include "device/far/far.h"
#include "device/null/null.h"
#include "device/ref/ref.h"

#include <unistd.h>

static const tri_device_backend *const devices[] = {&tri_device_cpu, &tri_device_ref,
                                                    &tri_device_null, &tri_device_far, NULL};

// Opens the communicator of ranks that share one host's memory. They need the store only to find
// each other.
static tri_status open_comm(const tri_identity *identity, const tri_comm_options *options,
                            tri_comm **out, tri_health **health) {
    tri_store *store;
    *health = NULL;
    tri_shm_config config = {.timeout_ms = tri_comm_timeout_ms(options)};
    TRI_TRY(tri_store_open(identity, config.timeout_ms, &store));
    int hosts = tri_store_host_count(store);
    tri_status status =
        hosts == 1 ? tri_comm_shm_open(identity->rank, identity->size, store, &config, out)
                   : TRI_FAIL(TRI_UNSUPPORTED,
                              "the %d ranks are on %d hosts; a job over several hosts is not "
                              "supported yet, start all ranks on one",
                              identity->size, hosts);
    tri_store_close(store);
    return status;
}

static void give_up(tri_status why) { _exit(cli_fail(why)); }

const tri_backends cli_backends = {.devices = devices, .open_comm = open_comm, .give_up = give_up};
