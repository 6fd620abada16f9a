// Chooses whether waiting OpenMP threads, ours and oneDNN's, spin or yield their cores.
//
// A waiting thread of libgomp spins about 300,000 times, which takes milliseconds, but only 100
// times while the program has more OpenMP threads than cores (see GOMP_SPINCOUNT in its manual).
// libgomp reads its settings when it is loaded, and they cannot be changed later. But the number of
// threads can: to make threads yield, a helper thread opens a parallel region of its own, so that
// the program has more OpenMP threads than cores. The threads of that region only sleep.
//
// That threads have to wait for cores does not tell whether yielding would be faster. For example,
// if a thread of the data loader sometimes takes a core, small kernels run two to three times
// faster with spinning threads, although one of these then has to wait for its core. So while
// threads have to wait for cores, a separate thread, the watcher, from time to time lets them yield
// for a moment (a trial) and keeps the faster of the two ways, measured in parallel loops per
// second.
#include "device/cpu/wait_policy.h"

#include "base/cpu_time.h"
#include "base/limits.h"

#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum {
    LOOK_MS = 100, // length of a window; after each window the watcher updates the choice
    // In a trial, waiting threads yield instead of spinning or the reverse, to find out which is
    // faster. This many windows (each of LOOK_MS) at its start are not measured, because some
    // threads still wait as before the trial.
    SETTLE_WINDOWS = 1,
    FEW_WINDOWS = 3,    // length of the shortest trial, in windows of LOOK_MS
    MANY_WINDOWS = 20,  // length of the longest trial
    ENOUGH_LOOPS = 100, // number of parallel loops after which a trial may end
    // If the threads together lacked a core for less than this percentage of the wall-clock time,
    // cores seem to be free.
    QUIET_PERCENT = 5,
};
// Time between two trials: 2 s at first, and again after a trial that found a better way. It
// doubles after each trial that found none, up to 120 s.
static const int64_t FIRST_INTERVAL_NS = 2000000000, LONGEST_INTERVAL_NS = 120000000000;
// Yielding is chosen only if it is faster by this factor, because it delays every wait when cores
// are free.
static const double YIELD_GAIN = 1.1;

struct cpu_wait_policy {
    int threads;
    _Atomic uint64_t loops; // number of parallel loops since the start
    cpu_wait_choice choice;
    _Atomic bool yields;
    pthread_t watcher, helper;
    bool has_helper;
    pthread_mutex_t lock;
    pthread_cond_t wake; // wakes watcher and helper
    // stop: the watcher has to end. release: the helper has to end, so that threads spin again.
    bool stop, release;
};

static double rate_of(uint64_t loops, int64_t wall_ns) {
    return wall_ns > 0 ? 1e9 * (double)loops / (double)wall_ns : 0;
}

static void begin_trial(cpu_wait_choice *c) {
    c->yields = !c->yields;
    c->on_trial = true;
    c->windows = 0;
    c->wall_ns = 0;
    c->loops = 0;
}

static void end_trial(cpu_wait_choice *c) {
    double rate = rate_of(c->loops, c->wall_ns);
    bool better = c->yields ? rate > YIELD_GAIN * c->rate : YIELD_GAIN * rate >= c->rate;
    c->on_trial = false;
    if (better) {
        c->interval_ns = FIRST_INTERVAL_NS;
    } else {
        c->yields = !c->yields;
        c->interval_ns = c->interval_ns ? 2 * c->interval_ns : FIRST_INTERVAL_NS;
        if (c->interval_ns > LONGEST_INTERVAL_NS) c->interval_ns = LONGEST_INTERVAL_NS;
    }
    c->until_ns = c->interval_ns;
    c->rate = better ? rate : 0; // 0: after a trial that found no gain, the rate is measured again
}

void cpu_wait_choose(cpu_wait_choice *c, const cpu_wait_window *w) {
    if (w->wall_ns <= 0 || w->loops == 0) return; // no kernels ran in this time
    if (c->on_trial) {
        if (c->windows++ < SETTLE_WINDOWS) return;
        c->wall_ns += w->wall_ns;
        c->loops += w->loops;
        if (c->windows >= MANY_WINDOWS || (c->windows >= FEW_WINDOWS && c->loops >= ENOUGH_LOOPS))
            end_trial(c);
        return;
    }
    double rate = rate_of(w->loops, w->wall_ns);
    // Averages the rates of about the last three windows, each of LOOK_MS.
    c->rate = c->rate > 0 ? 0.7 * c->rate + 0.3 * rate : rate;
    c->until_ns -= w->wall_ns;
    int64_t percent = 100 * w->delayed_ns / w->wall_ns;
    bool doubtful = c->yields || percent >= TRI_STARVED_PERCENT;
    if (c->yields && percent < QUIET_PERCENT && c->until_ns > FIRST_INTERVAL_NS)
        // The cores seem to be free again, so spinning is tried soon.
        c->until_ns = FIRST_INTERVAL_NS;
    if (doubtful && c->until_ns <= 0) begin_trial(c);
}

// The helper thread: opens a parallel region. libgomp keeps the region's threads as long as this
// thread lives, so until `release` the program has at least two more OpenMP threads than cores.
static void *hold_region(void *context) {
    cpu_wait_policy *policy = context;
    int needed = omp_get_num_procs() - policy->threads + 2;
    int joined = 0;
#pragma omp parallel num_threads(needed < 2 ? 2 : needed) reduction(+ : joined)
    joined++;
    pthread_mutex_lock(&policy->lock);
    while (!policy->release) pthread_cond_wait(&policy->wake, &policy->lock);
    pthread_mutex_unlock(&policy->lock);
    return NULL; // libgomp ends the region's threads together with this thread
}

static void apply(cpu_wait_policy *policy) {
    bool yields = policy->choice.yields;
    if (yields == policy->has_helper) return;
    if (yields) {
        policy->release = false;
        policy->has_helper = pthread_create(&policy->helper, NULL, hold_region, policy) == 0;
    } else {
        policy->release = true;
        pthread_cond_broadcast(&policy->wake);
        pthread_mutex_unlock(&policy->lock);
        pthread_join(policy->helper, NULL);
        pthread_mutex_lock(&policy->lock);
        policy->has_helper = false;
    }
    atomic_store(&policy->yields, policy->has_helper);
}

static void wait_a_while(cpu_wait_policy *policy) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&policy->wake, &policy->lock, &until);
}

static void *watch(void *context) {
    cpu_wait_policy *policy = context;
    tri_cpu_time before, now;
    bool known = tri_cpu_time_read(&before);
    uint64_t loops_before = atomic_load(&policy->loops);
    pthread_mutex_lock(&policy->lock);
    while (known && !policy->stop) {
        wait_a_while(policy);
        known = tri_cpu_time_read(&now);
        tri_cpu_time passed = tri_cpu_time_between(&before, &now);
        before = now;
        uint64_t loops = atomic_load(&policy->loops);
        cpu_wait_window window = {passed.wall_ns, passed.delayed_ns, loops - loops_before};
        loops_before = loops;
        cpu_wait_choose(&policy->choice, &window);
        apply(policy);
    }
    policy->choice.yields = false;
    apply(policy);
    pthread_mutex_unlock(&policy->lock);
    return NULL;
}

cpu_wait_policy *cpu_wait_policy_start(int threads) {
    tri_cpu_time unused;
    bool chosen = getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT");
    if (threads < 2 || chosen || !tri_cpu_time_read(&unused)) return NULL;
    cpu_wait_policy *policy = calloc(1, sizeof *policy);
    if (!policy) return NULL;
    policy->threads = threads;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&policy->lock, NULL);
    pthread_cond_init(&policy->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    // Signals are blocked in the watcher, so that the program's own threads get them.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&policy->watcher, NULL, watch, policy);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) return policy;
    free(policy);
    return NULL;
}

void cpu_wait_policy_stop(cpu_wait_policy *policy) {
    if (!policy) return;
    pthread_mutex_lock(&policy->lock);
    policy->stop = true;
    pthread_cond_broadcast(&policy->wake);
    pthread_mutex_unlock(&policy->lock);
    pthread_join(policy->watcher, NULL);
    pthread_cond_destroy(&policy->wake);
    pthread_mutex_destroy(&policy->lock);
    free(policy);
}

void cpu_wait_policy_count(cpu_wait_policy *policy) {
    if (!policy) return;
    uint64_t loops = atomic_load_explicit(&policy->loops, memory_order_relaxed);
    atomic_store_explicit(&policy->loops, loops + 1, memory_order_relaxed);
}

bool cpu_wait_policy_yields(const cpu_wait_policy *policy) {
    return policy && atomic_load(&policy->yields);
}
