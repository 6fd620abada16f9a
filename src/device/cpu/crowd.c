// Chooses how the threads of OpenMP, ours and oneDNN's alike, wait.
//
// libgomp spins for about 300,000 turns, milliseconds, but (as its manual says of GOMP_SPINCOUNT)
// only for 100 while the program has more OpenMP threads than cores. Its setting is read when the
// library is loaded and cannot be changed later, but the number of threads can: to yield, a helper
// opens a parallel region of its own, whose threads then sleep.
#include "device/cpu/crowd.h"

#include "base/cpu_share.h"
#include "base/limits.h"

#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { LOOK_MS = 100, QUIET_PERCENT = 5 };
static const int64_t SHORTEST_TRIAL_NS = 1000000000, LONGEST_TRIAL_NS = 60000000000;

struct cpu_crowd {
    int threads;
    cpu_crowd_choice choice;
    _Atomic bool yields;
    pthread_t watcher, helper;
    bool has_helper;
    pthread_mutex_t lock;
    pthread_cond_t wake; // of both
    bool stop, release;
};

void cpu_crowd_choose(cpu_crowd_choice *c, int64_t wall_ns, int64_t delayed_ns) {
    if (wall_ns <= 0) return;
    int64_t percent = 100 * delayed_ns / wall_ns;
    c->quiet_ns = percent < QUIET_PERCENT ? c->quiet_ns + wall_ns : 0;
    if (!c->yields && percent >= TRI_STARVED_PERCENT) {
        // It was tried too early, or for the first time: the next trial comes later.
        c->trial_ns = c->trial_ns ? 2 * c->trial_ns : SHORTEST_TRIAL_NS;
        if (c->trial_ns > LONGEST_TRIAL_NS) c->trial_ns = LONGEST_TRIAL_NS;
        c->yields = true;
    } else if (c->yields && c->quiet_ns >= c->trial_ns) {
        c->yields = false;
        c->quiet_ns = 0;
    } else if (!c->yields && c->quiet_ns >= LONGEST_TRIAL_NS) {
        c->trial_ns = 0;
    }
}

static void *be_many(void *context) {
    cpu_crowd *crowd = context;
    int needed = omp_get_num_procs() - crowd->threads + 2;
    int joined = 0;
#pragma omp parallel num_threads(needed < 2 ? 2 : needed) reduction(+ : joined)
    joined++;
    pthread_mutex_lock(&crowd->lock);
    while (!crowd->release) pthread_cond_wait(&crowd->wake, &crowd->lock);
    pthread_mutex_unlock(&crowd->lock);
    return NULL; // the region's threads end with this one
}

static void apply(cpu_crowd *crowd) {
    bool yields = crowd->choice.yields;
    if (yields == crowd->has_helper) return;
    if (yields) {
        crowd->release = false;
        crowd->has_helper = pthread_create(&crowd->helper, NULL, be_many, crowd) == 0;
    } else {
        crowd->release = true;
        pthread_cond_broadcast(&crowd->wake);
        pthread_mutex_unlock(&crowd->lock);
        pthread_join(crowd->helper, NULL);
        pthread_mutex_lock(&crowd->lock);
        crowd->has_helper = false;
    }
    atomic_store(&crowd->yields, crowd->has_helper);
}

static void wait_a_while(cpu_crowd *crowd) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&crowd->wake, &crowd->lock, &until);
}

static void *watch(void *context) {
    cpu_crowd *crowd = context;
    tri_cpu_share before, now;
    bool known = tri_cpu_share_read(&before);
    pthread_mutex_lock(&crowd->lock);
    while (known && !crowd->stop) {
        wait_a_while(crowd);
        known = tri_cpu_share_read(&now);
        tri_cpu_share passed = tri_cpu_share_between(&before, &now);
        before = now;
        cpu_crowd_choose(&crowd->choice, passed.wall_ns, passed.delayed_ns);
        apply(crowd);
    }
    crowd->choice.yields = false;
    apply(crowd);
    pthread_mutex_unlock(&crowd->lock);
    return NULL;
}

cpu_crowd *cpu_crowd_start(int threads) {
    tri_cpu_share unused;
    bool chosen = getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT");
    if (threads < 2 || chosen || !tri_cpu_share_read(&unused)) return NULL;
    cpu_crowd *crowd = calloc(1, sizeof *crowd);
    if (!crowd) return NULL;
    crowd->threads = threads;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&crowd->lock, NULL);
    pthread_cond_init(&crowd->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    sigset_t all, before; // signals are for the program's own threads
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&crowd->watcher, NULL, watch, crowd);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) return crowd;
    free(crowd);
    return NULL;
}

void cpu_crowd_stop(cpu_crowd *crowd) {
    if (!crowd) return;
    pthread_mutex_lock(&crowd->lock);
    crowd->stop = true;
    pthread_cond_broadcast(&crowd->wake);
    pthread_mutex_unlock(&crowd->lock);
    pthread_join(crowd->watcher, NULL);
    pthread_cond_destroy(&crowd->wake);
    pthread_mutex_destroy(&crowd->lock);
    free(crowd);
}

bool cpu_crowd_yields(const cpu_crowd *crowd) { return crowd && atomic_load(&crowd->yields); }
