// Chooses how the threads of OpenMP, ours and oneDNN's alike, wait.
//
// libgomp spins for about 300,000 turns, milliseconds, but (as its manual says of GOMP_SPINCOUNT)
// only for 100 while the program has more OpenMP threads than cores. Its setting is read when the
// library is loaded and cannot be changed later, but the number of threads can: to yield, a helper
// opens a parallel region of its own, whose threads then sleep.
//
// Delays alone do not tell which way is faster. Where a loader's thread takes a core now and then,
// small kernels run two to three times faster with spinning threads, although these are delayed.
// So threads that are delayed try the other way for a moment and keep the faster one.
#include "device/cpu/crowd.h"

#include "base/cpu_share.h"
#include "base/limits.h"

#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum {
    LOOK_MS = 100,
    SETTLE_WINDOWS = 1, // of a trial, in which threads still change their way
    FEW_WINDOWS = 3,    // the shortest trial
    MANY_WINDOWS = 20,  // the longest, where little work is done in a window
    ENOUGH_WORK = 100,  // to compare rates
    QUIET_PERCENT = 5,  // of the time; less delay is none
};
static const int64_t FIRST_INTERVAL_NS = 2000000000, LONGEST_INTERVAL_NS = 120000000000;
// Sleeping has to be clearly better, since it makes a delay of each wait where cores are free.
static const double SLEEP_GAIN = 1.1;

struct cpu_crowd {
    int threads;
    _Atomic uint64_t work; // counted since the start
    cpu_crowd_choice choice;
    _Atomic bool yields;
    pthread_t watcher, helper;
    bool has_helper;
    pthread_mutex_t lock;
    pthread_cond_t wake; // of both
    bool stop, release;
};

static double rate_of(uint64_t work, int64_t wall_ns) {
    return wall_ns > 0 ? 1e9 * (double)work / (double)wall_ns : 0;
}

static void begin_trial(cpu_crowd_choice *c) {
    c->yields = !c->yields;
    c->on_trial = true;
    c->windows = 0;
    c->wall_ns = 0;
    c->work = 0;
}

static void end_trial(cpu_crowd_choice *c) {
    double rate = rate_of(c->work, c->wall_ns);
    bool better = c->yields ? rate > SLEEP_GAIN * c->rate : SLEEP_GAIN * rate >= c->rate;
    c->on_trial = false;
    if (better) {
        c->interval_ns = FIRST_INTERVAL_NS;
    } else {
        c->yields = !c->yields;
        c->interval_ns = c->interval_ns ? 2 * c->interval_ns : FIRST_INTERVAL_NS;
        if (c->interval_ns > LONGEST_INTERVAL_NS) c->interval_ns = LONGEST_INTERVAL_NS;
    }
    c->until_ns = c->interval_ns;
    c->rate = better ? rate : 0; // that of the old way is measured again
}

void cpu_crowd_choose(cpu_crowd_choice *c, const cpu_crowd_window *w) {
    if (w->wall_ns <= 0 || w->work == 0) return; // the program does something else
    if (c->on_trial) {
        if (c->windows++ < SETTLE_WINDOWS) return;
        c->wall_ns += w->wall_ns;
        c->work += w->work;
        if (c->windows >= MANY_WINDOWS || (c->windows >= FEW_WINDOWS && c->work >= ENOUGH_WORK))
            end_trial(c);
        return;
    }
    double rate = rate_of(w->work, w->wall_ns);
    c->rate = c->rate > 0 ? 0.7 * c->rate + 0.3 * rate : rate; // of the last three windows or so
    c->until_ns -= w->wall_ns;
    int64_t percent = 100 * w->delayed_ns / w->wall_ns;
    bool doubtful = c->yields || percent >= TRI_STARVED_PERCENT;
    if (c->yields && percent < QUIET_PERCENT && c->until_ns > FIRST_INTERVAL_NS)
        c->until_ns = FIRST_INTERVAL_NS; // the cores are free again, it seems
    if (doubtful && c->until_ns <= 0) begin_trial(c);
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
    uint64_t work_before = atomic_load(&crowd->work);
    pthread_mutex_lock(&crowd->lock);
    while (known && !crowd->stop) {
        wait_a_while(crowd);
        known = tri_cpu_share_read(&now);
        tri_cpu_share passed = tri_cpu_share_between(&before, &now);
        before = now;
        uint64_t work = atomic_load(&crowd->work);
        cpu_crowd_window window = {passed.wall_ns, passed.delayed_ns, work - work_before};
        work_before = work;
        cpu_crowd_choose(&crowd->choice, &window);
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

void cpu_crowd_count(cpu_crowd *crowd) {
    if (!crowd) return;
    uint64_t work = atomic_load_explicit(&crowd->work, memory_order_relaxed);
    atomic_store_explicit(&crowd->work, work + 1, memory_order_relaxed);
}

bool cpu_crowd_yields(const cpu_crowd *crowd) { return crowd && atomic_load(&crowd->yields); }
