// The first failure of a family, recorded in shared memory for all ranks.
#include "comm/shm/failure.h"

#include "base/os.h"
#include "comm/shm/bell.h"

#include <stdarg.h>
#include <stdio.h>

bool shm_has_failed(const shm_comm *comm) {
    const shm_failure *failure = &comm->family->control->failure;
    return atomic_load_explicit(&failure->state, memory_order_acquire) != SHM_FAILURE_NONE;
}

void shm_fail(shm_comm *comm, tri_status status, const char *format, ...) {
    shm_family *family = comm->family;
    shm_failure *failure = &family->control->failure;
    uint32_t none = SHM_FAILURE_NONE;
    if (!atomic_compare_exchange_strong(&failure->state, &none, SHM_FAILURE_BEING_WRITTEN)) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->text, sizeof failure->text, format, arguments);
    va_end(arguments);
    failure->status = (int32_t)status;
    atomic_store(&failure->state, SHM_FAILURE_WRITTEN);
    for (int r = 0; r < family->size; r++) shm_ring(family, r);
}

tri_status shm_failure_status(shm_comm *comm) {
    const shm_failure *failure = &comm->family->control->failure;
    // The rank that writes it may have been killed while it did, so this does not wait for ever.
    for (int tries = 0; tries < 1000 && atomic_load(&failure->state) != SHM_FAILURE_WRITTEN;
         tries++)
        tri_os.sleep_ns(1000000);
    if (atomic_load(&failure->state) != SHM_FAILURE_WRITTEN)
        return TRI_FAIL(TRI_PEER_LOST, "a rank was lost while it reported a failure");
    return TRI_FAIL((tri_status)failure->status, "%s", failure->text);
}

tri_status shm_failed(tri_comm *head) {
    return shm_has_failed(shm_of(head)) ? shm_failure_status(shm_of(head)) : TRI_OK;
}

void shm_abort(tri_comm *head, const char *why) {
    shm_fail(shm_of(head), TRI_PEER_LOST, "%s", why ? why : "aborted");
}
