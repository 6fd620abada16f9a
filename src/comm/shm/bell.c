// A bell in shared memory for each rank. A rank sleeps on its own bell, and another rank rings it
// after writing something for which the rank may wait.
#include "comm/shm/bell.h"

void shm_ring(shm_family *family, int member) {
    progress_bell_ring(&family->control->members[member].bell);
}

void shm_ring_all(shm_comm *comm) {
    for (int r = 0; r < comm->base.head.size; r++)
        if (r != comm->base.head.rank) shm_ring(shm_family_of(comm), comm->member[r]);
}

uint32_t shm_sleep_begin(progress_family *family) {
    return progress_bell_begin(&shm_own_member((shm_family *)family)->bell);
}

void shm_sleep(progress_family *family, uint32_t seen, int timeout_ms) {
    progress_bell_sleep(&shm_own_member((shm_family *)family)->bell, seen, timeout_ms);
}

void shm_sleep_end(progress_family *family) {
    progress_bell_end(&shm_own_member((shm_family *)family)->bell);
}

void shm_wake(progress_family *family) {
    progress_bell_ring(&shm_own_member((shm_family *)family)->bell);
}

void shm_wake_all(progress_family *family) {
    for (int m = 0; m < family->size; m++) shm_ring((shm_family *)family, m);
}
