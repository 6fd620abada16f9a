// Sleeping and waking over process borders.
#include "comm/shm/internal.h"

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

void shm_ring(shm_family *family, int member) {
    shm_member *other = &family->control->members[member];
    if (atomic_load(&other->sleepers) == 0) return;
    atomic_fetch_add(&other->doorbell, 1);
    shm_futex_wake(&other->doorbell);
}

// Whoever sleeps counted itself in `sleepers` before its last look at what it waits for; whoever
// rings wrote that before looking at `sleepers`. As all of it is sequentially consistent, one of
// the two sees the other.
void shm_ring_all(shm_comm *comm) {
    for (int r = 0; r < comm->head.size; r++)
        if (r != comm->head.rank) shm_ring(comm->family, comm->world[r]);
}

uint32_t shm_sleep_begin(shm_family *family) {
    shm_member *me = shm_me(family);
    atomic_fetch_add(&me->sleepers, 1);
    return atomic_load(&me->doorbell);
}

void shm_sleep(shm_family *family, uint32_t seen, int timeout_ms) {
    shm_futex_wait(&shm_me(family)->doorbell, seen, timeout_ms);
}

void shm_sleep_end(shm_family *family) { atomic_fetch_sub(&shm_me(family)->sleepers, 1); }
