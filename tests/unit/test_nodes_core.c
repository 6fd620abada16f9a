// Tests what the serving agent of a run over several nodes decides, for chosen and for random
// orders of events. An agent is the launcher of one node, and the serving agent, here agent 0,
// decides for all nodes. A round is one start of the workers (the ranks' processes) on all nodes.
#include "launch/nodes_core.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { AGENTS = 8 };
static const int64_t second = 1000000000;

// By agent (the launcher of a node). told: the latest message to it that is neither a BEAT nor a
// STOP. stop: the latest STOP.
static nodes_message told[AGENTS], stop[AGENTS];
static int64_t now;
static nodes_core *core;

static void keep(void *context, int agent, const nodes_message *message) {
    if (message->head.kind == NODES_STOP)
        stop[agent] = *message;
    else if (message->head.kind != NODES_BEAT)
        memcpy(&told[agent], message, nodes_message_bytes(message->head.kind));
}

static tri_status publish(void *context, int round, const nodes_join *first, nodes_round *out) {
    snprintf(out->master_addr, sizeof out->master_addr, "%s", first->host);
    out->master_port = out->store_port = 1234;
    return TRI_OK;
}

static void begin(int min, int max, int restarts) {
    nodes_rules rules = {.nodes_min = min,
                         .nodes_max = max,
                         .max_restarts = restarts,
                         .join_timeout_s = 600,
                         .last_call_s = 30,
                         .silence_s = 15,
                         .send = keep,
                         .publish = publish};
    memset(told, 0, sizeof told);
    memset(stop, 0, sizeof stop);
    now = 1000 * second;
    core = nodes_core_create(&rules, now);
}

static bool say(int agent, nodes_message message, nodes_kind kind) {
    message.head = (nodes_head){.kind = kind, .round = told[agent].head.round};
    assert_int_equal(nodes_message_check(&message), TRI_OK);
    return nodes_core_receive(core, agent, &message, now);
}

// Lets agent number `agent` (the launcher of a node) connect and join the run. Agent 0 is the one
// that serves the other agents and decides for them.
static void join(int agent, int min, int max, int workers) {
    nodes_message message = {.join = {.version = NODES_VERSION,
                                      .workers = workers,
                                      .nodes_min = min,
                                      .nodes_max = max,
                                      .is_serving = agent == 0}};
    snprintf(message.join.host, sizeof message.join.host, "host%d", agent);
    assert_int_equal(nodes_core_arrive(core, now), agent);
    assert_true(say(agent, message, NODES_JOIN));
}

static void end(int agent, nodes_outcome outcome) {
    assert_true(say(agent, (nodes_message){.report = {.outcome = outcome}}, NODES_REPORT));
}

static void fail_worker(int agent, double seconds, int flags) {
    nodes_message message = {
        .report = {.outcome = NODES_FAILED, .failed = 1, .cause = {.seconds = seconds}}};
    message.report.cause.flags = flags;
    snprintf(message.report.name, sizeof message.report.name, "rank of %d", agent);
    snprintf(message.report.text, sizeof message.report.text, "  text of %d\n", agent);
    assert_true(say(agent, message, NODES_REPORT));
}

static void expire(void) {
    int silent;
    nodes_core_expire(core, now, &silent);
    assert_int_equal(silent, NODES_NOBODY);
}

static void expect_round(int agent, int round, int group_rank, int size, int restarts) {
    assert_int_equal(told[agent].head.kind, NODES_ROUND);
    assert_int_equal(told[agent].head.round, round);
    assert_int_equal(told[agent].round.group_rank, group_rank);
    assert_int_equal(told[agent].round.group_size, size);
    assert_int_equal(told[agent].round.restarts, restarts);
}

static void expect_end(int agent, int code, const char *text) {
    assert_int_equal(told[agent].head.kind, NODES_END);
    assert_int_equal(told[agent].order.code, code);
    if (!strstr(told[agent].order.text, text))
        fail_msg("'%s' is not in '%s'", text, told[agent].order.text);
}

static void earliest_failure_is_the_cause(void **state) {
    begin(3, 3, 1);
    for (int i = 0; i < 3; i++) join(i, 3, 3, 2);
    for (int i = 0; i < 3; i++) expect_round(i, 0, i, 3, 0);
    fail_worker(1, 105, 0);
    assert_string_equal(stop[2].order.text, "rank of 1 failed");
    assert_false(stop[2].order.is_graceful);
    end(0, NODES_FAILED); // node 0 has stopped its workers, as it was asked to
    fail_worker(2, 103, 0);
    for (int i = 0; i < 3; i++) expect_round(i, 1, i, 3, 1);
    fail_worker(2, 103, LAUNCH_CONSEQUENCE);
    fail_worker(1, 105, 0);
    end(0, NODES_FAILED);
    expect_end(0, 1, "of 3 nodes 2 workers failed, attempt 2 of 2\nroot cause");
    expect_end(0, 1, "text of 1");
    expect_end(1, 1, "rank of 1 was the first");
    expect_end(2, 1, "rank of 1 was the first");
    nodes_core_destroy(core);
}

static void bad_input_is_not_restarted(void **state) {
    begin(2, 2, 5);
    for (int i = 0; i < 2; i++) join(i, 2, 2, 1);
    fail_worker(1, 50, LAUNCH_BAD_INPUT);
    end(0, NODES_FAILED);
    expect_end(0, 2, "text of 1");
    nodes_core_destroy(core);
}

// The worker with bad input has itself printed the reason, so no launcher prints more.
static void bad_input_is_told_once(void **state) {
    begin(2, 2, 5);
    for (int i = 0; i < 2; i++) join(i, 2, 2, 1);
    fail_worker(1, 50, LAUNCH_BAD_INPUT);
    assert_int_equal(stop[0].head.kind, NODES_STOP);
    assert_string_equal(stop[0].order.text, "");
    fail_worker(0, 50, LAUNCH_BAD_INPUT | LAUNCH_CONSEQUENCE | LAUNCH_TOLD);
    for (int i = 0; i < 2; i++) {
        expect_end(i, 2, "");
        assert_string_equal(told[i].order.text, "");
    }
    nodes_core_destroy(core);
}

static void one_checkpoint_ends_the_run(void **state) {
    begin(2, 2, 5);
    for (int i = 0; i < 2; i++) join(i, 2, 2, 1);
    end(1, NODES_DONE);
    assert_int_equal(told[1].head.kind, NODES_ROUND);
    end(0, NODES_STOPPED);
    expect_end(0, 75, "");
    expect_end(1, 75, "");
    nodes_core_destroy(core);
}

static void last_call(void **state) {
    begin(2, 3, 0);
    join(0, 2, 3, 1);
    join(1, 2, 3, 1);
    now += 29 * second;
    for (int i = 0; i < 2; i++) say(i, (nodes_message){0}, NODES_BEAT);
    expire();
    assert_int_equal(told[0].head.kind, 0);
    now += 2 * second;
    expire();
    expect_round(0, 0, 0, 2, 0);
    // A node that joins late takes part from the next round on, which does not count as a restart.
    join(2, 2, 3, 1);
    assert_true(stop[0].order.is_graceful && stop[1].order.is_graceful);
    end(0, NODES_STOPPED);
    // The workers of node 1 have no handler for the signal that asks them to stop. So the signal
    // ends them, which the node reports as a failure; but no worker has failed by itself.
    end(1, NODES_FAILED);
    for (int i = 0; i < 3; i++) expect_round(i, 1, i, 3, 0);
    // A new round because a node was lost does not count as a restart either, even if workers of
    // other nodes have failed because of the loss.
    nodes_core_depart(core, 1, now);
    assert_string_equal(stop[2].order.text, "node host1 was lost: its connection ended");
    fail_worker(0, 1e12, 0);
    end(2, NODES_FAILED);
    expect_round(0, 2, 0, 2, 0);
    expect_round(2, 2, 1, 2, 0);
    // If another node is lost, too few nodes are left to start the workers. Then a new node may
    // join.
    nodes_core_depart(core, 2, now);
    end(0, NODES_FAILED);
    assert_int_equal(told[0].head.kind, NODES_AGAIN);
    join(1, 2, 3, 1);
    expect_round(1, 3, 1, 2, 0);
    nodes_core_destroy(core);
}

static void lost_node_of_a_fixed_number(void **state) {
    for (int restarts = 0; restarts < 2; restarts++) {
        begin(2, 2, restarts);
        join(0, 2, 2, 1);
        join(1, 2, 2, 1);
        int silent;
        for (int i = 0; i < 15; i++) {
            nodes_core_expire(core, now, &silent);
            assert_int_equal(silent, NODES_NOBODY);
            now += second;
            say(0, (nodes_message){0}, NODES_BEAT);
        }
        nodes_core_expire(core, now, &silent);
        assert_int_equal(silent, 1);
        expect_end(1, 1, "was silent for 15 s");
        assert_true(told[1].order.is_cut_off);
        assert_string_equal(stop[0].order.text, "node host1 was lost: it was silent for 15 s");
        end(0, NODES_FAILED);
        if (restarts == 0) {
            expect_end(0, 1, "1 node lost");
        } else {
            assert_int_equal(told[0].head.kind, NODES_AGAIN);
            assert_string_equal(told[0].order.text,
                                "node host1 was lost: it was silent for 15 s: starting all workers "
                                "again (restart 1 of 1)");
            join(1, 2, 2, 1);
            expect_round(0, 1, 0, 2, 1);
        }
        nodes_core_destroy(core);
    }
}

// A serving agent that was itself suspended does not count the other nodes as lost.
static void standing_still(void **state) {
    begin(2, 2, 0);
    join(0, 2, 2, 1);
    join(1, 2, 2, 1);
    now += 100 * second;
    expire();
    nodes_core_destroy(core);
}

static void leaving(void **state) {
    begin(2, 3, 0);
    for (int i = 0; i < 3; i++) join(i, 2, 3, 1);
    nodes_message signal = {.order = {.code = 15}};
    say(2, signal, NODES_LEAVE);
    assert_true(stop[0].order.is_graceful);
    for (int i = 0; i < 3; i++) end(i, NODES_STOPPED);
    expect_end(2, 75, "without this node");
    nodes_core_depart(core, 2, now);
    expect_round(1, 1, 1, 2, 0);
    say(0, signal, NODES_LEAVE); // node 0 serves the other nodes, so the run ends
    end(0, NODES_FAILED);
    end(1, NODES_STOPPED);
    expect_end(0, 143, "SIGTERM");
    expect_end(1, 143, "SIGTERM");
    nodes_core_destroy(core);
}

// A message LEAVE whose number is not that of a signal is rejected, because 128 plus the number
// would be no valid exit code.
static void leaving_by_no_signal(void **state) {
    const struct {
        int code;
        tri_status expected;
    } rows[] = {{0, TRI_BAD_INPUT},         {1, TRI_OK},           {SIGTERM, TRI_OK},
                {SIGRTMAX, TRI_OK},         {NSIG, TRI_BAD_INPUT}, {255, TRI_BAD_INPUT},
                {INT32_MAX, TRI_BAD_INPUT}, {-15, TRI_BAD_INPUT}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        nodes_message message = {.head = {.kind = NODES_LEAVE}, .order = {.code = rows[i].code}};
        assert_int_equal(nodes_message_check(&message), rows[i].expected);
    }
}

static void too_few_join(void **state) {
    begin(2, 2, 0);
    join(0, 2, 2, 1);
    for (int i = 0; i <= 600; i++) {
        say(0, (nodes_message){0}, NODES_BEAT);
        expire();
        now += second;
    }
    expect_end(0, 1, "1 of 2 nodes joined within 600 s: host0");
    nodes_core_destroy(core);
}

// With random orders of joins, losses and reports, no agent (launcher of a node) waits for ever:
// once all agents of the round (start of the workers on all nodes) have reported and no further
// agent joins, the run ends within the join timeout.
static void random_orders(void **state) {
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        uint64_t draw = seed * 0x9e3779b97f4a7c15ull;
        bool here[AGENTS] = {false};
        begin(1 + (int)(seed % 3), 3, 2);
        for (int i = 0; i < 60; i++) {
            draw = draw * 6364136223846793005ull + 1442695040888963407ull;
            int agent = (int)(draw >> 33) % 5, what = (int)(draw >> 40) % 8;
            bool runs = here[agent] && told[agent].head.kind == NODES_ROUND;
            if (!here[agent] && nodes_core_connected(core) <= agent) {
                // An agent gets the lowest free number, which need not be `agent`.
                int number = nodes_core_arrive(core, now);
                nodes_message message = {.join = {.version = NODES_VERSION,
                                                  .workers = 1,
                                                  .nodes_min = 1 + (int)(seed % 3),
                                                  .nodes_max = 3,
                                                  .is_serving = number == 0}};
                memset(&told[number], 0, sizeof told[number]);
                here[number] = true;
                say(number, message, NODES_JOIN);
            } else if (what == 0 && agent) {
                if (here[agent]) nodes_core_depart(core, agent, now);
                here[agent] = false;
            } else if (what < 6 && runs) {
                nodes_message message = {.report = {.outcome = what % NODES_OUTCOMES}};
                message.report.failed = message.report.outcome == NODES_FAILED && what == 5;
                told[agent].head.kind = 0; // this agent has reported, so it is no longer in a round
                say(agent, message, NODES_REPORT);
            }
            now += second / 10;
        }
        for (int i = 0; i < AGENTS; i++)
            if (here[i] && told[i].head.kind == NODES_ROUND) end(i, NODES_STOPPED);
        // Agents that are still connected wait for other agents no longer than the join timeout.
        for (int i = 0; i < 1300 && here[0] && told[0].head.kind != NODES_END; i++) {
            for (int k = 0; k < AGENTS; k++)
                if (here[k]) {
                    say(k, (nodes_message){0}, NODES_BEAT);
                    if (told[k].head.kind == NODES_ROUND) end(k, NODES_STOPPED);
                }
            int silent;
            nodes_core_expire(core, now += second, &silent);
        }
        if (here[0]) assert_int_equal(told[0].head.kind, NODES_END);
        nodes_core_destroy(core);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(earliest_failure_is_the_cause),
        cmocka_unit_test(bad_input_is_not_restarted),
        cmocka_unit_test(bad_input_is_told_once),
        cmocka_unit_test(one_checkpoint_ends_the_run),
        cmocka_unit_test(last_call),
        cmocka_unit_test(lost_node_of_a_fixed_number),
        cmocka_unit_test(standing_still),
        cmocka_unit_test(leaving),
        cmocka_unit_test(leaving_by_no_signal),
        cmocka_unit_test(too_few_join),
        cmocka_unit_test(random_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
