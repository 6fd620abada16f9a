#include "cli/cli.h"

#include "comm/shm/shm.h"
#include "device/cpu/cpu.h"
#include "device/null/null.h"
#include "device/ref/ref.h"

enum { MEETING_TIMEOUT_MS = 120000 };

static const tri_device_backend *const devices[] = {&tri_device_cpu, &tri_device_ref,
                                                    &tri_device_null, NULL};

// Ranks of one host over shared memory; the store is needed only until they have met.
static tri_status open_comm(const tri_identity *identity, tri_comm **out) {
    tri_store *store;
    TRI_TRY(tri_store_open(identity, MEETING_TIMEOUT_MS, &store));
    tri_status status = tri_comm_shm_open(identity->rank, identity->size, store, NULL, out);
    tri_store_close(store);
    return status;
}

const tri_backends cli_backends = {.devices = devices, .open_comm = open_comm};
