// Tests the store (the key-value service at which ranks meet) with several processes: ranks
// connect, wait, store large values, never arrive or are lost, and other clients break the
// protocol.
#include "support/store_ranks.h"

#include "base/limits.h"
#include "rendezvous/store_core.h"
#include "rendezvous/store_unix.h"

#include <sys/un.h>

static void four_ranks_exchange(void **state) {
    pid_t pids[4];
    tri_identity zero = make_identity(0, 4);
    start_ranks(zero, 1, 3, exchange, pids);
    exchange(zero);
    end_ranks(1, 3, pids);
}

static void one_rank_alone(void **state) { exchange(make_identity(0, 1)); }

static void big_value(tri_identity identity) {
    tri_store *store;
    char *data = malloc(TRI_STORE_VALUE_MAX_BYTES + 1);
    size_t size;
    REQUIRE(tri_store_open(&identity, WAIT_MS, &store) == TRI_OK);
    if (identity.rank == 0) {
        for (size_t i = 0; i < TRI_STORE_VALUE_MAX_BYTES; i++) data[i] = (char)(i * 7 + i / 4096);
        REQUIRE(tri_store_set(store, "big", data, TRI_STORE_VALUE_MAX_BYTES + 1) == TRI_INTERNAL);
        REQUIRE(tri_store_set(store, "big", "small", 5) == TRI_OK);
        REQUIRE(tri_store_set(store, "big", data, TRI_STORE_VALUE_MAX_BYTES) == TRI_OK);
        REQUIRE(tri_store_set(store, "ready", "", 0) == TRI_OK);
    } else {
        REQUIRE(tri_store_get(store, "ready", WAIT_MS, NULL, 0, &size) == TRI_OK);
        REQUIRE(tri_store_get(store, "big", WAIT_MS, data, 100, &size) == TRI_INTERNAL);
        // The value was read, so the next call can use the same connection.
        REQUIRE(size == TRI_STORE_VALUE_MAX_BYTES);
        REQUIRE(tri_store_get(store, "big", WAIT_MS, data, TRI_STORE_VALUE_MAX_BYTES, &size) ==
                TRI_OK);
        for (size_t i = 0; i < size; i++) REQUIRE(data[i] == (char)(i * 7 + i / 4096));
        REQUIRE(tri_store_get(store, "never", 50, data, 100, &size) == TRI_TIMEOUT);
        REQUIRE(strstr(tri_error_message(), "never") && strstr(tri_error_message(), "50 ms"));
        int64_t count;
        REQUIRE(tri_store_add(store, "big", 1, &count) == TRI_MISMATCH);
    }
    free(data);
    tri_store_close(store);
}

static void big_values_and_timeouts(void **state) {
    pid_t pids[2];
    tri_identity zero = make_identity(0, 2);
    start_ranks(zero, 1, 1, big_value, pids);
    big_value(zero);
    end_ranks(1, 1, pids);
}

static void misses_rank_2(tri_identity identity) {
    tri_store *store;
    // The other ranks have so long to arrive.
    REQUIRE(tri_store_open(&identity, 3000, &store) == TRI_TIMEOUT);
    REQUIRE(strstr(tri_error_message(), "rank 2 of 4 did not arrive within 3 s"));
}

static void absent_rank_is_named(void **state) {
    pid_t pids[4];
    tri_identity zero = make_identity(0, 4);
    start_ranks(zero, 1, 1, misses_rank_2, pids);
    start_ranks(zero, 3, 3, misses_rank_2, pids);
    misses_rank_2(zero);
    end_ranks(1, 1, pids);
    end_ranks(3, 3, pids);
    // Rank 0 does not arrive either.
    tri_store *store;
    tri_identity one = make_identity(1, 2);
    assert_int_equal(tri_store_open(&one, 100, &store), TRI_TIMEOUT);
    assert_non_null(strstr(tri_error_message(), "rank 0 of 2 did not arrive"));
}

static void agrees_or_fails(tri_identity identity) {
    tri_store *store;
    char value;
    size_t size;
    REQUIRE(tri_store_open(&identity, WAIT_MS, &store) == TRI_OK);
    REQUIRE(tri_store_agree(store, "to begin", WAIT_MS) == TRI_OK);
    double begin = tri_os_seconds();
    if (identity.rank == 2) {
        usleep(100000); // until the others wait, which nothing shows
        tri_status own = TRI_FAIL(TRI_NOT_FOUND, "module ucx is not installed");
        REQUIRE(tri_store_fail(store, own) == TRI_NOT_FOUND);
    } else if (identity.rank == 1) {
        REQUIRE(tri_store_get(store, "of nobody", WAIT_MS, &value, 1, &size) == TRI_NOT_FOUND);
    } else {
        REQUIRE(tri_store_agree(store, "to load", WAIT_MS) == TRI_NOT_FOUND);
    }
    REQUIRE(tri_os_seconds() - begin < 0.001 * WAIT_MS / 2); // by itself it would take WAIT_MS
    REQUIRE(!strncmp(tri_error_message(), "rank 2 (host ", 13));
    REQUIRE(strstr(tri_error_message(), "): module ucx is not installed"));
    // The first reported failure stays the cause. A rank that reports another failure later, such
    // as this consequence of it, gets the first one back.
    tri_status later = TRI_FAIL(TRI_NETWORK, "rank 2 does not answer");
    REQUIRE(tri_store_fail(store, later) == TRI_NOT_FOUND);
    REQUIRE(strstr(tri_error_message(), "): module ucx is not installed"));
    tri_store_close(store);
}

static void failing_rank_ends_waits(void **state) {
    pid_t pids[4];
    start_ranks(make_identity(0, 4), 0, 3, agrees_or_fails, pids);
    end_ranks(0, 3, pids);
}

static void dies(tri_identity identity) {
    tri_store *store;
    REQUIRE(tri_store_open(&identity, WAIT_MS, &store) == TRI_OK);
    raise(SIGKILL);
}

static void lost_rank_ends_waits(void **state) {
    pid_t pids[2];
    tri_identity zero = make_identity(0, 2);
    start_ranks(zero, 1, 1, dies, pids);
    tri_store *store;
    size_t size;
    assert_int_equal(tri_store_open(&zero, WAIT_MS, &store), TRI_OK);
    double start = tri_os_seconds();
    assert_int_equal(tri_store_get(store, "from 1", WAIT_MS, NULL, 0, &size), TRI_PEER_LOST);
    assert_non_null(strstr(tri_error_message(), "rank 1 of 2 was lost"));
    assert_true(tri_os_seconds() - start < 0.001 * WAIT_MS / 2); // by itself: WAIT_MS
    tri_store_close(store);
    int status;
    waitpid(pids[1], &status, 0);
    assert_true(WIFSIGNALED(status));
}

static void dies_when_rank_1_waits(tri_identity identity) {
    tri_store *store;
    size_t size;
    REQUIRE(tri_store_open(&identity, WAIT_MS, &store) == TRI_OK);
    REQUIRE(tri_store_get(store, "here", WAIT_MS, NULL, 0, &size) == TRI_OK);
    usleep(200000); // until rank 1 waits, which nothing shows
    raise(SIGKILL);
}

static void loses_rank_0(tri_identity identity) {
    tri_store *store;
    size_t size;
    REQUIRE(tri_store_open(&identity, WAIT_MS, &store) == TRI_OK);
    REQUIRE(tri_store_set(store, "here", "", 0) == TRI_OK);
    REQUIRE(tri_store_get(store, "nothing", WAIT_MS, NULL, 0, &size) == TRI_PEER_LOST);
    REQUIRE(strstr(tri_error_message(), "rank 0 of 2 ended"));
    REQUIRE(tri_store_set(store, "more", "", 0) == TRI_PEER_LOST);
    tri_store_close(store);
}

static void lost_rank_0_is_named(void **state) {
    pid_t pids[2];
    tri_identity zero = make_identity(0, 2);
    start_ranks(zero, 0, 0, dies_when_rank_1_waits, pids);
    start_ranks(zero, 1, 1, loses_rank_0, pids);
    int status;
    waitpid(pids[0], &status, 0);
    assert_true(WIFSIGNALED(status));
    end_ranks(1, 1, pids);
}

static void rubbish_clients(void **state) {
    pid_t pids[2];
    tri_identity zero = make_identity(0, 2);
    start_ranks(zero, 0, 0, exchange, pids);
    store_head heads[] = {
        {.kind = 0x47455420}, // an unknown kind
        {.kind = STORE_SET, .key_bytes = UINT32_MAX},
        {.kind = STORE_SET, .key_bytes = 1, .value_bytes = UINT32_MAX},
        {.kind = STORE_GET, .key_bytes = 0, .argument = -1}, // a request before HELLO
        {.kind = STORE_HELLO, .number = 1},                  // a HELLO without job and size
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        int fd = -1, tries = 0;
        while (store_unix_connect(&zero, &fd) == TRI_NOT_FOUND && tries++ < 1000) usleep(10000);
        assert_true(fd >= 0);
        assert_int_equal(store_unix_admit(fd), TRI_OK);
        assert_int_equal(write(fd, &heads[i], sizeof heads[i]), sizeof heads[i]);
        char byte;
        assert_int_equal(read(fd, &byte, 1), 0); // the server closed the connection
        close(fd);
    }
    // A client that leaves after half a message does not disturb the job.
    int fd = -1;
    assert_int_equal(store_unix_connect(&zero, &fd), TRI_OK);
    assert_int_equal(write(fd, &heads[1], 5), 5);
    close(fd);
    start_ranks(zero, 1, 1, exchange, pids);
    end_ranks(0, 1, pids);
}

static void meets(tri_identity identity) {
    tri_store *store;
    REQUIRE(tri_store_open(&identity, WAIT_MS, &store) == TRI_OK);
    tri_store_close(store);
}

static void second_rank_of_a_number_is_refused(void **state) {
    pid_t pids[3];
    tri_identity zero = make_identity(0, 3);
    start_ranks(zero, 0, 0, meets, pids);
    // This process plays rank 1 and sends its HELLO itself. So this rank 1 certainly arrives before
    // the second rank 1, which is opened below.
    int fd = -1;
    while (store_unix_connect(&zero, &fd) == TRI_NOT_FOUND) usleep(10000);
    store_hello words = {.size = 3, .total_ms = WAIT_MS};
    store_head head = {STORE_HELLO, (uint32_t)strlen(zero.job), sizeof words, WAIT_MS, 1};
    assert_int_equal(write(fd, &head, sizeof head), sizeof head);
    assert_int_equal(write(fd, zero.job, head.key_bytes), head.key_bytes);
    assert_int_equal(write(fd, &words, sizeof words), sizeof words);
    tri_identity one = zero;
    one.rank = 1;
    tri_store *store;
    // This rank 1 is the second one: the server reads clients in the order in which it accepted
    // them, so it has read the HELLO above first.
    assert_int_equal(tri_store_open(&one, WAIT_MS, &store), TRI_MISMATCH);
    if (!strstr(tri_error_message(), "came twice")) fail_msg("%s", tri_error_message());
    one.rank = 2;
    one.size = 4;
    one.local_size = 4;
    assert_int_equal(tri_store_open(&one, WAIT_MS, &store), TRI_MISMATCH);
    assert_non_null(strstr(tri_error_message(), "which has 4 ranks"));
    start_ranks(zero, 2, 2, meets, pids);
    int32_t hosts[3];
    assert_int_equal(read(fd, &head, sizeof head), sizeof head);
    assert_int_equal(head.argument, TRI_OK);
    assert_int_equal(head.value_bytes, sizeof hosts);
    assert_int_equal(read(fd, hosts, sizeof hosts), sizeof hosts);
    // Rank 1 gave no name of a host above, so it counts as on a host of its own.
    assert_true(hosts[0] == 0 && hosts[1] == 1 && hosts[2] == 0);
    head = (store_head){.kind = STORE_BYE};
    assert_int_equal(write(fd, &head, sizeof head), sizeof head);
    close(fd);
    end_ranks(0, 0, pids);
    end_ranks(2, 2, pids);
}

// Starts a process of another user that takes the job's address. `listens`: it listens there but
// accepts no connection; false: it does not even listen.
static pid_t squat(const tri_identity *identity, bool listens) {
    int ends[2];
    char byte = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int used = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "trireme-store/%s",
                            identity->job);
        socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        REQUIRE(setresuid(65534, 65534, 65534) == 0);
        REQUIRE(bind(fd, (struct sockaddr *)&address, size) == 0);
        REQUIRE(!listens || listen(fd, 0) == 0);
        REQUIRE(write(ends[1], &byte, 1) == 1);
        for (;;) pause();
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static void another_user_is_named(void **state) {
    if (geteuid() != 0) {
        print_message("skipped: only root can be another user\n");
        skip();
    }
    for (int rank = 0; rank < 2; rank++) {
        tri_identity zero = make_identity(0, 2);
        tri_identity identity = zero;
        tri_store *store;
        identity.rank = identity.local_rank = rank;
        pid_t pid = squat(&zero, true);
        assert_int_equal(tri_store_open(&identity, WAIT_MS, &store), TRI_BAD_INPUT);
        char who[64];
        snprintf(who, sizeof who, "process %ld of another user (65534", (long)pid);
        if (!strstr(tri_error_message(), who)) fail_msg("rank %d: %s", rank, tri_error_message());
        // The other user's process accepts no connection, so its listen queue is full. Connecting
        // then fails instead of waiting for ever, and rank 0 cannot serve.
        for (int i = 0; i < 3; i++) {
            tri_status status = tri_store_open(&identity, 200, &store);
            assert_true(status == TRI_BAD_INPUT || status == TRI_TIMEOUT || status == TRI_MISMATCH);
        }
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    tri_identity zero = make_identity(0, 2);
    tri_store *store;
    pid_t pid = squat(&zero, false);
    assert_int_equal(tri_store_open(&zero, 200, &store), TRI_MISMATCH);
    assert_non_null(strstr(tri_error_message(), "rank 0: another job"));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void unknown_address_is_refused(void **state) {
    tri_identity identity = make_identity(0, 4);
    identity.local_size = 2;
    tri_store *store;
    assert_int_equal(tri_store_open(&identity, 100, &store), TRI_BAD_INPUT);
    assert_non_null(strstr(tri_error_message(), "2 of the job's 4 ranks"));
    assert_non_null(strstr(tri_error_message(), "TRIREME_STORE"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_alone),
        cmocka_unit_test(four_ranks_exchange),
        cmocka_unit_test(big_values_and_timeouts),
        cmocka_unit_test(absent_rank_is_named),
        cmocka_unit_test(failing_rank_ends_waits),
        cmocka_unit_test(lost_rank_ends_waits),
        cmocka_unit_test(lost_rank_0_is_named),
        cmocka_unit_test(rubbish_clients),
        cmocka_unit_test(second_rank_of_a_number_is_refused),
        cmocka_unit_test(another_user_is_named),
        cmocka_unit_test(unknown_address_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
