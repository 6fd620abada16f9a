// Checks what decides between go and no-go in a preflight (medians, slow hosts and pairs, clocks,
// limits), and the schedule by which pairs of hosts are measured.
#include "base/os.h"
#include "preflight/judge.h"
#include "preflight/limits.h"
#include "preflight/state.h"
#include "preflight/tournament.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 33 };

static void every_pair_meets_once(void **state) {
    for (int players = 0; players <= MOST; players++) {
        int met[MOST][MOST] = {{0}}, rounds = preflight_rounds(players);
        assert_int_equal(rounds, players < 2 ? 0 : players - 1 + players % 2);
        for (int round = 0; round < rounds; round++)
            for (int i = 0; i < players; i++) {
                int partner = preflight_partner(players, round, i);
                if (partner < 0) continue;
                assert_in_range(partner, 0, players - 1);
                assert_int_not_equal(partner, i);
                assert_int_equal(preflight_partner(players, round, partner), i);
                met[i][partner]++;
            }
        for (int i = 0; i < players; i++)
            for (int j = 0; j < players; j++) assert_int_equal(met[i][j], i != j);
    }
}

static void one_slow_rank(void **state) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    bool slow[4];
    assert_true(preflight_median(arena, (double[]){3, 1, 2}, 3) == 2);
    assert_true(preflight_median(arena, (double[]){1, 4}, 2) == 4); // of two: the larger
    assert_true(preflight_median(arena, NULL, 0) == 0);
    assert_int_equal(preflight_find_slow(arena, (double[]){10, 9, 3, 11}, 4, 0.75, slow), 1);
    assert_true(slow[2] && !slow[0] && !slow[1] && !slow[3]);
    assert_int_equal(preflight_find_slow(arena, (double[]){10, 3}, 2, 0.75, slow), 1);
    assert_true(slow[1]);
    assert_int_equal(preflight_find_slow(arena, (double[]){10, 8}, 2, 0.75, slow), 0);
    assert_int_equal(preflight_find_slow(arena, (double[]){5}, 1, 0.75, slow), 0);
    tri_arena_destroy(arena);
}

// What all endpoints (hosts) together find, each by its own pairs and the summaries of the other
// endpoints.
typedef struct findings {
    int slow_endpoints, slow_endpoint; // how many endpoints are slow, and the last of them
    int faults;                        // how many pairs have the fault `kind` (find_in_rounds)
    int endpoint, partner;             // the two endpoints of one of these pairs
    size_t bytes; // how many bytes a rank holds of the results of all endpoints
} findings;

// Judges the results of endpoints (hosts) that measure in a tournament of at most `rounds` rounds,
// and counts the faults of this `kind`. Every pair has 10 GB/s, except for the pairs of endpoint
// `host` (-1: none) and the pair a, b, which have 1.
static findings find_in_rounds(int endpoints, int rounds, int host, int a, int b,
                               preflight_fault_kind kind, const preflight_limits *limits) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    preflight_endpoint_rates *rates = TRI_NEW_ARRAY(arena, preflight_endpoint_rates, endpoints);
    preflight_pair pairs[PREFLIGHT_MAX_ROUNDS];
    bool *slow = TRI_NEW_ARRAY(arena, bool, endpoints);
    findings out = {.bytes =
                        (size_t)endpoints * (sizeof *rates + sizeof(preflight_endpoint_faults)) +
                        sizeof pairs};
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < endpoints; i++) {
            for (int round = 0; round < rounds; round++) {
                int j = preflight_partner(endpoints, round, i);
                bool is_slow = i == host || j == host || (i == a && j == b) || (i == b && j == a);
                pairs[round] = (preflight_pair){j, is_slow ? 1e9 : 10e9, i < j ? 2e-6 : 0};
            }
            preflight_endpoint_faults faults;
            if (pass == 0) {
                rates[i] = preflight_endpoint_rates_of(pairs, rounds);
                continue;
            }
            preflight_find_faults(rates, slow, i, pairs, rounds, limits, &faults);
            if (faults.of[kind].count) {
                out.endpoint = i;
                out.partner = faults.of[kind].partner[0];
            }
            out.faults += faults.of[kind].count;
        }
        if (pass == 0)
            out.slow_endpoints =
                preflight_find_slow_endpoints(arena, rates, endpoints, limits->link_fraction, slow);
    }
    for (int i = 0; i < endpoints; i++)
        if (slow[i]) out.slow_endpoint = i;
    tri_arena_destroy(arena);
    return out;
}

static findings find(int endpoints, int host, int a, int b) {
    preflight_limits limits = preflight_limits_default();
    limits.link_fraction = 0.5;
    return find_in_rounds(endpoints, preflight_rounds(endpoints), host, a, b, PREFLIGHT_SLOWER,
                          &limits);
}

static void slow_hosts_and_pairs(void **state) {
    for (int hosts = 3; hosts <= 4; hosts++) {
        findings none = find(hosts, -1, -1, -1);
        assert_int_equal(none.slow_endpoints + none.faults, 0);
        // A slow host is reported alone: its pairs, which are slow too, are not reported as well.
        for (int host = 0; host < hosts; host++) {
            findings found = find(hosts, host, -1, -1);
            assert_true(found.slow_endpoints == 1 && found.slow_endpoint == host &&
                        found.faults == 0);
        }
        findings pair = find(hosts, -1, 2, 1);
        assert_true(pair.slow_endpoints == 0 && pair.faults == 1 && pair.endpoint == 1 &&
                    pair.partner == 2);
    }
    // Of two hosts nobody knows which is slow, so neither is reported. Pairs that were not measured
    // do not count.
    findings two = find(2, 0, -1, -1);
    assert_int_equal(two.slow_endpoints + two.faults, 0);
    const preflight_pair none[] = {{-1, 0, 0}, {1, 0, 0}};
    preflight_endpoint_rates rates = preflight_endpoint_rates_of(none, 2);
    assert_true(rates.pairs == 0 && rates.best == 0 && rates.best_partner == -1);
}

// Checks the largest number of hosts: a rank needs only a few megabytes for the results, and slow
// hosts and slow pairs of hosts are still found.
static void sixteen_thousand_hosts(void **state) {
    enum { HOSTS = 16384 };
    preflight_limits limits = preflight_limits_default();
    limits.link_fraction = 0.5;
    findings found =
        find_in_rounds(HOSTS, PREFLIGHT_MAX_ROUNDS, 9000, -1, -1, PREFLIGHT_SLOWER, &limits);
    assert_true(found.slow_endpoints == 1 && found.slow_endpoint == 9000 && found.faults == 0);
    assert_in_range(found.bytes, 1, 5 << 20);
    int other = preflight_partner(HOSTS, 17, 100), low = other < 100 ? other : 100;
    found = find_in_rounds(HOSTS, PREFLIGHT_MAX_ROUNDS, -1, 100, other, PREFLIGHT_SLOWER, &limits);
    assert_true(found.slow_endpoints == 0 && found.faults == 1 && found.endpoint == low);
    assert_int_equal(found.partner, 100 + other - low);
    // If all pairs have a fault, each counts, but only the first few are named.
    limits.link_ms = 1e-3;
    found = find_in_rounds(HOSTS, PREFLIGHT_MAX_ROUNDS, -1, -1, -1, PREFLIGHT_FAR, &limits);
    assert_int_equal(found.faults, HOSTS / 2 * PREFLIGHT_MAX_ROUNDS);
}

// Returns which of the hosts a, b, c, … are named as not reaching each other. `cut` lists the
// directions that fail, two letters for each: "ab" means that a does not reach b.
static const char *unreached(tri_arena *arena, int hosts, const char *cut) {
    static const char *const names[] = {"a", "b", "c", "d"};
    preflight_failures failures[4] = {0};
    for (; *cut; cut += 2) {
        preflight_failures *f = &failures[cut[0] - 'a'];
        f->host[f->count++] = cut[1] - 'a';
    }
    return preflight_unreached(arena, failures, names, hosts);
}

static void hosts_that_do_not_reach_each_other(void **state) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    assert_string_equal(unreached(arena, 4, ""), "");
    assert_string_equal(unreached(arena, 2, "ba"), "a and b");
    assert_string_equal(unreached(arena, 4, "bdcb"), "b and d, b and c");
    assert_string_equal(unreached(arena, 4, "acbccd"), "c and any other host");
    assert_string_equal(unreached(arena, 3, "caab"), "a and any other host");
    tri_arena_destroy(arena);
}

static void the_shortest_round_trip_tells_the_time(void **state) {
    const preflight_tick ticks[] = {
        {0, 5000600, 9000}, // the answer took long, so this round trip tells little
        {20000, 5020500, 21000},
        {40000, 5040000, 45000},
    };
    double offset_s, uncertainty_s = preflight_clock_offset(ticks, 3, &offset_s);
    assert_true(offset_s > 4.99999e-3 && offset_s < 5.00001e-3);
    assert_true(uncertainty_s > 4.9e-7 && uncertainty_s < 5.1e-7);
    (void)preflight_clock_offset(&(preflight_tick){100, 50, 300}, 1, &offset_s);
    assert_true(offset_s > -1.51e-7 && offset_s < -1.49e-7);
}

// now_ns: the time that the two tests below simulate. step_ns: how long each fsync and each round
// trip takes in it.
static int64_t now_ns, step_ns;

static int64_t fake_clock(void) { return now_ns; }

static int fake_fsync(int fd) {
    now_ns += step_ns;
    return 0;
}

// How far the other host's clock is ahead of now_ns, in the round trips that fake_start plays.
static int64_t ahead_ns;

static tri_status fake_start(tri_comm *comm, const tri_comm_op *ops, int count,
                             tri_comm_ticket *out) {
    for (int i = 0; i < count; i++) {
        if (ops[i].kind != TRI_COMM_RECV) continue;
        int64_t answer = now_ns + ahead_ns;
        memcpy(ops[i].recv, &answer, sizeof answer);
        now_ns += step_ns;
    }
    *out = (tri_comm_ticket){0};
    return TRI_OK;
}

static tri_status fake_wait(tri_comm *comm, tri_comm_ticket ticket) { return TRI_OK; }

static int back_to_the_system(void **state) {
    tri_os = tri_os_system;
    return 0;
}

// The clock is measured three times. In the second attempt round trips take longer than in the
// first, so its result is not used. In the third they are the shortest, so its result is.
static void attempts_keep_the_best_clock(void **state) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    const tri_comm_backend backend = {.name = "fake", .start = fake_start, .wait = fake_wait};
    tri_comm comm = {.backend = &backend, .size = 2};
    preflight p = {
        .arena = arena, .comm = &comm, .identity.size = 2, .host_count = 2, .first = (int[]){0, 1}};
    tri_os.realtime_ns = fake_clock;
    const struct {
        int64_t step_ns;
        double uncertainty_s;
    } attempts[] = {{4000000, 2e-3}, {8000000, 2e-3}, {2000000, 1e-3}};
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++) {
        step_ns = attempts[i].step_ns;
        assert_int_equal(preflight_clocks.measure(&p), TRI_OK);
        double error_s = p.clocks[1].uncertainty_s - attempts[i].uncertainty_s;
        assert_true(error_s > -1e-9 && error_s < 1e-9);
    }
    tri_arena_destroy(arena);
}

static void attempts_keep_the_best_folder(void **state) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    const preflight_request request = {.run_dir = "/tmp"};
    tri_comm *comm;
    assert_int_equal(tri_comm_self_open(&comm), TRI_OK);
    preflight p = {.arena = arena,
                   .request = &request,
                   .comm = comm,
                   .identity.size = 1,
                   .host_count = 1,
                   .host_of = (int[]){0},
                   .first = (int[]){0}};
    tri_os.monotonic_ns = fake_clock;
    tri_os.fsync = fake_fsync;
    const struct {
        int64_t step_ns;
        double fsync_s;
    } attempts[] = {{60000000, 0.06}, {200000000, 0.06}, {40000000, 0.04}};
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++) {
        step_ns = attempts[i].step_ns;
        assert_int_equal(preflight_run_folder.measure(&p), TRI_OK);
        assert_string_equal(p.folders[0].failure, "");
        double error_s = p.folders[0].fsync_s - attempts[i].fsync_s;
        assert_true(error_s > -1e-9 && error_s < 1e-9);
    }
    double rate = p.folders[0].write_bytes_per_s, best = (16 << 20) / 0.04;
    assert_true(rate > best * 0.999 && rate < best * 1.001);
    p.request = &(preflight_request){.run_dir = "/proc"};
    assert_int_equal(preflight_run_folder.measure(&p), TRI_OK);
    assert_string_equal(p.folders[0].failure, "");
    tri_comm_close(comm);
    tri_arena_destroy(arena);
}

static void limits_by_name(void **state) {
    preflight_limits limits = preflight_limits_default();
    assert_true(limits.space_gb == 1 && limits.compute_fraction == 0.75);
    assert_int_equal(preflight_limits_set(&limits, "space_gb=2.5"), TRI_OK);
    assert_int_equal(preflight_limits_set(&limits, "seen_s=0"), TRI_OK);
    assert_true(limits.space_gb == 2.5 && limits.seen_s == 0);
    static const struct {
        const char *word, *part;
    } bad[] = {{"space_gb", "is not a limit"},
               {"spce_gb=1", "did you mean 'space_gb'"},
               {"=1", "there is no limit ''"},
               {"space_gb=", "not a number"},
               {"space_gb=1GB", "not a number"},
               {"space_gb=-1", "not a number"},
               {"space_gb=nan", "not a number"},
               {"a-name-that-is-longer-than-any-limit-could-ever-be-in-this-program=1",
                "there is no limit 'a-name"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(preflight_limits_set(&limits, bad[i].word), TRI_BAD_INPUT);
        assert_non_null(strstr(tri_error_message(), bad[i].part));
    }
    int rows = 0;
    while (preflight_limit(rows)) rows++;
    assert_true(rows * sizeof(double) == sizeof limits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_meets_once),
        cmocka_unit_test(one_slow_rank),
        cmocka_unit_test(slow_hosts_and_pairs),
        cmocka_unit_test(sixteen_thousand_hosts),
        cmocka_unit_test(hosts_that_do_not_reach_each_other),
        cmocka_unit_test(the_shortest_round_trip_tells_the_time),
        cmocka_unit_test_teardown(attempts_keep_the_best_clock, back_to_the_system),
        cmocka_unit_test_teardown(attempts_keep_the_best_folder, back_to_the_system),
        cmocka_unit_test(limits_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
