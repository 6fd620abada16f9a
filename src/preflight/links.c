// Checks that all pairs of hosts can reach each other, and how fast. Pairs without a common host
// measure at the same time, as in the rounds of a tournament, so that even many hosts take only
// seconds. If there is only one host, its ranks are measured in place of hosts. What a pair
// connects, a host or a rank, is called an endpoint.
#include "preflight/judge.h"
#include "preflight/state.h"
#include "preflight/tournament.h"

#include "base/os.h"
#include "base/quantity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUND_TRIPS = 20,
    FIRST_BYTES = 16 << 10, // the first size of an exchange; each next one is twice as large
    LAST_BYTES = 8 << 20,
    REPEATS = 3,
};
#define BUDGET_S 0.06 // time for the exchanges of one pair

static const char *skips(const preflight *p) { return p->identity.size < 2 ? "one rank" : NULL; }

static int own_endpoint(const preflight *p) {
    for (int i = 0; i < p->endpoint_count; i++)
        if (p->endpoint_ranks[i] == p->identity.rank) return i;
    return -1;
}

// Lists the endpoints and, for each, the rank that measures: the first rank of each host or, on a
// single host, every rank.
static void list_endpoints(preflight *p) {
    p->endpoint_count = p->host_count > 1 ? p->host_count : p->identity.size;
    p->endpoint_ranks = TRI_NEW_ARRAY(p->arena, int, p->endpoint_count);
    for (int i = 0; i < p->endpoint_count; i++)
        p->endpoint_ranks[i] = p->host_count > 1 ? p->first[i] : i;
    int rounds = preflight_rounds(p->endpoint_count);
    p->rounds = rounds < PREFLIGHT_MAX_ROUNDS ? rounds : PREFLIGHT_MAX_ROUNDS;
    p->own_pairs = TRI_NEW_ARRAY(p->arena, preflight_pair, p->rounds);
    int own = own_endpoint(p);
    for (int round = 0; round < p->rounds; round++)
        p->own_pairs[round].partner =
            own < 0 ? -1 : preflight_partner(p->endpoint_count, round, own);
}

static tri_status time_round_trips(preflight *p, int peer, preflight_pair *out) {
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

// Times exchanges in which this rank and `peer` both send at once. Sizes double until the time for
// one pair (BUDGET_S) is used up. The rate is that of the largest size, because data that fit into
// a buffer on the way would seem faster than the network. The two ranks tell each other how long an
// exchange took, and both count the longer time. So they stop together.
static tri_status time_exchanges(preflight *p, int peer, char *memory, preflight_pair *out) {
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

// Measures the network connection between this rank's host and another host (or between two ranks,
// if there is only one host). Both ranks keep the rate, which is the same for both; only the one
// with the lower number keeps the time of a round trip. If a pair is measured several times, the
// best result counts.
static tri_status meet(preflight *p, preflight_pair *pair, char *memory) {
    int peer = p->endpoint_ranks[pair->partner];
    preflight_pair found = {.partner = pair->partner};
    TRI_TRY(time_round_trips(p, peer, &found));
    TRI_TRY(time_exchanges(p, peer, memory, &found));
    bool is_lower = p->identity.rank < peer;
    if (is_lower && (pair->latency_s == 0 || found.latency_s < pair->latency_s))
        pair->latency_s = found.latency_s;
    if (found.bytes_per_s > pair->bytes_per_s) pair->bytes_per_s = found.bytes_per_s;
    return TRI_OK;
}

static tri_status play(preflight *p, char *memory) {
    for (int round = 0; round < p->rounds; round++) {
        preflight_pair *pair = &p->own_pairs[round];
        TRI_TRY(tri_comm_barrier(p->comm, "pairs of hosts"));
        if (pair->partner >= 0) TRI_TRY(meet(p, pair, memory));
    }
    return TRI_OK;
}

// Gathers `mine` of every rank, and copies those of the ranks that measure to `all`, by endpoint.
// An endpoint is a host or, if there is only one host, a rank; rank endpoint_ranks[i] measures for
// endpoint i.
static tri_status gather_endpoints(preflight *p, const void *mine, void *all, size_t bytes) {
    char *of_ranks = tri_arena_alloc(p->arena, (size_t)p->identity.size * bytes), *out = all;
    TRI_TRY(preflight_gather(p, mine, of_ranks, bytes, "pairs of hosts"));
    for (int i = 0; i < p->endpoint_count; i++)
        memcpy(out + (size_t)i * bytes, of_ranks + (size_t)p->endpoint_ranks[i] * bytes, bytes);
    return TRI_OK;
}

// Gathers the results in two steps. An endpoint is a host or, if there is only one host, a rank.
// First all ranks get a summary of each endpoint's rates. With the summaries each endpoint finds
// the faults among its own pairs, and then all ranks get these faults. So a rank receives only some
// bytes from each other rank, however many pairs there are. If there are few endpoints, all ranks
// also get all pairs, for the report.
static tri_status gather_pairs(preflight *p) {
    const preflight_limits *limits = &p->request->limits;
    int endpoints = p->endpoint_count, own = own_endpoint(p);
    preflight_endpoint_rates rates = preflight_endpoint_rates_of(p->own_pairs, p->rounds);
    p->rates = TRI_NEW_ARRAY(p->arena, preflight_endpoint_rates, endpoints);
    TRI_TRY(gather_endpoints(p, &rates, p->rates, sizeof rates));
    p->slow_endpoints = TRI_NEW_ARRAY(p->arena, bool, endpoints);
    preflight_find_slow_endpoints(p->arena, p->rates, endpoints, limits->link_fraction,
                                  p->slow_endpoints);
    preflight_endpoint_faults faults = {0};
    if (own >= 0)
        preflight_find_faults(p->rates, p->slow_endpoints, own, p->own_pairs, p->rounds, limits,
                              &faults);
    p->faults = TRI_NEW_ARRAY(p->arena, preflight_endpoint_faults, endpoints);
    TRI_TRY(gather_endpoints(p, &faults, p->faults, sizeof faults));
    p->pairs = NULL;
    if (endpoints > PREFLIGHT_LISTED_ENDPOINTS) return TRI_OK;
    size_t bytes = (size_t)p->rounds * sizeof *p->pairs;
    p->pairs = tri_arena_alloc(p->arena, (size_t)endpoints * bytes);
    return gather_endpoints(p, p->own_pairs, p->pairs, bytes);
}

static tri_status measure(preflight *p) {
    if (!p->endpoint_ranks) list_endpoints(p);
    char *memory = calloc(2, LAST_BYTES);
    if (!memory) return TRI_FAIL(TRI_NO_MEMORY, "no memory to exchange with other hosts");
    tri_status status = play(p, memory);
    free(memory);
    TRI_TRY(status);
    return gather_pairs(p);
}

static const char *endpoint_text(const preflight *p, int endpoint) {
    return p->host_count > 1 ? p->host_names[endpoint]
                             : tri_arena_printf(p->arena, "rank %d", endpoint);
}

typedef struct link_summary {
    double slowest, fastest, latency; // rates in bytes per second; the longest latency in s
    int pairs;
} link_summary;

static link_summary summarize(const preflight *p) {
    link_summary s = {.slowest = 1e99};
    for (int i = 0; i < p->endpoint_count; i++) {
        const preflight_endpoint_rates *r = &p->rates[i];
        s.pairs += r->pairs;
        if (r->best <= 0) continue;
        s.slowest = fmin(s.slowest, r->slowest);
        s.fastest = fmax(s.fastest, r->best);
        s.latency = fmax(s.latency, r->latency_s);
    }
    s.pairs /= 2;
    return s;
}

// Lists all measured pairs of hosts (or of ranks, if there is only one host), unless there are too
// many of them: then p->pairs is NULL.
static void list_pairs(const preflight *p, tri_tree *list) {
    for (int i = 0; p->pairs && i < p->endpoint_count; i++)
        for (int round = 0; round < p->rounds; round++) {
            const preflight_pair *pair = &p->pairs[(size_t)i * (size_t)p->rounds + (size_t)round];
            if (pair->partner <= i || pair->bytes_per_s <= 0) continue;
            tri_tree *entry = tri_tree_map(p->arena);
            tri_tree_put(p->arena, entry, "a", tri_tree_string(p->arena, endpoint_text(p, i)));
            tri_tree_put(p->arena, entry, "b",
                         tri_tree_string(p->arena, endpoint_text(p, pair->partner)));
            tri_tree_put(p->arena, entry, "gb_s",
                         tri_tree_double(p->arena, 1e-9 * pair->bytes_per_s));
            tri_tree_put(p->arena, entry, "latency_us",
                         tri_tree_double(p->arena, 1e6 * pair->latency_s));
            tri_tree_append(p->arena, list, entry);
        }
}

// Writes the pairs with this fault, such as "a and b exchange 0.1 GB/s, …". NULL: there are none.
static const char *name_pairs(const preflight *p, preflight_fault_kind kind) {
    preflight_list list = {.arena = p->arena};
    int unnamed = 0;
    for (int i = 0; i < p->endpoint_count; i++) {
        const preflight_fault *f = &p->faults[i].of[kind];
        for (int k = 0; k < f->count && k < PREFLIGHT_NAMED_PAIRS; k++) {
            const char *a = endpoint_text(p, i), *b = endpoint_text(p, f->partner[k]);
            if (kind == PREFLIGHT_FAR)
                preflight_list_add(&list, "%s and %s are %s apart", a, b,
                                   tri_duration_text(f->value[k]));
            else
                preflight_list_add(&list, "%s and %s exchange %.3g GB/s", a, b, 1e-9 * f->value[k]);
        }
        if (f->count > PREFLIGHT_NAMED_PAIRS) unnamed += f->count - PREFLIGHT_NAMED_PAIRS;
    }
    list.count += unnamed;
    return list.count ? preflight_list_text(&list) : NULL;
}

static void name_relative(preflight *p, preflight_row *row) {
    preflight_list hosts = {.arena = p->arena};
    for (int i = 0; i < p->endpoint_count; i++)
        if (p->slow_endpoints[i])
            preflight_list_add(&hosts, "%s reaches %.3g GB/s", endpoint_text(p, i),
                               1e-9 * p->rates[i].best);
    const char *pairs = name_pairs(p, PREFLIGHT_SLOWER);
    if (hosts.count)
        preflight_fail(p, row, "%s with any other host, and others reach more than twice as much",
                       preflight_list_text(&hosts));
    if (pairs) preflight_fail(p, row, "%s, and each of them more with others", pairs);
}

static void name_absolute(preflight *p, preflight_row *row) {
    const preflight_limits *limits = &p->request->limits;
    const char *slow = name_pairs(p, PREFLIGHT_TOO_SLOW), *far = name_pairs(p, PREFLIGHT_FAR);
    if (slow) preflight_fail(p, row, "%s, less than %g", slow, limits->link_gb_s);
    if (far)
        preflight_fail(p, row, "%s, more than %s", far, tri_seconds_text(limits->link_ms * 1e-3));
}

static void judge(preflight *p, preflight_row *row) {
    row->values = tri_tree_list(p->arena);
    link_summary s = summarize(p);
    list_pairs(p, row->values);
    const char *what = p->host_count > 1 ? "hosts" : "ranks";
    const char *rates =
        s.slowest > 0.9 * s.fastest
            ? tri_arena_printf(p->arena, "%.3g GB/s", 1e-9 * s.fastest)
            : tri_arena_printf(p->arena, "%.3g to %.3g GB/s", 1e-9 * s.slowest, 1e-9 * s.fastest);
    row->summary =
        tri_arena_printf(p->arena, "%s of %s, %s each way, round trips within %s",
                         tri_counted(s.pairs, "pair"), what, rates, tri_duration_text(s.latency));
    // Two ranks of one host may have a slower link than two others without any fault, for example
    // because they are on different sockets. So the rates of pairs are compared with each other
    // only if they are pairs of hosts.
    if (p->host_count > 1) name_relative(p, row);
    if (row->verdict == PREFLIGHT_GO) name_absolute(p, row);
}

const preflight_check preflight_links = {
    .name = "links", .attempts = 3, .skips = skips, .measure = measure, .judge = judge};
