// How a thread that waits for another rank spends the time before it sleeps.
#ifndef TRIREME_COMM_PROGRESS_SPIN_H
#define TRIREME_COMM_PROGRESS_SPIN_H

#include "comm/progress/state.h"

// How long a thread has waited for an operation so far. It is set to zero when the wait begins, and
// whenever the operation advances.
typedef struct progress_spin {
    int looks;        // how often the thread has tried to go on, before its first yield
    int64_t since_ns; // since when the thread has yielded its core; 0: it has not yet
} progress_spin;

// Spins for a moment or yields the core, and returns true: the caller should then look at once
// whether its operation can advance. Returns false if it is time to sleep instead.
bool progress_spin_on(progress_family *family, progress_spin *spin);

// Tells the core that this thread spins, so that a thread beside it on the same core runs faster.
static inline void progress_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

#endif
