// Tests with which status a rank ends if another rank has failed. In particular, if one rank has
// bad input, all ranks end with the status for bad input.
#include "train/tell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char told[TRI_MESSAGE_MAX_BYTES];

static void keep(tri_comm *comm, const char *why) { snprintf(told, sizeof told, "%s", why); }

static const tri_comm_backend backend = {.name = "test", .abort = keep};
static tri_comm comm = {.backend = &backend, .size = 2};

// Rank 1 fails with this status and message, and tells rank 0. Returns the status with which rank 0
// then ends; TRI_OK: rank 1 told it nothing.
static tri_status pass_on(tri_status status, const char *why) {
    tri_identity one = {.rank = 1, .size = 2, .host = "b"}, zero = {.size = 2, .host = "a"};
    told[0] = 0;
    assert_int_equal(tri_tell_failure(&comm, &one, TRI_FAIL(status, "%s", why)), status);
    assert_string_equal(tri_error_message(), why);
    if (!told[0]) return TRI_OK;
    char text[TRI_MESSAGE_MAX_BYTES];
    snprintf(text, sizeof text, "%s", told);
    told[0] = 0;
    return tri_tell_failure(&comm, &zero, TRI_FAIL(TRI_PEER_LOST, "%s", text));
}

static void bad_input_stays_bad_input(void **state) {
    assert_int_equal(pass_on(TRI_CORRUPT, "x.npy: sample 7 is damaged"), TRI_REFUSED);
    assert_string_equal(tri_error_message(),
                        "rank 1 (host b): bad input: x.npy: sample 7 is damaged");
    // Rank 0 has aborted the communicator too, so that no rank waits for another one.
    assert_string_equal(told, tri_error_message());
    assert_int_equal(tri_status_exit_code(TRI_REFUSED), 2);
}

// A rank that ends with TRI_REFUSED has learned that some rank has bad input. It passes this on, as
// bad input, to the ranks that have not learned it yet.
static void hearsay_stays_bad_input(void **state) {
    assert_int_equal(pass_on(TRI_REFUSED, "rank 1: x.npy: damaged"), TRI_REFUSED);
    assert_string_equal(tri_error_message(), "rank 1: bad input: x.npy: damaged");
}

static void other_failures_lose_the_rank(void **state) {
    assert_int_equal(pass_on(TRI_NO_MEMORY, "no memory"), TRI_PEER_LOST);
    assert_string_equal(tri_error_message(), "rank 1 (host b): no memory");
    assert_int_equal(pass_on(TRI_TIMEOUT, "rank 0 does not answer"), TRI_PEER_LOST);
    assert_string_equal(tri_error_message(), "rank 0 does not answer");
}

static void what_all_ranks_find_is_not_told(void **state) {
    assert_int_equal(pass_on(TRI_STOPPED, "stopped"), TRI_OK);
    assert_int_equal(pass_on(TRI_NOT_FINITE, "loss"), TRI_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_input_stays_bad_input),
        cmocka_unit_test(hearsay_stays_bad_input),
        cmocka_unit_test(other_failures_lose_the_rank),
        cmocka_unit_test(what_all_ranks_find_is_not_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
