// Tests a store that a launcher (an agent) serves: it outlives the ranks, the next start of the run
// (generation) finds it empty, and what is left of an earlier start can change nothing.
#include "support/store_ranks.h"

#include "rendezvous/health.h"
#include "rendezvous/serve.h"
#include "support/message.h"

#include <stdatomic.h>
#include <sys/mman.h>

// What the processes of a test tell each other: the store's port; how many ranks have arrived, were
// replaced or are done; whether the second start has begun; whether the test is over; an error
// message.
typedef struct board {
    _Atomic int port, arrived, began, replaced, done, over;
    char text[512];
} board;

static board *shared;

static tri_identity make_generation(int generation, int size, int port) {
    tri_identity identity = make_tcp_identity(0, size, port);
    identity.generation = generation;
    snprintf(identity.run, sizeof identity.run, "a run");
    snprintf(identity.job, sizeof identity.job, "job %d", generation);
    return identity;
}

static void on_loss(void *context, int rank, const char *text) {
    snprintf(shared->text, sizeof shared->text, "%s", text);
    atomic_fetch_add(&shared->replaced, 1);
}

// A rank that is left behind: it wants to commit after the run has been started again.
static void is_left_behind(tri_identity me) {
    tri_store *store;
    tri_health *health;
    REQUIRE(tri_store_open(&me, WAIT_MS, &store) == TRI_OK);
    REQUIRE(tri_store_set(store, "old", "value", 5) == TRI_OK);
    tri_health_config config = {.on_loss = on_loss};
    REQUIRE(tri_health_start(store, &config, &health) == TRI_OK);
    REQUIRE(tri_health_admit(health) == TRI_OK);
    atomic_fetch_add(&shared->arrived, 1);
    wait_for_count(&shared->began, 1);
    wait_for_count(&shared->replaced, 1);
    REQUIRE(tri_health_admit(health) == TRI_MISMATCH);
    REQUIRE(message_has(tri_error_message(), "rank|generation 0|generation 1"));
    tri_health_stop(health);
    REQUIRE(tri_store_open(&me, WAIT_MS, &store) == TRI_MISMATCH);
    atomic_fetch_add(&shared->done, 1);
}

static void finds_it_empty(tri_identity me) {
    tri_store *store;
    size_t size;
    char value[8];
    REQUIRE(tri_store_open(&me, WAIT_MS, &store) == TRI_OK);
    REQUIRE(tri_store_get(store, "old", 50, value, sizeof value, &size) == TRI_TIMEOUT);
    REQUIRE(tri_store_admit(store) == TRI_OK);
    wait_for_count(&shared->done, 2); // both ranks of the earlier start have tried to join
    REQUIRE(tri_store_admit(store) == TRI_OK);
    tri_store_close(store);
}

// The body of the launcher that serves (the agent), which is a process of its own: if the test
// itself served the store, the ranks that it forks would inherit the server's connections.
static void serves_two_generations(tri_identity first) {
    tri_store_server *server;
    REQUIRE(tri_store_serve(&first, &server) == TRI_OK);
    atomic_store(&shared->port, tri_store_server_port(server));
    wait_for_count(&shared->arrived, 2);
    tri_identity second = make_generation(1, 3, first.address.port);
    tri_store_server_begin(server, &second);
    atomic_store(&shared->began, 1);
    wait_for_count(&shared->over, 1);
    tri_store_server_end(server);
}

static int start_agent(rank_body *body, pid_t *agent) {
    memset(shared, 0, sizeof *shared);
    *agent = start_rank(make_generation(0, 2, 0), body);
    wait_for_count(&shared->port, 1);
    return atomic_load(&shared->port);
}

static void generations_follow_each_other(void **state) {
    pid_t agent, old[2], new[3];
    int port = start_agent(serves_two_generations, &agent);
    start_ranks(make_generation(0, 2, port), 0, 1, is_left_behind, old);
    start_ranks(make_generation(1, 3, port), 0, 2, finds_it_empty, new);
    end_ranks(0, 1, old);
    end_ranks(0, 2, new);
    assert_non_null(strstr(shared->text, "newer generation"));
    atomic_store(&shared->over, 1);
    end_ranks(0, 0, &agent);
}

// If the launcher that serves the store (the agent) dies, the message says so and names no rank as
// lost.
static void outlives_the_agent(tri_identity me) {
    tri_store *store;
    tri_health *health;
    tri_ledger *ledger;
    REQUIRE(tri_ledger_open(NULL, &ledger) == TRI_OK);
    REQUIRE(tri_store_open(&me, WAIT_MS, &store) == TRI_OK);
    tri_health_config config = {.ring = tri_ledger_ring_of(ledger), .on_loss = on_loss};
    REQUIRE(tri_health_start(store, &config, &health) == TRI_OK);
    tri_ledger_step(ledger, 7);
    hear_of_step(health, 1 - me.rank, 7); // the server's first answer said that an agent serves
    atomic_fetch_add(&shared->arrived, 1);
    wait_for_count(&shared->replaced, me.size);
    REQUIRE(
        strstr(shared->text, "the launcher's agent at 127.0.0.1, which serves the store, died"));
    REQUIRE(tri_health_admit(health) == TRI_PEER_LOST);
    tri_health_stop(health);
    tri_ledger_close(ledger);
}

static void serve_until_killed(tri_identity identity) {
    tri_store_server *server;
    REQUIRE(tri_store_serve(&identity, &server) == TRI_OK);
    atomic_store(&shared->port, tri_store_server_port(server));
    for (;;) pause();
}

static void dead_agent_is_named(void **state) {
    pid_t agent, pids[2];
    int port = start_agent(serve_until_killed, &agent);
    start_ranks(make_generation(0, 2, port), 0, 1, outlives_the_agent, pids);
    wait_for_count(&shared->arrived, 2);
    kill(agent, SIGKILL);
    waitpid(agent, NULL, 0);
    end_ranks(0, 1, pids);
}

static int set_up(void **state) {
    setenv("TRIREME_TOKEN", "a token for the tests", 1);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generations_follow_each_other),
        cmocka_unit_test(dead_agent_is_named),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
