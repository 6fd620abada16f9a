// One thread per process. It advances operations that no thread waits for, raises this rank's
// heartbeat, and observes those of the others. It never spins.
#include "comm/shm/worker.h"

#include "base/os.h"
#include "base/thread.h"
#include "comm/shm/bell.h"
#include "comm/shm/failure.h"
#include "comm/shm/queue.h"
#include "comm/shm/watch.h"

#include <string.h>

typedef enum worker_scope { WORKER_WANTED, WORKER_ALL } worker_scope;

static bool worker_wanted(shm_comm *comm) {
    return atomic_load(&comm->waiters) == 0 && !shm_has_failed(comm) &&
           atomic_load(&comm->worker_target) > atomic_load(&comm->completed);
}

static shm_progress worker_try(shm_comm *comm, worker_scope scope) {
    bool wanted = worker_wanted(comm);
    bool pending = atomic_load(&comm->started) > atomic_load(&comm->completed);
    if (!wanted && !(scope == WORKER_ALL && pending && atomic_load(&comm->waiters) == 0))
        return SHM_IDLE;
    if (!shm_try_execute(comm)) return wanted ? SHM_BLOCKED : SHM_IDLE;
    shm_progress progress = shm_advance(comm);
    if (progress == SHM_BLOCKED) shm_watch(comm);
    atomic_store(&comm->executing, 0);
    // A thread that began to wait meanwhile found us executing, and may have gone to sleep.
    if (atomic_load(&comm->waiters) > 0) shm_ring(comm->family, comm->family->rank);
    return wanted ? progress : SHM_IDLE;
}

// Tries all communicators once. WORKER_ALL: also operations past worker_target, so that a lost rank
// is noticed even while the caller computes.
static shm_progress worker_try_all(shm_family *family, worker_scope scope) {
    shm_progress best = SHM_IDLE;
    pthread_mutex_lock(&family->lock);
    for (shm_comm *comm = family->comms; comm; comm = comm->next) {
        shm_progress progress = worker_try(comm, scope);
        if (progress > best) best = progress;
    }
    pthread_mutex_unlock(&family->lock);
    return best;
}

static void worker_sleep_idle(shm_family *family, int timeout_ms) {
    uint32_t seen = atomic_load(&family->work);
    atomic_store(&family->work_sleeper, 1);
    bool stop = atomic_load(&family->stop);
    if (!stop && worker_try_all(family, WORKER_WANTED) == SHM_IDLE)
        shm_futex_wait(&family->work, seen, timeout_ms);
    atomic_store(&family->work_sleeper, 0);
}

static void worker_sleep_blocked(shm_family *family) {
    uint32_t seen = shm_sleep_begin(family);
    bool stop = atomic_load(&family->stop);
    if (!stop && worker_try_all(family, WORKER_WANTED) == SHM_BLOCKED)
        shm_sleep(family, seen, TRI_SHM_CHECK_MS);
    shm_sleep_end(family);
}

static void *worker_main(void *context) {
    shm_family *family = context;
    int64_t beat_ns = tri_os.monotonic_ns();
    while (!atomic_load(&family->stop)) {
        int64_t now = tri_os.monotonic_ns();
        bool beats = now >= beat_ns;
        if (beats) {
            atomic_fetch_add(&shm_own_member(family)->heartbeat, 1);
            shm_observe(family);
            beat_ns = now + TRI_HEARTBEAT_MS * (int64_t)1000000;
        }
        shm_progress progress = worker_try_all(family, beats ? WORKER_ALL : WORKER_WANTED);
        if (progress == SHM_BLOCKED) worker_sleep_blocked(family);
        if (progress == SHM_IDLE) worker_sleep_idle(family, (int)((beat_ns - now) / 1000000) + 1);
    }
    return NULL;
}

void shm_worker_wake(shm_family *family) {
    atomic_fetch_add(&family->work, 1);
    if (atomic_load(&family->work_sleeper)) shm_futex_wake(&family->work);
}

tri_status shm_worker_start(shm_family *family) {
    int failed = tri_thread_start(&family->worker, worker_main, family);
    if (failed) return TRI_FAIL(TRI_NO_MEMORY, "cannot start a thread: %s", strerror(failed));
    family->has_worker = true;
    return TRI_OK;
}

void shm_worker_stop(shm_family *family) {
    if (!family->has_worker) return;
    atomic_store(&family->stop, 1);
    shm_worker_wake(family);
    shm_ring(family, family->rank);
    pthread_join(family->worker, NULL);
    family->has_worker = false;
}
