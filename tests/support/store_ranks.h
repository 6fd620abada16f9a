// Helpers for tests of the store (the key-value service at which ranks meet) with several
// processes: a test forks one process for each rank. The process exits with 0, or with 1 if a check
// (REQUIRE) fails in it.
#ifndef TRIREME_TESTS_STORE_RANKS_H
#define TRIREME_TESTS_STORE_RANKS_H

#include "base/os.h"
#include "rendezvous/health.h"
#include "rendezvous/rendezvous.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    WAIT_MS = 60000,
    SOON_S = 60, // far longer than anything that is waited for takes, on a busy machine too
};

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank process: %s fails (%s:%d): %s\n", #condition, __FILE__,          \
                    __LINE__, tri_error_message());                                                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static char store_folder[64]; // a temporary folder that all tests of one test program share

static inline int store_set_up(void **state) {
    snprintf(store_folder, sizeof store_folder, "/tmp/test-store-XXXXXX");
    setenv("TRIREME_TOKEN", "a token for the tests", 1);
    return mkdtemp(store_folder) ? 0 : -1;
}

static inline int store_tear_down(void **state) {
    return tri_os_remove_tree(store_folder) == TRI_OK ? 0 : -1;
}

typedef void rank_body(tri_identity identity);

// Makes the identity of a rank. A call for rank 0 begins a new job; calls for other ranks belong to
// the same job.
static inline tri_identity make_identity(int rank, int size) {
    static int job;
    tri_identity identity = {.launcher = "test",
                             .rank = rank,
                             .size = size,
                             .local_rank = rank,
                             .local_size = size,
                             .host = "here"};
    snprintf(identity.job, sizeof identity.job, "test-%ld-%d", (long)getpid(), job += rank == 0);
    return identity;
}

// Refuses connections to unix sockets. make_tcp_identity sets tri_os.connect to this function, so
// that this process and the processes that it forks find the store over TCP only, at a port of
// 127.0.0.1.
static inline int connect_by_tcp(int fd, const struct sockaddr *address, socklen_t size) {
    if (address->sa_family != AF_UNIX) return connect(fd, address, size);
    errno = ECONNREFUSED;
    return -1;
}

static inline tri_identity make_tcp_identity(int rank, int size, int port) {
    tri_identity identity = make_identity(rank, size);
    identity.local_size = 0;
    identity.address = (tri_store_address){.host = "127.0.0.1",
                                           .port = port,
                                           .ports = 1,
                                           .is_exact = true,
                                           .source = "TRIREME_STORE",
                                           .port_source = "TRIREME_STORE"};
    tri_os.connect = connect_by_tcp;
    return identity;
}

static inline pid_t start_rank(tri_identity identity, rank_body *body) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body(identity);
    _exit(0);
}

static inline void start_ranks(tri_identity zero, int first, int last, rank_body *body,
                               pid_t *pids) {
    for (int r = first; r <= last; r++) {
        zero.rank = zero.local_rank = r;
        pids[r] = start_rank(zero, body);
    }
}

static inline void end_ranks(int first, int last, const pid_t *pids) {
    for (int r = first; r <= last; r++) {
        int status;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, 0);
    }
}

// Waits for a counter in memory that the ranks share.
static inline void wait_for_count(_Atomic int *counter, int count) {
    double begun = tri_os_seconds();
    while (atomic_load(counter) < count && tri_os_seconds() - begun < SOON_S) usleep(2000);
    REQUIRE(atomic_load(counter) >= count);
}

// Waits until this rank has a beat of another rank with this step. It asks for the beat, and as
// long as the server has none of that step, the answer is older, or empty.
static inline void hear_of_step(tri_health *health, int rank, int step) {
    const tri_ledger_ring *ring = tri_health_ring(health, rank);
    double begun = tri_os_seconds();
    for (; atomic_load(&ring->step) != step && tri_os_seconds() - begun < SOON_S; usleep(10000))
        tri_health_ask(health, rank);
    REQUIRE(atomic_load(&ring->step) == step);
}

// Sets a key of this rank, checks the values that all ranks have set, and adds to a counter of all
// ranks.
static inline void exchange(tri_identity identity) {
    tri_store *store;
    REQUIRE(tri_store_open(&identity, WAIT_MS, &store) == TRI_OK);
    char key[32], text[64];
    size_t size;
    int length = snprintf(text, sizeof text, "address of %d", identity.rank);
    snprintf(key, sizeof key, "rank/%d", identity.rank);
    REQUIRE(tri_store_set(store, key, text, (size_t)length) == TRI_OK);
    for (int r = 0; r < identity.size; r++) {
        char expected[64];
        snprintf(key, sizeof key, "rank/%d", r);
        snprintf(expected, sizeof expected, "address of %d", r);
        REQUIRE(tri_store_get(store, key, WAIT_MS, text, sizeof text, &size) == TRI_OK);
        REQUIRE(size == strlen(expected) && !memcmp(text, expected, size));
    }
    int64_t count;
    for (int i = 0; i < 50; i++)
        REQUIRE(tri_store_add(store, "count", identity.rank, &count) == TRI_OK);
    REQUIRE(tri_store_add(store, "done", 1, &count) == TRI_OK);
    if (count == identity.size) REQUIRE(tri_store_set(store, "all done", "", 0) == TRI_OK);
    REQUIRE(tri_store_get(store, "all done", WAIT_MS, NULL, 0, &size) == TRI_OK && size == 0);
    REQUIRE(tri_store_add(store, "count", 0, &count) == TRI_OK);
    REQUIRE(count == 50 * identity.size * (identity.size - 1) / 2);
    tri_store_close(store);
}

#endif
