// Tests the search for stragglers, slow ranks for which the others wait. It searches ledgers
// (records of each rank's actions) that the test writes, with a clock that the test sets.
#include "observe/straggler.h"

#include "base/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// The ledger of rank SKEWED numbers the kinds of actions in another way than those of other ranks.
enum { RANKS = 4, SKEWED = 1, KINDS = 5 };

static tri_ledger_ring rings[RANKS];
// The latest actions of the last rank, if tells_every_ns is not 0. The search for stragglers reads
// `rings`, and these actions are copied there only every tells_every_ns, so that it sees them late.
static tri_ledger_ring hidden;
static int64_t clock_ns, told_ns, tells_every_ns;

static int64_t fake_clock(void) { return clock_ns; }
static const tri_ledger_ring *ring_of(tri_comm *comm, int rank) { return &rings[rank]; }
static const tri_comm_backend backend = {.name = "fake", .ledger_of = ring_of};
static tri_comm world = {.backend = &backend, .rank = 0, .size = RANKS};

static int set_up(void **state) {
    static const char *const names[2][KINDS] = {{"FORWARD", "BACKWARD", "WAIT", "STEP", "COMMIT"},
                                                {"WAIT", "STEP", "FORWARD", "BACKWARD", "COMMIT"}};
    memset(rings, 0, sizeof rings);
    tells_every_ns = 0;
    for (int r = 0; r < RANKS; r++) {
        for (int k = 0; k < KINDS; k++)
            snprintf(rings[r].kind_names[k], sizeof rings[r].kind_names[k], "%s",
                     names[r == SKEWED][k]);
        atomic_store(&rings[r].kinds, KINDS);
        snprintf(rings[r].host, sizeof rings[r].host, "n%d", r / 2);
    }
    world.size = RANKS;
    world.rank = 0;
    clock_ns = 1000000000;
    tri_os.monotonic_ns = fake_clock;
    return 0;
}

static int tear_down(void **state) {
    tri_os = tri_os_system;
    return 0;
}

static tri_ledger_ring *ring_to_write(int rank) {
    return tells_every_ns && rank == RANKS - 1 ? &hidden : &rings[rank];
}

static void did(int rank, const char *kind, int count, double each_ms) {
    tri_ledger_ring *ring = ring_to_write(rank);
    for (int k = 0; k < KINDS; k++) {
        if (strcmp(ring->kind_names[k], kind) != 0) continue;
        atomic_fetch_add(&ring->totals[k].count, count);
        atomic_fetch_add(&ring->totals[k].busy_ns, (int64_t)(count * each_ms * 1e6));
    }
}

// Records a step in the ledgers of all ranks and advances the clock. Rank r runs `work[r]`
// micro-batches, `slow[r]` times slower than usual. Returns how many ms the step takes.
static double a_step(const double slow[RANKS], const int work[RANKS]) {
    double longest = 0, took[RANKS];
    for (int r = 0; r < world.size; r++) {
        did(r, "FORWARD", 4 * work[r], 1.5 * slow[r]);
        did(r, "BACKWARD", 4 * work[r], 3.0 * slow[r]);
        did(r, "STEP", 4, 0.25 * slow[r]);
        took[r] = slow[r] * (18.0 * work[r] + 1);
        if (took[r] > longest) longest = took[r];
    }
    for (int r = 0; r < world.size; r++) did(r, "WAIT", 1, longest - took[r]);
    for (int r = 0; r < world.size; r++) atomic_fetch_add(&ring_to_write(r)->steps, 1);
    clock_ns += (int64_t)(longest * 1e6);
    if (tells_every_ns && clock_ns - told_ns >= tells_every_ns) {
        rings[RANKS - 1] = hidden;
        told_ns = clock_ns;
    }
    return longest;
}

static const char *run(tri_straggler *s, int64_t *step, int steps, const double slow[RANKS],
                       const int work[RANKS]) {
    for (int i = 0; i < steps; i++) {
        a_step(slow, work);
        const char *line = tri_straggler_look(s, ++*step);
        if (line) return line;
    }
    return NULL;
}

static const int even[RANKS] = {1, 1, 1, 1};
static const double alike[RANKS] = {1, 1.05, 0.95, 1.1};

static void expect(const char *line, const char *part) {
    assert_non_null(line);
    if (!strstr(line, part)) print_error("'%s' is not in '%s'\n", part, line);
    assert_non_null(strstr(line, part));
}

static void test_named(void **state) {
    const double slow[RANKS] = {1, 1.05, 0.95, 3};
    tri_straggler *s = tri_straggler_create(&world);
    assert_non_null(s);
    int64_t step = 0, before;
    assert_null(run(s, &step, 300, alike, even));
    before = step;
    const char *line = run(s, &step, 50, slow, even);
    expect(line, "rank 3 on host n1 is ");
    expect(line, " times slower than ");
    expect(line, ": its BACKWARD takes ");
    expect(line, "% of the last 50 steps");
    print_message("after %d steps: %s\n", (int)(step - before), line);
    // A slow rank is reported once, and then again only when it has caught up.
    assert_null(run(s, &step, 500, slow, even));
    before = step;
    expect(run(s, &step, 100, alike, even), "rank 3 on host n1 keeps pace again");
    assert_true(step - before <= 60);
    assert_null(run(s, &step, 300, alike, even));
    const double second[RANKS] = {1, 2.5, 1, 1}; // rank SKEWED is slow
    expect(run(s, &step, 50, second, even), "rank 1 on host n0 is ");
    tri_straggler_destroy(s);
}

static void test_how_much(void **state) {
    const double slow[RANKS] = {1, 1, 1, 3};
    tri_straggler *s = tri_straggler_create(&world);
    int64_t step = 0;
    const char *line = run(s, &step, 200, slow, even); // one rank is slow from the start
    expect(line, "is 3.0 times slower");
    expect(line, "its BACKWARD takes 9.00 ms, theirs 3.00 ms; ");
    tri_straggler_destroy(s);
}

// Ranks that share cores are slow in turns.
static void test_in_turns(void **state) {
    const double first[RANKS] = {1, 1, 3, 1}, second[RANKS] = {1, 1, 1, 3};
    tri_straggler *s = tri_straggler_create(&world);
    int64_t step = 0;
    int lines = 0;
    for (int turn = 0; turn < 200; turn++) // 10,000 steps of each
        for (int64_t end = step + 100; step < end;)
            lines += run(s, &step, (int)(end - step), turn % 2 ? second : first, even) != NULL;
    print_message("%d lines\n", lines);
    assert_true(lines >= 4 && lines <= 12);
    // What lasts is still reported.
    const char *line = NULL;
    while (!line || !strstr(line, "rank 3 on host n1 is "))
        assert_non_null(line = run(s, &step, 2000, second, even));
    tri_straggler_destroy(s);
}

// A rank with more work is not slow, and neither is one that is slower by a little.
static void test_not_named(void **state) {
    const int uneven[RANKS] = {2, 1, 1, 0};
    const double little[RANKS] = {1, 1, 1, 1.2};
    tri_straggler *s = tri_straggler_create(&world);
    int64_t step = 0;
    assert_null(run(s, &step, 400, alike, uneven));
    assert_null(run(s, &step, 400, little, even));
    tri_straggler_destroy(s);
    // A rank that is slow in only one of 50 steps is not named: over all compared steps the others
    // hardly wait for it.
    s = tri_straggler_create(&world);
    for (int i = 0; i < 400; i++) {
        if (i % 50 == 0) did(2, "STEP", 1, 20);
        assert_null(run(s, &step, 1, alike, even));
    }
    tri_straggler_destroy(s);
}

// What rank 0 alone does makes no slow rank of it; if it takes much time, one line says what helps.
static void test_rank_0_alone(void **state) {
    tri_straggler *s = tri_straggler_create(&world);
    int64_t step = 0;
    int lines = 0;
    for (int i = 0; i < 1000; i++) {
        did(0, "COMMIT", 1, i < 500 ? 1 : 20);
        clock_ns += i < 500 ? 1000000 : 20000000;
        const char *line = run(s, &step, 1, alike, even);
        if (!line) continue;
        lines++;
        assert_true(i >= 500);
        expect(line, "rank 0 was in COMMIT for ");
        expect(line, "save less often");
    }
    assert_int_equal(lines, 1);
    tri_straggler_destroy(s);
}

// Stages of a pipeline do different work. A rank that is alone in its stage is compared with its
// own past.
static void test_stages(void **state) {
    const double stages[RANKS] = {1, 1, 2, 2}, slow[RANKS] = {1, 1, 2, 6};
    const double alone[RANKS] = {1, 1, 2, 4}, later[RANKS] = {1, 1, 2, 12};
    for (int r = 0; r < RANKS; r++) atomic_store(&rings[r].peers, r / 2);
    tri_straggler *s = tri_straggler_create(&world);
    int64_t step = 0;
    assert_null(run(s, &step, 200, stages, even));
    expect(run(s, &step, 50, slow, even), "rank 3 on host n1 is ");
    tri_straggler_destroy(s);
    for (int r = 0; r < RANKS; r++) atomic_store(&rings[r].peers, r);
    s = tri_straggler_create(&world);
    assert_null(run(s, &step, 200, alone, even));
    const char *line = run(s, &step, 50, later, even);
    expect(line, "rank 3 on host n1 is ");
    expect(line, "times slower than it was before");
    tri_straggler_destroy(s);
}

// A rank of another host tells what it does only every 2.3 s. That is longer than the 50 latest
// steps, over which ranks are compared, usually take together.
static void test_old_news(void **state) {
    const double slow[RANKS] = {1, 1.05, 0.95, 3};
    hidden = rings[RANKS - 1];
    tells_every_ns = 2300000000;
    tri_straggler *s = tri_straggler_create(&world);
    int64_t step = 0;
    assert_null(run(s, &step, 600, alike, even));
    const char *line = run(s, &step, 100, slow, even);
    expect(line, "rank 3 on host n1 is ");
    double percent = atof(strstr(line, "waited for it ") + strlen("waited for it "));
    print_message("%s\n", line);
    assert_true(percent > 40 && percent < 80);
    assert_null(run(s, &step, 600, slow, even)); // the slow rank is reported only once
    expect(run(s, &step, 400, alike, even), "rank 3 on host n1 keeps pace again");
    assert_null(run(s, &step, 600, alike, even));
    tri_straggler_destroy(s);
}

// If steps are short, more than TRI_STRAGGLER_STEPS are compared: as many as take a second.
static void test_short_steps(void **state) {
    const double fast[RANKS] = {0.01, 0.01, 0.01, 0.03};
    tri_straggler *s = tri_straggler_create(&world);
    int64_t step = 0, began_ns = clock_ns;
    expect(run(s, &step, 10000, fast, even), "rank 3");
    assert_true(clock_ns - began_ns >= 1000000000 && step > 1000);
    tri_straggler_destroy(s);
}

static void test_nothing_to_watch(void **state) {
    world.rank = 1;
    assert_null(tri_straggler_create(&world));
    world.rank = 0;
    world.size = 1;
    assert_null(tri_straggler_create(&world));
    assert_null(tri_straggler_look(NULL, 1));
    tri_straggler_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_how_much, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_in_turns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_not_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rank_0_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stages, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_short_steps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_old_news, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_to_watch, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
