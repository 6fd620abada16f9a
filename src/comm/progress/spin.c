// How a thread waits for another rank: it checks again and again whether it can go on. At first it
// spins, then it yields its core before each check, and at last it sleeps.
//
// When to yield depends on which thread also wants the core. If that is the rank for which this
// thread waits, nothing advances until this thread yields, so it should yield at once. If it is an
// unrelated program, that keeps the core for a time slice of a millisecond or more, so yielding is
// the last resort. The system does not tell which thread wants the core, but the time that a yield
// takes shows it: another rank soon has to wait too, and then gives the core back, so the yield is
// short.
#include "comm/progress/spin.h"

#include "base/limits.h"
#include "base/os.h"

#include <sched.h>

enum {
    // How often a thread checks whether it can go on before it yields. All these checks take some
    // microseconds; over a network, where a check takes longer, some tens of microseconds.
    SPINS_BEFORE_YIELD = 100,
    // The same for a thread that probably shares its core with another rank.
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
