// Tests how the thread of a communicator (comm/threaded) waits while no operation group advances:
// it spins for a moment, if it has a core to itself, and then sleeps for longer and longer pauses.
// The clock is a fake one, which goes on by a microsecond each time it is read.
#include "comm/threaded/threaded.h"

#include "base/os.h"
#include "comm/progress/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include <cmocka.h>

enum { MOST_SLEEPS = 16, SECOND_ADVANCE = 1000, LAST_LOOK = 1005 };

// What the communicator's thread has done so far: how often it looked whether the only group can
// advance, and how long it slept, and after which look.
static struct {
    int looks, sleep_count;
    int64_t sleeps_ns[MOST_SLEEPS];
    int slept_after[MOST_SLEEPS];
    int slack_ns;
} seen;

static int64_t now_ns;
static int64_t spin_ns; // how long the group asks the thread to spin after its first advance
static progress_family family;

static int64_t clock_ns(void) { return now_ns += 1000; }

static void sleep_ns(int64_t duration_ns) {
    now_ns += duration_ns;
    if (seen.sleep_count == MOST_SLEEPS) return;
    seen.slept_after[seen.sleep_count] = seen.looks;
    seen.sleeps_ns[seen.sleep_count++] = duration_ns;
}

static tri_status make(threaded_comm *comm, const tri_comm_op *ops, int count,
                       threaded_group **out) {
    *out = calloc(1, sizeof **out);
    return *out ? TRI_OK : TRI_NO_MEMORY;
}

static void free_group(threaded_group *group) { free(group); }

// The group advances at the first look, at look SECOND_ADVANCE and at LAST_LOOK, which ends it.
static tri_status advance(threaded_comm *comm, threaded_group *group, bool *moved) {
    seen.looks++;
    seen.slack_ns = prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);
    group->done = seen.looks == LAST_LOOK;
    *moved = group->done || seen.looks == 1 || seen.looks == SECOND_ADVANCE;
    if (seen.looks == 1 && spin_ns) threaded_spin(comm, spin_ns);
    return TRI_OK;
}

static struct progress_family *family_of(tri_comm *comm) { return &family; }

// Runs one group, and fills `seen`.
static void run_group(bool can_spin, int64_t wanted_spin_ns) {
    static const threaded_kind kind = {.make = make, .free_group = free_group, .advance = advance};
    static const tri_comm_backend inner_slots = {.name = "fake", .family = family_of};
    static const tri_comm_backend slots = {.name = "threaded", THREADED_SLOTS};
    tri_comm inner = {.backend = &inner_slots, .size = 2};
    threaded_comm *comm = calloc(1, sizeof *comm);
    tri_comm_op barrier = {.kind = TRI_COMM_BARRIER};
    tri_comm_ticket ticket;
    assert_non_null(comm);
    memset(&seen, 0, sizeof seen);
    family.can_spin = can_spin;
    spin_ns = wanted_spin_ns;
    threaded_init(comm, &kind, &slots, &inner, NULL);
    assert_int_equal(threaded_run(comm), TRI_OK);
    assert_int_equal(threaded_start(&comm->head, &barrier, 1, &ticket), TRI_OK);
    assert_int_equal(threaded_wait(&comm->head, ticket), TRI_OK);
    (void)threaded_stop(comm);
    threaded_end(comm);
    free(comm);
    assert_int_equal(seen.looks, LAST_LOOK);
    assert_int_equal(seen.slack_ns, 1);
}

// The first three pauses grow; later ones are as long as the third.
static void check_pauses(int first) {
    for (int i = 0; i < 4; i++) {
        assert_int_equal(seen.sleeps_ns[first + i], i < 2 ? 30000 * (i + 1) : 90000);
        assert_int_equal(seen.slept_after[first + i], seen.slept_after[first] + i);
    }
}

static void test_shared_core(void **state) {
    run_group(false, 200000);
    assert_int_equal(seen.slept_after[0], 2); // the first look that advances nothing
    check_pauses(0);
}

static void test_own_core(void **state) {
    if (tri_os_cpus() < 2) {
        print_message("skipped: a thread of its own core needs two cores\n");
        skip();
    }
    run_group(true, 0);
    assert_in_range(seen.slept_after[0], 40, 60); // 50 µs, and 1 µs for each look
    check_pauses(0);
    run_group(true, 200000);
    assert_in_range(seen.slept_after[0], 190, 210);
    check_pauses(0);
}

int main(void) {
    tri_os.monotonic_ns = clock_ns;
    tri_os.sleep_ns = sleep_ns;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shared_core),
                                       cmocka_unit_test(test_own_core)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
