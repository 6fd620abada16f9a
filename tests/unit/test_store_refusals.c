// Tests what the store's server does if ranks end with exit code 2 (refusals): which reason it
// chooses for the one line that is printed, which rank prints that line, and when the other ranks
// get it.
#include "rendezvous/store_refusals.h"

#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t ms = 1000000;
static store_refusals refusals;
static int64_t now;

static void begin(int size, bool has_agent) {
    store_refusals_create(&refusals, size);
    refusals.has_agent = has_agent;
    now = 5000 * ms;
}

// Lets rank `rank` tell the store, over connection 100 + `rank`, why it refuses to run; `reason`
// NULL: it has no reason of its own.
static bool tell(int rank, const char *reason, bool is_printed) {
    struct {
        store_refusal body;
        char text[256];
    } value = {.body = {.size = refusals.size, .has_reason = reason != NULL}};
    value.body.is_printed = is_printed;
    snprintf(value.body.host, sizeof value.body.host, "node%d", rank / 2 + 1);
    snprintf(value.text, sizeof value.text, "%s", reason ? reason : "rank 9 said something");
    store_head head = {.kind = STORE_REFUSE,
                       .value_bytes = (uint32_t)(sizeof value.body + strlen(value.text)),
                       .argument = TRI_REFUSAL_LOOK_MS,
                       .number = rank};
    return store_refusals_take(&refusals, rank + 100, &head, (const char *)&value, now);
}

static void expect_answer(int rank, tri_status status, bool speaks, const char *text) {
    store_refusal_answer answer;
    int64_t next;
    assert_int_equal(store_refusals_next(&refusals, now, &answer, &next), rank + 100);
    assert_int_equal(answer.status, status);
    assert_int_equal(answer.speaks, speaks);
    if (text) assert_string_equal(answer.text, text);
}

// Checks that no rank is answered now. Returns after how many milliseconds store_refusals_next has
// to be called again; -1: not at all.
static int64_t expect_none(void) {
    store_refusal_answer answer;
    int64_t next;
    assert_int_equal(store_refusals_next(&refusals, now, &answer, &next), -1);
    return next == INT64_MAX ? -1 : (next - now) / ms;
}

static void one_reason_of_all_is_told_without_ranks(void **state) {
    begin(3, false);
    for (int rank = 2; rank >= 0; rank--) {
        expect_none();
        assert_true(tell(rank, "no such key", false));
    }
    expect_answer(0, TRI_OK, true, "no such key");
    // Ranks 1 and 2 are answered once rank 0 has printed the line, at the latest after this time.
    assert_int_equal(expect_none(), TRI_REFUSAL_SPEAK_MS);
    store_refusals_leave(&refusals, 100);
    for (int i = 0; i < 2; i++) {
        store_refusal_answer answer;
        int64_t next;
        assert_true(store_refusals_next(&refusals, now, &answer, &next) > 100);
        assert_true(answer.status == TRI_OK && !answer.speaks);
    }
    assert_false(store_refusals_are_open(&refusals));
    store_refusals_destroy(&refusals);
}

static void reason_of_one_names_it(void **state) {
    begin(4, false);
    tell(3, "no such file", false);
    assert_string_equal(store_refusals_text(&refusals), "no such file");
    for (int rank = 0; rank < 3; rank++) tell(rank, NULL, false);
    expect_answer(0, TRI_OK, true, "rank 3 (host node2): no such file");
    store_refusals_destroy(&refusals);

    begin(4, false);
    for (int rank = 3; rank >= 0; rank--) tell(rank, rank > 1 ? "no such file" : NULL, false);
    expect_answer(0, TRI_OK, true, "rank 2 (host node2) and 1 rank more: no such file");
    store_refusals_destroy(&refusals);

    begin(2, false);
    for (int rank = 0; rank < 2; rank++) tell(rank, rank ? "b" : "a", false);
    expect_answer(0, TRI_OK, true, "rank 0 (host node1), of 2 ranks that refuse: a");
    store_refusals_destroy(&refusals);

    begin(2, false);
    for (int rank = 0; rank < 2; rank++) tell(rank, rank ? "rank 1 (host b) has 2" : NULL, false);
    expect_answer(0, TRI_OK, true, "rank 1 (host b) has 2");
    store_refusals_destroy(&refusals);
}

// A rank that never arrives does not delay for long the line that tells why ranks end. But no rank
// gets the line before rank 0, which serves the store here, ends too.
static void missing_ranks_are_waited_for_in_vain(void **state) {
    begin(3, false);
    tell(1, "no such file", false);
    now += (TRI_REFUSAL_GATHER_MS + 1) * ms;
    expect_none();
    now = 5000 * ms + TRI_REFUSAL_LOOK_MS * ms;
    expect_answer(1, TRI_TIMEOUT, false, NULL);
    assert_true(tell(1, "no such file", true)); // rank 1 has printed its own line
    assert_true(tell(0, NULL, false));
    expect_answer(0, TRI_OK, false, "rank 1 (host node1): no such file");
    now += TRI_REFUSAL_SPEAK_MS * ms;
    expect_answer(1, TRI_OK, false, NULL);
    assert_true(store_refusals_are_open(&refusals)); // rank 2 may still come
    assert_true(tell(2, NULL, false));
    expect_answer(2, TRI_OK, false, NULL);
    assert_false(store_refusals_are_open(&refusals));
    store_refusals_destroy(&refusals);
}

static void agent_answers_without_rank_0(void **state) {
    begin(3, true);
    tell(2, "no such file", false);
    tell(1, NULL, false);
    assert_int_equal(expect_none(), TRI_REFUSAL_GATHER_MS);
    now += TRI_REFUSAL_GATHER_MS * ms;
    expect_answer(1, TRI_OK, true, "rank 2 (host node2): no such file");
    store_refusals_leave(&refusals, 101); // rank 1, which printed
    expect_answer(2, TRI_OK, false, NULL);
    store_refusals_destroy(&refusals);
}

static void speaker_that_is_lost_holds_up_nobody(void **state) {
    begin(2, false);
    for (int rank = 0; rank < 2; rank++) tell(rank, "a", false);
    expect_answer(0, TRI_OK, true, "a");
    store_refusals_leave(&refusals, 100);
    expect_answer(1, TRI_OK, false, "a");
    store_refusals_destroy(&refusals);
}

static void nonsense_is_refused(void **state) {
    begin(2, false);
    store_head head = {.kind = STORE_REFUSE, .number = 0, .value_bytes = 4};
    assert_false(store_refusals_take(&refusals, 1, &head, "abc", now));
    assert_false(tell(2, "a", false));
    assert_false(tell(-1, "a", false));
    assert_true(tell(1, "a", false));
    assert_false(tell(1, "a", false)); // again, although the first refusal has no answer yet
    store_refusals_destroy(&refusals);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_reason_of_all_is_told_without_ranks),
        cmocka_unit_test(reason_of_one_names_it),
        cmocka_unit_test(missing_ranks_are_waited_for_in_vain),
        cmocka_unit_test(agent_answers_without_rank_0),
        cmocka_unit_test(speaker_that_is_lost_holds_up_nobody),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
