// Futexes in shared memory: a rank sleeps on its own doorbell, and others ring it.
#include "comm/shm/bell.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void shm_futex_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms) {
    struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0);
}

void shm_futex_wake(_Atomic uint32_t *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

// No ring is lost. The sleeper adds itself to `sleepers` and then checks what it waits for; the
// ringer writes that and then reads `sleepers`. Both are sequentially consistent, so at least one
// of the two sees what the other wrote.
void shm_ring(shm_family *family, int member) {
    shm_member *other = &family->control->members[member];
    if (atomic_load(&other->sleepers) == 0) return;
    atomic_fetch_add(&other->doorbell, 1);
    shm_futex_wake(&other->doorbell);
}

void shm_ring_all(shm_comm *comm) {
    for (int r = 0; r < comm->head.size; r++)
        if (r != comm->head.rank) shm_ring(comm->family, comm->world_rank[r]);
}

uint32_t shm_sleep_begin(shm_family *family) {
    shm_member *me = shm_own_member(family);
    atomic_fetch_add(&me->sleepers, 1);
    return atomic_load(&me->doorbell);
}

void shm_sleep(shm_family *family, uint32_t seen, int timeout_ms) {
    shm_futex_wait(&shm_own_member(family)->doorbell, seen, timeout_ms);
}

void shm_sleep_end(shm_family *family) { atomic_fetch_sub(&shm_own_member(family)->sleepers, 1); }
