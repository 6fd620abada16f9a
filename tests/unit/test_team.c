// Tests that each call of a team is made once, by whichever thread, and that a member sleeps when
// it has spun, and is woken.
#include "base/limits.h"
#include "base/os.h"
#include "base/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 8 };

static _Atomic int threads_left = 100; // how many threads can still be started
static _Atomic int woken;              // how often threads were woken
static _Atomic bool never_wakes;       // a thread that slept does not go on

int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
long __real_syscall(long, ...);
long __wrap_syscall(long, void *, long, long, void *, void *, long);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *context) {
    if (threads_left-- <= 0) return 11; // EAGAIN
    return __real_pthread_create(thread, attributes, body, context);
}

// What the threads that wait for a futex wait for: that this word is no longer that value.
typedef struct sleeper {
    const _Atomic uint32_t *_Atomic word;
    _Atomic uint32_t value;
} sleeper;
static sleeper sleepers[64];

static sleeper *own_sleeper(void) {
    static _Atomic int count;
    static _Thread_local sleeper *own;
    if (!own) own = &sleepers[count++];
    assert_true(own < sleepers + 64);
    return own;
}

long __wrap_syscall(long number, void *word, long operation, long value, void *a, void *b, long c) {
    bool waits = number == SYS_futex && operation == FUTEX_WAIT_PRIVATE;
    if (number == SYS_futex && operation == FUTEX_WAKE_PRIVATE) woken++;
    if (waits) {
        own_sleeper()->value = (uint32_t)value;
        own_sleeper()->word = word;
    }
    long result = __real_syscall(number, word, operation, value, a, b, c);
    while (waits && never_wakes) sched_yield();
    if (waits) own_sleeper()->word = NULL;
    return result;
}

static _Atomic int calls[MOST];
static _Atomic pthread_t makers[MOST]; // which thread made the call

static void count_call(void *context) {
    int index = tri_team_index();
    assert_true(tri_team_is_inside());
    assert_true(tri_team_size() == *(int *)context && index >= 0 && index < tri_team_size());
    calls[index]++;
    makers[index] = pthread_self();
}

static void check_run(int size) {
    memset((void *)calls, 0, sizeof calls);
    assert_int_equal(tri_team_run(size, count_call, &size), TRI_OK);
    for (int i = 0; i < MOST; i++) assert_int_equal(calls[i], i < size);
    assert_true(pthread_equal(makers[0], pthread_self()));
    assert_false(tri_team_is_inside());
    assert_int_equal(tri_team_index(), 0);
    assert_int_equal(tri_team_size(), 1);
}

static void test_no_threads(void **state) {
    (void)state;
    threads_left = 1;
    int size = 4;
    memset((void *)calls, 0, sizeof calls);
    assert_int_equal(tri_team_run(size, count_call, &size), TRI_NO_MEMORY);
    for (int i = 0; i < MOST; i++) assert_int_equal(calls[i], 0);
    check_run(2);
    threads_left = 100;
    check_run(4);
}

static void test_each_call_once(void **state) {
    (void)state;
    for (int run = 0; run < 20000; run++) check_run(1 + run % MOST);
}

static void nested(void *context) {
    int index = tri_team_index(), one = 1;
    _Atomic int *sum = context;
    assert_int_equal(tri_team_run(3, count_call, &one), TRI_OK);
    assert_int_equal(tri_team_index(), index);
    assert_int_equal(tri_team_size(), 4);
    *sum += index;
}

static void test_nested(void **state) {
    (void)state;
    _Atomic int sum = 0;
    memset((void *)calls, 0, sizeof calls);
    assert_int_equal(tri_team_run(4, nested, (void *)&sum), TRI_OK);
    assert_int_equal(calls[0], 4);
    assert_int_equal(sum, 6);
}

enum { PHASES = 300 };
static int phase_of[MOST];

static void go_through_phases(void *context) {
    int index = tri_team_index(), size = tri_team_size();
    for (int phase = 0; phase < PHASES; phase++) {
        phase_of[index] = phase;
        tri_team_barrier();
        for (int i = 0; i < size; i++) assert_int_equal(phase_of[i], phase);
        tri_team_barrier();
    }
}

static void test_barrier(void **state) {
    (void)state;
    for (int size = 1; size <= MOST; size++)
        assert_int_equal(tri_team_run(size, go_through_phases, NULL), TRI_OK);
}

static int64_t late_clock(void) { // any spin has been long enough
    static _Atomic int64_t now_ns;
    return atomic_fetch_add(&now_ns, INT64_C(1000000000));
}

// Threads that are just being woken do not count: their word has changed.
static void wait_until_asleep(int count) {
    for (int asleep = 0; asleep < count; sched_yield()) {
        asleep = 0;
        for (int i = 0; i < 64; i++) {
            const _Atomic uint32_t *word = sleepers[i].word;
            asleep += word && *word == sleepers[i].value;
        }
    }
}

static _Atomic bool second_came;

static void wait_for_second(void *context) {
    if (tri_team_index() == 1) second_came = true;
    while (!second_came) sched_yield();
}

// The next two tests have members 1 to 7 from the tests before.
static void test_sleeping_member_is_woken(void **state) {
    (void)state;
    tri_os.monotonic_ns = late_clock;
    check_run(MOST);
    wait_until_asleep(MOST - 1);
    int before = woken;
    assert_int_equal(tri_team_run(2, wait_for_second, NULL), TRI_OK);
    assert_true(woken > before);
    tri_os = tri_os_system;
}

static void test_caller_waits_for_no_absent_member(void **state) {
    (void)state;
    tri_os.monotonic_ns = late_clock;
    wait_until_asleep(MOST - 1);
    never_wakes = true;
    check_run(MOST);
    for (int i = 0; i < MOST; i++) assert_true(pthread_equal(makers[i], pthread_self()));
    never_wakes = false;
    tri_os = tri_os_system;
    check_run(MOST);
}

static void add(void *context) { ++*(_Atomic int *)context; }

// Where the member of a team of two made its latest call, and a call that both make.
static pid_t member;
static _Atomic bool member_came;

static void meet(void *context) {
    (void)context;
    if (tri_team_index() == 1) member = gettid(), member_came = true;
    while (!member_came) sched_yield();
}

static void run_both(void) {
    member_came = false;
    assert_int_equal(tri_team_run(2, meet, NULL), TRI_OK);
}

static void *share_core(void *core) {
    cpu_set_t *only = core, now;
    tri_os.monotonic_ns = late_clock; // the member sleeps at once when it waits
    run_both();                       // starts the member, while there is a core for it
    assert_int_equal(sched_setaffinity(0, sizeof *only, only), 0);
    assert_int_equal(sched_setaffinity(member, sizeof *only, only), 0);
    wait_until_asleep(1);
    run_both();
    wait_until_asleep(1); // it reads the clock until then
    tri_os = tri_os_system;
    assert_int_equal(sched_getaffinity(member, sizeof now, &now), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, only)) assert_false(CPU_ISSET(cpu, &now));
    assert_true(CPU_COUNT(&now) > 0);
    return NULL;
}

// A member that is woken on the caller's core goes to another one. Here nothing else would take it
// there: it may run on the caller's core only.
static void test_member_leaves_callers_core(void **state) {
    (void)state;
    cpu_set_t usable, first;
    assert_int_equal(sched_getaffinity(getpid(), sizeof usable, &usable), 0);
    if (CPU_COUNT(&usable) < 2) {
        print_message("skipped: there is one core only\n");
        skip();
    }
    CPU_ZERO(&first);
    for (int cpu = 0; CPU_COUNT(&first) == 0; cpu++)
        if (CPU_ISSET(cpu, &usable)) CPU_SET(cpu, &first);
    pthread_t caller;
    assert_int_equal(pthread_create(&caller, NULL, share_core, &first), 0);
    pthread_join(caller, NULL);
}

static void *run_many(void *context) {
    for (int i = 0; i < 5000; i++) assert_int_equal(tri_team_run(3, add, context), TRI_OK);
    return NULL;
}

static void test_several_callers(void **state) {
    (void)state;
    pthread_t threads[3];
    _Atomic int sum[3] = {0};
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, (void *)&sum[i]), 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++) assert_int_equal(sum[i], 15000);
}

int main(void) {
    // The team has a single member in the first test, and all in those that follow.
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_member_leaves_callers_core),
                                       cmocka_unit_test(test_no_threads),
                                       cmocka_unit_test(test_each_call_once),
                                       cmocka_unit_test(test_nested),
                                       cmocka_unit_test(test_barrier),
                                       cmocka_unit_test(test_sleeping_member_is_woken),
                                       cmocka_unit_test(test_caller_waits_for_no_absent_member),
                                       cmocka_unit_test(test_several_callers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
