// Tests what is reported of ranks that make no progress, as seen in their ledgers: the records of
// what each rank does. Here the test writes the ledgers, and sets the time.
#include "base/limits.h"
#include "observe/liveness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, TIMEOUT_S = 60 };

static tri_ledger *ledgers[RANKS];
static char aborted[512];

static const tri_ledger_ring *ring_of(tri_comm *comm, int rank) {
    return tri_ledger_ring_of(ledgers[rank]);
}

static void note_abort(tri_comm *comm, const char *why) {
    snprintf(aborted, sizeof aborted, "%s", why);
}

static const tri_comm_backend backend = {.name = "fake", .abort = note_abort, .ledger_of = ring_of};

static const char *const moving = "FORWARD";

static void move(int rank) {
    tri_ledger_end(ledgers[rank], tri_ledger_enter(ledgers[rank], moving, "block1"));
}

static void wait_in(int rank) {
    tri_ledger_begin(ledgers[rank], &(tri_ledger_action){.kind = TRI_LEDGER_WAIT, .label = "NORM"});
}

typedef struct test_case {
    tri_comm comm;
    tri_liveness *liveness;
    double now_s;
} test_case;

static void open_case(test_case *c, int ranks) {
    *c = (test_case){.comm = {.backend = &backend, .size = ranks}, .now_s = 1000};
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(tri_ledger_open(NULL, &ledgers[r]), TRI_OK);
        tri_ledger_step(ledgers[r], 7);
    }
    const tri_liveness_config config = {.comm = &c->comm, .timeout_s = TIMEOUT_S};
    assert_int_equal(tri_liveness_create(&config, &c->liveness), TRI_OK);
    aborted[0] = 0;
}

static void close_case(test_case *c) {
    tri_liveness_destroy(c->liveness);
    for (int r = 0; r < c->comm.size; r++) tri_ledger_close(ledgers[r]);
}

// Looks at all ranks every half second, for `seconds`, while only rank `mover` makes progress (-1:
// none does). Returns all lines that were reported, joined.
static const char *look_for(test_case *c, double seconds, int mover) {
    static char lines[4096];
    lines[0] = 0;
    for (double end = c->now_s + seconds; c->now_s < end; c->now_s += 0.5) {
        if (mover >= 0) move(mover);
        const char *line = tri_liveness_look(c->liveness, (int64_t)(c->now_s * 1e9));
        size_t used = strlen(lines);
        if (line) snprintf(lines + used, sizeof lines - used, "%s\n", line);
    }
    return lines;
}

static void expect_one(const char *lines, const char *begin, const char *part) {
    if (strncmp(lines, begin, strlen(begin)) != 0 || !strstr(lines, part))
        fail_msg("not '%s … %s': %s", begin, part, lines);
    assert_ptr_equal(strchr(lines, '\n'), lines + strlen(lines) - 1);
}

static void test_one_stands_still(void **state) {
    test_case c;
    char begin[256];
    open_case(&c, RANKS);
    snprintf(begin, sizeof begin,
             "rank 1 (%s) does not move for 10 s: it is in loading data of "
             "step 7; rank 0 waits in FORWARD",
             tri_ledger_ring_of(ledgers[1])->host);
    tri_ledger_enter(ledgers[0], moving, "block2");
    wait_in(0);
    wait_in(2);
    tri_ledger_mark loading = tri_ledger_enter(ledgers[1], "loading data", NULL);
    assert_string_equal(look_for(&c, 9.5, -1), "");
    expect_one(look_for(&c, TIMEOUT_S - 15, -1), begin, "comm.timeout_s");
    assert_string_equal(aborted, "");
    // The rank makes progress and then stops again: that gives another line.
    tri_ledger_end(ledgers[1], loading);
    assert_string_equal(look_for(&c, 30, 1), "");
    tri_ledger_enter(ledgers[1], "loading data", NULL);
    expect_one(look_for(&c, 30, -1), begin, "comm.timeout_s");
    close_case(&c);
}

// A rank that waits for another is not reported, and neither is one for which nobody waits.
static void test_nobody_to_name(void **state) {
    test_case c;
    open_case(&c, RANKS);
    for (int r = 0; r < RANKS; r++) wait_in(r);
    assert_string_equal(look_for(&c, 40, -1), "");
    close_case(&c);
    open_case(&c, RANKS);
    tri_ledger_enter(ledgers[1], moving, "a long kernel");
    assert_string_equal(look_for(&c, 2 * TIMEOUT_S, 0), "");
    close_case(&c);
    open_case(&c, RANKS); // no rank has an open action, as when all have ended their work
    assert_string_equal(look_for(&c, 2 * TIMEOUT_S, -1), "");
    assert_string_equal(aborted, "");
    close_case(&c);
}

// A rank is named when other ranks wait for it, even if it has not recorded any action.
static void test_between_actions(void **state) {
    test_case c;
    open_case(&c, RANKS);
    wait_in(0);
    move(2);
    wait_in(2);
    expect_one(look_for(&c, 20, -1), "rank 1 (", "before its first action");
    close_case(&c);
}

// Checks that rank 0 ends the run if no rank moves and none waits for another one: at the time
// limit, not before.
static void test_none_moves(void **state) {
    test_case c;
    open_case(&c, 2);
    for (int r = 0; r < 2; r++) tri_ledger_enter(ledgers[r], "opening data", NULL);
    expect_one(look_for(&c, TIMEOUT_S - 1, -1), "rank 0 (", "no other rank moves");
    assert_string_equal(aborted, "");
    assert_string_equal(look_for(&c, 5, -1), "");
    assert_non_null(strstr(aborted, "did not move for 60 s (comm.timeout_s)"));
    assert_non_null(strstr(aborted, "opening data"));
    close_case(&c);
}

// Checks that an hour in which all ranks were suspended together, by a shell's job control for
// example, does not count as an hour without progress.
static void test_pause(void **state) {
    test_case c;
    open_case(&c, 2);
    tri_ledger_enter(ledgers[1], moving, "block1");
    wait_in(0);
    assert_string_equal(look_for(&c, 5, -1), "");
    c.now_s += 3600;
    assert_string_equal(look_for(&c, 9.5, -1), "");
    expect_one(look_for(&c, 5, -1), "rank 1 (", "FORWARD 'block1'");
    assert_string_equal(aborted, "");
    close_case(&c);
}

// A rank's current action can still be named when many actions that run beside it (here those of
// storage) have begun and ended since.
static void test_long_action(void **state) {
    test_case c;
    open_case(&c, 2);
    int lane = tri_ledger_lane(ledgers[1], "storage");
    tri_ledger_enter(ledgers[1], "SAVE", "a checkpoint");
    for (int i = 0; i < 2 * TRI_LEDGER_EVENTS; i++)
        tri_ledger_end(
            ledgers[1],
            tri_ledger_begin(ledgers[1], &(tri_ledger_action){.kind = "write", .lane = lane}));
    wait_in(0);
    expect_one(look_for(&c, 20, -1), "rank 1 (", "it is in SAVE 'a checkpoint'");
    close_case(&c);
}

static void test_alone(void **state) {
    test_case c;
    open_case(&c, 1);
    assert_null(c.liveness);
    close_case(&c);
}

// How many calls of calloc succeed before one fails; -1: all do.
static int callocs_left = -1;

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_calloc(size_t count, size_t size) {
    if (callocs_left >= 0 && callocs_left-- == 0) return NULL;
    return __real_calloc(count, size);
}

// If there is no memory for watching the ranks, tri_liveness_create fails. It does not return
// TRI_OK and NULL, which would mean that there is nothing to watch.
static void test_no_memory(void **state) {
    for (int left = 0; left < 2; left++) {
        test_case c;
        open_case(&c, RANKS);
        tri_liveness *liveness;
        callocs_left = left;
        tri_status status = tri_liveness_create(&(tri_liveness_config){.comm = &c.comm}, &liveness);
        callocs_left = -1;
        assert_int_equal(status, TRI_NO_MEMORY);
        assert_null(liveness);
        close_case(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_stands_still),
        cmocka_unit_test(test_nobody_to_name),
        cmocka_unit_test(test_between_actions),
        cmocka_unit_test(test_none_moves),
        cmocka_unit_test(test_pause),
        cmocka_unit_test(test_long_action),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
