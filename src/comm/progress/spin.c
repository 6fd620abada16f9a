// A thread that waits spins for a moment, then yields its core before each look, and at last
// sleeps.
//
// When to yield depends on who else wants the core. If it is the other rank, nothing advances until
// this thread yields, so it should yield at once. If it is an unrelated program, that keeps the
// core for a time slice of a millisecond or more, so yielding is the last resort. The system does
// not tell who waits for the core, but how long a yield took does: another rank soon waits too, and
// then gives the core back.
#include "comm/progress/spin.h"

#include "base/limits.h"
#include "base/os.h"

#include <sched.h>

enum {
    SPINS_BEFORE_YIELD = 100, // these take some microseconds; over a network some tens of them
    SPINS_ON_SHARED_CORE = 1,
    // A yield that takes longer than LENT_NS lent the core to another thread. A yield that takes
    // longer than USED_UP_NS lent it to a thread that used up its time slice.
    LENT_NS = 1500,
    USED_UP_NS = 500000,
};

bool progress_spin_on(progress_family *family, progress_spin *spin) {
    if (!family->can_spin) return false;
    bool shares =
        family->yields_early && atomic_load_explicit(&family->shares_core, memory_order_relaxed);
    if (spin->looks < (shares ? SPINS_ON_SHARED_CORE : SPINS_BEFORE_YIELD)) {
        spin->looks++;
        progress_pause();
        return true;
    }
    int64_t begin = tri_os.monotonic_ns();
    if (!spin->since_ns) spin->since_ns = begin;
    sched_yield();
    int64_t end = tri_os.monotonic_ns();
    if (end - begin > LENT_NS)
        atomic_store_explicit(&family->shares_core, end - begin <= USED_UP_NS,
                              memory_order_relaxed);
    return end - spin->since_ns < TRI_COMM_YIELD_US * 1000;
}
