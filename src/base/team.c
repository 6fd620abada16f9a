// Runs loops on threads that wait for each other all the time: for work, and until all have done
// theirs. A thread that waits spins for a moment, because to sleep and be woken takes as long as a
// small loop. Then it sleeps, because another thread may need the core: perhaps the one for which
// it waits. And the caller never waits for a thread that has not begun; it does that thread's work
// itself. So a thread whose core another program uses delays a loop only if it has begun its part.
//
// Linux wakes a thread on the core of the thread that woke it, unless it finds an idle core; on a
// busy machine of few cores it does not look for one. So two threads can share a core for as long
// as they wake each other, while another core is idle. A thread that wakes up on the core of
// another one of the team therefore leaves that core.
#include "base/team.h"

#include "base/cores.h"
#include "base/limits.h"
#include "base/os.h"
#include "base/thread.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

// A number on which threads wait until it changes. It counts in steps of ONE; its lowest bit,
// SLEEPS, is set while a thread may be asleep, so that the next change has to wake it.
typedef _Atomic uint32_t counter;
enum { SLEEPS = 1, ONE = 2 };

enum { LOOKS = 32 }; // how often a spinning thread looks before it reads the clock, again and again

// One of the threads that tri_team_run starts, and the call that it makes.
typedef struct member {
    _Alignas(64) counter asked; // how often the member was asked to make its call
    _Atomic bool is_taken;      // its call has been begun, by the member or by the caller
    _Atomic int cpu;            // on which the member has begun its latest call
} member;

static struct {
    pthread_mutex_t lock;  // held by the thread that is in tri_team_run
    int size;              // of this run, with the caller
    int members;           // how many threads have been started; they have the indices from 1 on
    _Atomic bool may_spin; // each of them may have a core of its own
    void (*run)(void *context);
    void *context;
    _Alignas(64) counter left; // how many members' calls have not ended yet
    _Alignas(64) counter barriers;
    _Atomic int at_barrier; // how many calls have come to the barrier
    _Atomic int cpu;        // on which the caller began this run
    member member[TRI_MAX_THREADS];
} team = {.lock = PTHREAD_MUTEX_INITIALIZER};

typedef struct call {
    int index, size;
    bool is_inside;
} call;
static _Thread_local call here = {.size = 1};

static void wake(counter *number, uint32_t before) {
    if (before & SLEEPS) syscall(SYS_futex, number, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

// Spins until *number is not `value`, but not longer than TRI_TEAM_SPIN_US.
static void spin(counter *number, uint32_t value) {
    int64_t end_ns = 0;
    for (int looks = 1;; looks++) {
        if ((atomic_load_explicit(number, memory_order_acquire) & ~SLEEPS) != value) return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        if (looks % LOOKS) continue;
        int64_t now_ns = tri_os.monotonic_ns();
        if (!end_ns) end_ns = now_ns + TRI_TEAM_SPIN_US * 1000;
        if (now_ns >= end_ns) return;
    }
}

// Waits until *number is not `value`, and returns what it is. *has_slept: the thread may have been
// on another core before.
static uint32_t wait_while(counter *number, uint32_t value, bool *has_slept) {
    if (team.may_spin) spin(number, value);
    for (*has_slept = false;; *has_slept = true) {
        uint32_t now = atomic_load_explicit(number, memory_order_acquire);
        if ((now & ~SLEEPS) != value) return now & ~SLEEPS;
        // Fails if the number has just changed.
        if (!(now & SLEEPS) && !atomic_compare_exchange_strong(number, &now, now | SLEEPS))
            continue;
        syscall(SYS_futex, number, FUTEX_WAIT_PRIVATE, value | SLEEPS, NULL, NULL, 0);
    }
}

static void make_call(int index, int size, void (*run)(void *context), void *context) {
    call outer = here;
    here = (call){.index = index, .size = size, .is_inside = true};
    run(context);
    here = outer;
}

// Makes the call of this index, unless that has been begun.
static void take(int index) {
    member *m = &team.member[index];
    if (atomic_load_explicit(&m->is_taken, memory_order_relaxed) ||
        atomic_exchange(&m->is_taken, true))
        return;
    make_call(index, team.size, team.run, team.context);
    uint32_t before = atomic_fetch_sub(&team.left, ONE);
    if (before / ONE == 1) wake(&team.left, before);
}

// Notes the core on which this member begins a call. If it has just been woken on the core of the
// caller or of a member before it, it goes to one that none of them uses, and that it may use.
static void find_cpu(int index, bool has_slept) {
    int cpu = sched_getcpu();
    if (has_slept && team.may_spin) {
        cpu_set_t cpus;
        bool is_shared = cpu == team.cpu;
        for (int i = 1; i < index && !is_shared; i++) is_shared = cpu == team.member[i].cpu;
        if (is_shared && sched_getaffinity(getpid(), sizeof cpus, &cpus) == 0) {
            CPU_CLR(team.cpu, &cpus);
            for (int i = 1; i < index; i++) CPU_CLR(team.member[i].cpu, &cpus);
            sched_setaffinity(0, sizeof cpus, &cpus); // fails if no core is left
            cpu = sched_getcpu();
        }
    }
    if (cpu != team.member[index].cpu) team.member[index].cpu = cpu;
}

static void *serve(void *context) {
    int index = (int)(intptr_t)context;
    bool has_slept;
    pthread_setname_np(pthread_self(), "kernels");
    for (uint32_t asked = 0;; take(index)) {
        asked = wait_while(&team.member[index].asked, asked, &has_slept);
        find_cpu(index, has_slept);
    }
    return NULL;
}

// A process that was forked has none of the other threads.
static void forget_members(void) {
    pthread_mutex_init(&team.lock, NULL);
    team.members = 0;
    atomic_store(&team.at_barrier, 0);
}

static tri_status start_members(int count) {
    static bool is_prepared;
    if (!is_prepared) is_prepared = pthread_atfork(NULL, NULL, forget_members) == 0;
    team.may_spin = count < tri_cores();
    while (team.members < count) {
        pthread_t thread;
        int index = team.members + 1;
        atomic_store(&team.member[index].asked, 0);
        atomic_store(&team.member[index].is_taken, true);
        TRI_TRY(tri_thread_demand(&thread, serve, (void *)(intptr_t)index, "the kernels"));
        pthread_detach(thread);
        team.members++;
    }
    return TRI_OK;
}

static void ask(int index) {
    member *m = &team.member[index];
    // Tells a member that comes late from an earlier run what it has to do, too.
    atomic_store_explicit(&m->is_taken, false, memory_order_release);
    uint32_t before = atomic_load_explicit(&m->asked, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&m->asked, &before, (before & ~SLEEPS) + ONE)) {
    }
    wake(&m->asked, before);
}

static void run_calls(int size, void (*run)(void *context), void *context) {
    team.size = size;
    team.run = run;
    team.context = context;
    if (team.cpu != sched_getcpu()) team.cpu = sched_getcpu();
    atomic_store(&team.left, (uint32_t)(size - 1) * ONE);
    for (int i = 1; i < size; i++) ask(i);
    make_call(0, size, run, context);
    for (int i = size - 1; i > 0; i--) take(i);
    uint32_t left = atomic_load_explicit(&team.left, memory_order_acquire) & ~SLEEPS;
    bool has_slept;
    while (left) left = wait_while(&team.left, left, &has_slept);
}

tri_status tri_team_run(int size, void (*run)(void *context), void *context) {
    TRI_ASSERT(size <= TRI_MAX_THREADS);
    if (size <= 1 || here.is_inside) {
        make_call(0, 1, run, context);
        return TRI_OK;
    }
    pthread_mutex_lock(&team.lock);
    tri_status status = size - 1 > team.members ? start_members(size - 1) : TRI_OK;
    if (status == TRI_OK) run_calls(size, run, context);
    pthread_mutex_unlock(&team.lock);
    return status;
}

int tri_team_index(void) { return here.index; }
int tri_team_size(void) { return here.size; }
bool tri_team_is_inside(void) { return here.is_inside; }

void tri_team_barrier(void) {
    if (here.size == 1) return;
    uint32_t value = atomic_load(&team.barriers) & ~SLEEPS;
    if (atomic_fetch_add(&team.at_barrier, 1) + 1 < here.size) {
        bool has_slept;
        wait_while(&team.barriers, value, &has_slept);
        return;
    }
    atomic_store(&team.at_barrier, 0);
    wake(&team.barriers, atomic_exchange(&team.barriers, value + ONE));
}
