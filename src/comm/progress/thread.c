// The thread of a family (all communicators split from one). It advances operations for which no
// thread waits, so they progress while the caller computes. It also calls the backend's `beat` at
// regular times, which shows the other ranks that this one lives, and passes failures on to the
// families that fail together with this one. It never spins, because the caller needs the cores.
#include "comm/progress/thread.h"

#include "base/limits.h"
#include "base/os.h"
#include "base/thread.h"
#include "comm/progress/failure.h"
#include "comm/progress/futex.h"
#include "comm/progress/queue.h"
#include "comm/progress/watch.h"
typedef enum thread_scope { THREAD_WANTED, THREAD_ALL } thread_scope;

static bool is_wanted(progress_comm *comm) {
    return atomic_load(&comm->waiters) == 0 && !progress_has_failed(comm) &&
           atomic_load(&comm->thread_target) > atomic_load(&comm->completed);
}

static progress_result try_one(progress_comm *comm, thread_scope scope) {
    bool wanted = is_wanted(comm);
    bool pending = atomic_load(&comm->started) > atomic_load(&comm->completed);
    if (!wanted && !(scope == THREAD_ALL && pending && atomic_load(&comm->waiters) == 0))
        return PROGRESS_IDLE;
    if (!progress_try_execute(comm)) return wanted ? PROGRESS_BLOCKED : PROGRESS_IDLE;
    progress_result result = progress_advance(comm);
    if (result == PROGRESS_BLOCKED) progress_watch(comm);
    atomic_store(&comm->executing, 0);
    // Only one thread at a time advances operations. Another thread that began to wait meanwhile
    // may have gone to sleep; it is woken, so that it advances its operation further.
    if (atomic_load(&comm->waiters) > 0) comm->family->backend->wake(comm->family);
    return wanted ? result : PROGRESS_IDLE;
}

// Tries to advance all communicators of the family once. THREAD_WANTED: only operations that this
// thread was asked to advance (up to `thread_target`). THREAD_ALL: also the others, so that a lost
// rank is noticed even while the caller computes.
static progress_result try_all(progress_family *family, thread_scope scope) {
    progress_result best = PROGRESS_IDLE;
    pthread_mutex_lock(&family->lock);
    for (progress_comm *comm = family->comms; comm; comm = comm->next) {
        progress_result result = try_one(comm, scope);
        if (result > best) best = result;
    }
    pthread_mutex_unlock(&family->lock);
    return best;
}

static void sleep_idle(progress_family *family, int timeout_ms) {
    uint32_t seen = atomic_load(&family->work);
    atomic_store(&family->work_sleeper, 1);
    bool stop = atomic_load(&family->stop);
    if (!stop && try_all(family, THREAD_WANTED) == PROGRESS_IDLE)
        progress_futex_wait(&family->work, seen, timeout_ms);
    atomic_store(&family->work_sleeper, 0);
}

static void sleep_blocked(progress_family *family) {
    uint32_t seen = family->backend->sleep_begin(family);
    bool stop = atomic_load(&family->stop);
    if (!stop && try_all(family, THREAD_WANTED) == PROGRESS_BLOCKED)
        family->backend->sleep(family, seen, TRI_COMM_CHECK_MS);
    family->backend->sleep_end(family);
}

static void *thread_main(void *context) {
    progress_family *family = context;
    int64_t beat_ns = tri_os.monotonic_ns();
    while (!atomic_load(&family->stop)) {
        int64_t now = tri_os.monotonic_ns();
        bool beats = now >= beat_ns;
        if (beats) {
            if (family->backend->beat) family->backend->beat(family);
            beat_ns = now + TRI_HEARTBEAT_MS * (int64_t)1000000;
        }
        progress_spread_failure(family);
        progress_result result = try_all(family, beats ? THREAD_ALL : THREAD_WANTED);
        if (result == PROGRESS_BLOCKED) sleep_blocked(family);
        if (result == PROGRESS_IDLE) sleep_idle(family, (int)((beat_ns - now) / 1000000) + 1);
    }
    return NULL;
}

void progress_thread_wake(progress_family *family) {
    atomic_fetch_add(&family->work, 1);
    if (atomic_load(&family->work_sleeper)) progress_futex_wake(&family->work);
}

tri_status progress_thread_start(progress_family *family) {
    TRI_TRY(tri_thread_demand(&family->thread, thread_main, family, "a communicator"));
    family->has_thread = true;
    return TRI_OK;
}

void progress_thread_stop(progress_family *family) {
    if (!family->has_thread) return;
    atomic_store(&family->stop, 1);
    progress_thread_wake(family);
    family->backend->wake(family);
    pthread_join(family->thread, NULL);
    family->has_thread = false;
}
