// Words of memory on which threads sleep until another thread changes them. The other thread may be
// one of another process, so ranks that share memory can wake each other.
#ifndef TRIREME_COMM_PROGRESS_FUTEX_H
#define TRIREME_COMM_PROGRESS_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

// Sleeps while *word == value, but not longer than timeout_ms.
void progress_futex_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms);
void progress_futex_wake(_Atomic uint32_t *word);

// A bell: a word of memory on which threads sleep. Ringing the bell raises the word and wakes them.
// No ring is lost: a sleeper first adds itself to `sleepers` and then checks whether it still has
// to wait; a ringer first writes what the sleeper waits for and then reads `sleepers`. These
// accesses are sequentially consistent, so at least one of the two threads sees what the other
// wrote.
typedef struct progress_bell {
    _Atomic uint32_t rings;
    _Atomic uint32_t sleepers; // number of threads that may be asleep
} progress_bell;

static inline uint32_t progress_bell_begin(progress_bell *bell) {
    atomic_fetch_add(&bell->sleepers, 1);
    return atomic_load(&bell->rings);
}

static inline void progress_bell_sleep(progress_bell *bell, uint32_t seen, int timeout_ms) {
    progress_futex_wait(&bell->rings, seen, timeout_ms);
}

static inline void progress_bell_end(progress_bell *bell) { atomic_fetch_sub(&bell->sleepers, 1); }

static inline void progress_bell_ring(progress_bell *bell) {
    if (atomic_load(&bell->sleepers) == 0) return;
    atomic_fetch_add(&bell->rings, 1);
    progress_futex_wake(&bell->rings);
}

#endif
