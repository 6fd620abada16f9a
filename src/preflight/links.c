// Checks that all pairs of hosts can reach each other, and how fast. Pairs that have no host in
// common measure at the same time, as in the rounds of a tournament, so that many hosts take
// seconds too.
#include "preflight/judge.h"
#include "preflight/state.h"
#include "preflight/tournament.h"

#include "base/os.h"
#include "base/quantity.h"

#include <math.h>
#include <stdlib.h>

enum {
    MAX_ROUNDS = 255, // of more, a part of all pairs
    ROUND_TRIPS = 20,
    FIRST_BYTES = 16 << 10, // sizes double from here
    LAST_BYTES = 8 << 20,
    REPEATS = 3,
};
#define BUDGET_S 0.06 // of the exchanges of one pair

static const char *skips(const preflight *p) { return p->identity.size < 2 ? "one rank" : NULL; }

// Lists the ends of links: the first ranks of all hosts; on one host all ranks.
static void list_ends(preflight *p) {
    p->end_count = p->host_count > 1 ? p->host_count : p->identity.size;
    p->end_ranks = TRI_NEW_ARRAY(p->arena, int, p->end_count);
    for (int i = 0; i < p->end_count; i++) p->end_ranks[i] = p->host_count > 1 ? p->first[i] : i;
    size_t pairs = (size_t)p->end_count * (size_t)p->end_count;
    p->bandwidths = TRI_NEW_ARRAY(p->arena, double, pairs);
    p->latencies = TRI_NEW_ARRAY(p->arena, double, pairs);
}

static int own_end(const preflight *p) {
    for (int i = 0; i < p->end_count; i++)
        if (p->end_ranks[i] == p->identity.rank) return i;
    return -1;
}

// What was measured between two ends: first ranks of two hosts or, on one host, any two ranks.
typedef struct pair_times {
    double latency_s, bytes_per_s;
} pair_times;

static tri_status time_round_trips(preflight *p, int peer, pair_times *out) {
    char question = 0, answer = 0;
    out->latency_s = 1e9;
    for (int i = 0; i < ROUND_TRIPS; i++) {
        double begin = tri_os_seconds();
        if (p->identity.rank < peer) {
            TRI_TRY(preflight_send(p, peer, &question, 1));
            TRI_TRY(preflight_recv(p, peer, &answer, 1));
            out->latency_s = fmin(out->latency_s, tri_os_seconds() - begin);
        } else {
            TRI_TRY(preflight_recv(p, peer, &question, 1));
            TRI_TRY(preflight_send(p, peer, &answer, 1));
        }
    }
    return TRI_OK;
}

// Times exchanges of both ends at once. Sizes double until the time budget is used up. The rate is
// that of the largest one, because what fits into a buffer on the way would travel faster than the
// link. Both ends know both times, and so stop together.
static tri_status time_exchanges(preflight *p, int peer, char *memory, pair_times *out) {
    double spent = 0;
    for (int64_t bytes = FIRST_BYTES; bytes <= LAST_BYTES; bytes *= 2) {
        double fastest = 1e9;
        for (int i = 0; i < REPEATS && (i == 0 || spent + fastest < BUDGET_S); i++) {
            double begin = tri_os_seconds(), theirs;
            TRI_TRY(preflight_exchange(p, peer, memory, memory + LAST_BYTES, (size_t)bytes));
            double passed = tri_os_seconds() - begin;
            TRI_TRY(preflight_exchange(p, peer, &passed, &theirs, sizeof passed));
            fastest = fmin(fastest, fmax(passed, theirs));
        }
        out->bytes_per_s = (double)bytes / fastest;
        spent += REPEATS * fastest;
        if (spent + 2 * fastest > BUDGET_S) break;
    }
    return TRI_OK;
}

static tri_status meet(preflight *p, int own, int other, char *memory, pair_times *out) {
    int peer = p->end_ranks[other];
    pair_times found;
    TRI_TRY(time_round_trips(p, peer, &found));
    TRI_TRY(time_exchanges(p, peer, memory, &found));
    if (own > other) return TRI_OK; // the lower one keeps the results
    pair_times *pair = &out[other];
    if (pair->latency_s == 0 || found.latency_s < pair->latency_s)
        pair->latency_s = found.latency_s;
    if (found.bytes_per_s > pair->bytes_per_s) pair->bytes_per_s = found.bytes_per_s;
    return TRI_OK;
}

static tri_status play(preflight *p, char *memory, pair_times *out) {
    int own = own_end(p), rounds = preflight_rounds(p->end_count);
    for (int round = 0; round < rounds && round < MAX_ROUNDS; round++) {
        TRI_TRY(tri_comm_barrier(p->comm, "pairs of hosts"));
        int other = own < 0 ? -1 : preflight_partner(p->end_count, round, own);
        if (other >= 0) TRI_TRY(meet(p, own, other, memory, out));
    }
    return TRI_OK;
}

static tri_status gather_pairs(preflight *p, const pair_times *mine) {
    int ranks = p->identity.size, ends = p->end_count;
    pair_times *all = TRI_NEW_ARRAY(p->arena, pair_times, (size_t)ranks * (size_t)ends);
    TRI_TRY(preflight_gather(p, mine, all, (size_t)ends * sizeof *mine, "pairs of hosts"));
    for (int i = 0; i < ends; i++)
        for (int j = i + 1; j < ends; j++) {
            const pair_times *pair = &all[(size_t)p->end_ranks[i] * (size_t)ends + (size_t)j];
            p->bandwidths[i * ends + j] = p->bandwidths[j * ends + i] = pair->bytes_per_s;
            p->latencies[i * ends + j] = p->latencies[j * ends + i] = pair->latency_s;
        }
    return TRI_OK;
}

static tri_status measure(preflight *p) {
    if (!p->end_ranks) list_ends(p);
    pair_times *mine = TRI_NEW_ARRAY(p->arena, pair_times, p->end_count);
    int own = own_end(p);
    for (int j = own + 1; own >= 0 && j < p->end_count; j++) // the best of all attempts
        mine[j] = (pair_times){p->latencies[own * p->end_count + j],
                               p->bandwidths[own * p->end_count + j]};
    char *memory = calloc(2, LAST_BYTES);
    if (!memory) return TRI_FAIL(TRI_NO_MEMORY, "no memory to exchange with other hosts");
    tri_status status = play(p, memory, mine);
    free(memory);
    TRI_TRY(status);
    return gather_pairs(p, mine);
}

static const char *end_text(const preflight *p, int end) {
    return p->host_count > 1 ? p->host_names[end] : tri_arena_printf(p->arena, "rank %d", end);
}

typedef struct link_summary {
    double slowest, fastest, latency; // the longest
    int pairs;
} link_summary;

static link_summary summarize(const preflight *p, tri_tree *list) {
    link_summary s = {.slowest = 1e99};
    for (int i = 0; i < p->end_count; i++)
        for (int j = i + 1; j < p->end_count; j++) {
            double rate = p->bandwidths[i * p->end_count + j],
                   latency = p->latencies[i * p->end_count + j];
            if (rate <= 0) continue;
            s.slowest = fmin(s.slowest, rate);
            s.fastest = fmax(s.fastest, rate);
            s.latency = fmax(s.latency, latency);
            s.pairs++;
            tri_tree *entry = tri_tree_map(p->arena);
            tri_tree_put(p->arena, entry, "a", tri_tree_string(p->arena, end_text(p, i)));
            tri_tree_put(p->arena, entry, "b", tri_tree_string(p->arena, end_text(p, j)));
            tri_tree_put(p->arena, entry, "gb_s", tri_tree_double(p->arena, 1e-9 * rate));
            tri_tree_put(p->arena, entry, "latency_us", tri_tree_double(p->arena, 1e6 * latency));
            tri_tree_append(p->arena, list, entry);
        }
    return s;
}

static void name_relative(preflight *p, preflight_row *row) {
    preflight_list hosts = {.arena = p->arena}, pairs = hosts;
    int n = p->end_count;
    preflight_slow_pairs slow =
        preflight_find_slow_pairs(p->arena, p->bandwidths, n, p->request->limits.link_fraction);
    for (int i = 0; i < n; i++) {
        double best = 0;
        for (int j = 0; j < n; j++) best = fmax(best, p->bandwidths[i * n + j]);
        if (slow.ends[i])
            preflight_list_add(&hosts, "%s reaches %.3g GB/s", end_text(p, i), 1e-9 * best);
        for (int j = i + 1; j < n; j++)
            if (slow.pairs[i * n + j])
                preflight_list_add(&pairs, "%s and %s exchange %.3g GB/s", end_text(p, i),
                                   end_text(p, j), 1e-9 * p->bandwidths[i * n + j]);
    }
    if (hosts.count)
        preflight_fail(p, row, "%s with any other host, and others reach more than twice as much",
                       preflight_list_text(&hosts));
    if (pairs.count)
        preflight_fail(p, row, "%s, and each of them more with others",
                       preflight_list_text(&pairs));
}

static void name_absolute(preflight *p, preflight_row *row) {
    const preflight_limits *limits = &p->request->limits;
    preflight_list slow = {.arena = p->arena}, far = slow;
    int n = p->end_count;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            double rate = p->bandwidths[i * n + j], latency = p->latencies[i * n + j];
            if (rate <= 0) continue;
            if (rate < limits->link_gb_s * 1e9)
                preflight_list_add(&slow, "%s and %s exchange %.3g GB/s", end_text(p, i),
                                   end_text(p, j), 1e-9 * rate);
            if (latency * 1e3 > limits->link_ms)
                preflight_list_add(&far, "%s and %s are %s apart", end_text(p, i), end_text(p, j),
                                   preflight_time_text(p, latency));
        }
    if (slow.count)
        preflight_fail(p, row, "%s, less than %g", preflight_list_text(&slow), limits->link_gb_s);
    if (far.count)
        preflight_fail(p, row, "%s, more than %g ms", preflight_list_text(&far), limits->link_ms);
}

static void judge(preflight *p, preflight_row *row) {
    row->values = tri_tree_list(p->arena);
    link_summary s = summarize(p, row->values);
    const char *what = p->host_count > 1 ? "hosts" : "ranks";
    const char *rates =
        s.slowest > 0.9 * s.fastest
            ? tri_arena_printf(p->arena, "%.3g GB/s", 1e-9 * s.fastest)
            : tri_arena_printf(p->arena, "%.3g to %.3g GB/s", 1e-9 * s.slowest, 1e-9 * s.fastest);
    row->summary = tri_arena_printf(p->arena, "%s of %s, %s each way, round trips within %s",
                                    tri_counted(s.pairs, "pair"), what, rates,
                                    preflight_time_text(p, s.latency));
    if (p->host_count > 1) name_relative(p, row); // ranks of a host may be far apart in it
    if (row->verdict == PREFLIGHT_GO) name_absolute(p, row);
}

const preflight_check preflight_links = {
    .name = "links", .attempts = 3, .skips = skips, .measure = measure, .judge = judge};
