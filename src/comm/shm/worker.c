// One thread per process: it carries out operations while nobody waits for them, gives the
// heartbeat, and keeps the record of the others' heartbeats. It never spins.
#include "comm/shm/internal.h"

#include "base/os.h"

#include <signal.h>
#include <string.h>

static bool worker_wanted(shm_comm *comm) {
    return atomic_load(&comm->waiters) == 0 && !shm_failed(comm) &&
           atomic_load(&comm->behind) > atomic_load(&comm->completed);
}

static shm_progress worker_try(shm_comm *comm, bool look) {
    bool wanted = worker_wanted(comm);
    bool pending = atomic_load(&comm->started) > atomic_load(&comm->completed);
    if (!wanted && !(look && pending && atomic_load(&comm->waiters) == 0)) return SHM_IDLE;
    if (!shm_try_execute(comm)) return wanted ? SHM_BLOCKED : SHM_IDLE;
    shm_progress progress = shm_advance(comm);
    if (progress == SHM_BLOCKED) shm_watch(comm);
    atomic_store(&comm->executing, 0);
    // Whoever came to wait meanwhile found us at work, and may have gone to sleep.
    if (atomic_load(&comm->waiters) > 0) shm_ring(comm->family, comm->family->rank);
    return wanted ? progress : SHM_IDLE;
}

// One round over all communicators. `look`: also at those that nobody asked us to see to.
static shm_progress worker_round(shm_family *family, bool look) {
    shm_progress best = SHM_IDLE;
    pthread_mutex_lock(&family->lock);
    for (shm_comm *comm = family->comms; comm; comm = comm->next) {
        shm_progress progress = worker_try(comm, look);
        if (progress > best) best = progress;
    }
    pthread_mutex_unlock(&family->lock);
    return best;
}

static void worker_sleep_idle(shm_family *family, int timeout_ms) {
    uint32_t seen = atomic_load(&family->work);
    atomic_store(&family->work_sleeper, 1);
    bool stop = atomic_load(&family->stop);
    if (!stop && worker_round(family, false) == SHM_IDLE)
        shm_futex_wait(&family->work, seen, timeout_ms);
    atomic_store(&family->work_sleeper, 0);
}

static void worker_sleep_blocked(shm_family *family) {
    uint32_t seen = shm_sleep_begin(family);
    bool stop = atomic_load(&family->stop);
    if (!stop && worker_round(family, false) == SHM_BLOCKED)
        shm_sleep(family, seen, TRI_SHM_CHECK_MS);
    shm_sleep_end(family);
}

static void *worker_main(void *context) {
    shm_family *family = context;
    int64_t beat_ns = tri_os.monotonic_ns();
    while (!atomic_load(&family->stop)) {
        int64_t now = tri_os.monotonic_ns();
        bool look = now >= beat_ns;
        if (look) {
            atomic_fetch_add(&shm_me(family)->heartbeat, 1);
            shm_observe(family);
            beat_ns = now + TRI_HEARTBEAT_MS * (int64_t)1000000;
        }
        shm_progress progress = worker_round(family, look);
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
    // Signals are the caller's business.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&family->worker, NULL, worker_main, family);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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
