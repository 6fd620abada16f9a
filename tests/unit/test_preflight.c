// What decides between go and no-go: medians, slow hosts and pairs, clocks, limits; and the
// schedule by which pairs of hosts are measured.
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
    assert_true(preflight_median(arena, (double[]){1, 4}, 2) == 4); // compared with the larger
    assert_true(preflight_median(arena, NULL, 0) == 0);
    assert_int_equal(preflight_find_slow(arena, (double[]){10, 9, 3, 11}, 4, 0.75, slow), 1);
    assert_true(slow[2] && !slow[0] && !slow[1] && !slow[3]);
    assert_int_equal(preflight_find_slow(arena, (double[]){10, 3}, 2, 0.75, slow), 1);
    assert_true(slow[1]);
    assert_int_equal(preflight_find_slow(arena, (double[]){10, 8}, 2, 0.75, slow), 0);
    assert_int_equal(preflight_find_slow(arena, (double[]){5}, 1, 0.75, slow), 0);
    tri_arena_destroy(arena);
}

// Bandwidths of 4 hosts: 10 each, except for the pairs of host `host` (-1: none) and the pair `a`,
// `b`, which have 1.
static preflight_slow_pairs find(tri_arena *arena, int hosts, int host, int a, int b) {
    double rates[16] = {0};
    for (int i = 0; i < hosts; i++)
        for (int j = 0; j < hosts; j++) {
            bool is_slow = i == host || j == host || (i == a && j == b) || (i == b && j == a);
            rates[i * hosts + j] = i == j ? 0 : is_slow ? 1 : 10;
        }
    return preflight_find_slow_pairs(arena, rates, hosts, 0.5);
}

static void slow_hosts_and_pairs(void **state) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    for (int hosts = 3; hosts <= 4; hosts++) {
        preflight_slow_pairs none = find(arena, hosts, -1, -1, -1);
        assert_int_equal(none.end_count + none.pair_count, 0);
        for (int host = 0; host < hosts; host++) { // its pairs are not named beside it
            preflight_slow_pairs found = find(arena, hosts, host, -1, -1);
            assert_true(found.end_count == 1 && found.ends[host] && found.pair_count == 0);
        }
        preflight_slow_pairs pair = find(arena, hosts, -1, 2, 1);
        assert_true(pair.end_count == 0 && pair.pair_count == 1 && pair.pairs[1 * hosts + 2]);
    }
    // Of two hosts nobody knows which is slow; and pairs that were not measured are not slow.
    preflight_slow_pairs two = find(arena, 2, 0, -1, -1);
    assert_int_equal(two.end_count + two.pair_count, 0);
    double some[16] = {[0 * 4 + 1] = 10, [1 * 4 + 0] = 10, [2 * 4 + 3] = 10, [3 * 4 + 2] = 10};
    preflight_slow_pairs left_out = preflight_find_slow_pairs(arena, some, 4, 0.5);
    assert_int_equal(left_out.end_count + left_out.pair_count, 0);
    tri_arena_destroy(arena);
}

// Hosts a, b, c, …; `cut` lists directions that fail: "ab" that a does not reach b.
static const char *unreached(tri_arena *arena, int hosts, const char *cut) {
    static const char *const names[] = {"a", "b", "c", "d"};
    char reached[16];
    memset(reached, 1, sizeof reached);
    for (; *cut; cut += 2) reached[(cut[0] - 'a') * hosts + cut[1] - 'a'] = 0;
    return preflight_unreached(arena, reached, names, hosts);
}

static void hosts_that_do_not_reach_each_other(void **state) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    assert_string_equal(unreached(arena, 4, ""), "");
    assert_string_equal(unreached(arena, 2, "ba"), "a and b");
    assert_string_equal(unreached(arena, 4, "bdcb"), "b and c, b and d");
    assert_string_equal(unreached(arena, 4, "acbccd"), "c and any other host");
    assert_string_equal(unreached(arena, 3, "caab"), "a and any other host");
    tri_arena_destroy(arena);
}

static void the_shortest_round_trip_tells_the_time(void **state) {
    const preflight_tick ticks[] = {
        {0, 5000600, 9000}, // the answer was late
        {20000, 5020500, 21000},
        {40000, 5040000, 45000},
    };
    double offset_s, uncertainty_s = preflight_clock_offset(ticks, 3, &offset_s);
    assert_true(offset_s > 4.99999e-3 && offset_s < 5.00001e-3);
    assert_true(uncertainty_s > 4.9e-7 && uncertainty_s < 5.1e-7);
    (void)preflight_clock_offset(&(preflight_tick){100, 50, 300}, 1, &offset_s);
    assert_true(offset_s > -1.51e-7 && offset_s < -1.49e-7);
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
        cmocka_unit_test(hosts_that_do_not_reach_each_other),
        cmocka_unit_test(the_shortest_round_trip_tells_the_time),
        cmocka_unit_test(limits_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
