// Checks that an all-reduce over all ranks takes about as long as follows from the measured rate of
// the slowest pair of hosts: pairs alone may be fast while the network as a whole is not.
#include "preflight/state.h"

#include "base/os.h"
#include "base/quantity.h"

#include <math.h>

enum { LEAST_BYTES = 64 << 10, MOST_BYTES = 64 << 20, REPEATS = 5 };
#define TARGET_S 0.05 // the size is chosen so that one all-reduce should take so many seconds

static const char *skips(const preflight *p) { return p->identity.size < 2 ? "one rank" : NULL; }

static double slowest_pair(const preflight *p) {
    double slowest = 0;
    for (int i = 0; i < p->endpoint_count; i++) {
        double rate = p->rates[i].slowest;
        if (rate > 0 && (slowest == 0 || rate < slowest)) slowest = rate;
    }
    return slowest;
}

// Whether all hosts have the same number of ranks, and the ranks of each host are consecutive. If
// so, the ranks of a host sum among themselves before anything is sent to other hosts (comm/pair).
static bool is_even(const preflight *p) {
    for (int r = 0; r < p->identity.size; r++)
        if (p->host_of[r] != r / p->local_ranks[0]) return false;
    return p->host_count * p->local_ranks[0] == p->identity.size;
}

// Computes how many bytes the busiest link carries, in each direction, for each byte of the
// all-reduce. The expected time is bytes * traffic / rate. Each of the n endpoints (hosts or, if
// there is only one host, ranks) has a link. With one host, or if is_even, each endpoint reduces
// an n-th of the sum: its link carries 2 * (n - 1) / n. Otherwise each of all `ranks` ranks reduces
// an equal share. Then the link of a host with l ranks carries l * (ranks - l) / ranks twice: once
// for terms that other hosts reduce, once for sums that they need.
static double traffic(const preflight *p) {
    double endpoints = p->endpoint_count, ranks = p->identity.size, most = 0;
    if (p->host_count == 1 || is_even(p)) return 2 * (endpoints - 1) / endpoints;
    for (int h = 0; h < p->host_count; h++)
        most = fmax(most, 2.0 * p->local_ranks[h] * (ranks - p->local_ranks[h]) / ranks);
    return most;
}

static tri_status sum_once(preflight *p, float *values, int64_t count) {
    return tri_comm_run(p->comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                .dtype = TRI_F32,
                                                .count = count,
                                                .send = values,
                                                .recv = values,
                                                .label = "all-reduce"});
}

// Measures how long an all-reduce takes. A repetition takes as long as its slowest rank. *out is
// the time of the fastest repetition, because other programs disturb some of them.
static tri_status time_sums(preflight *p, float *values, int64_t count, double *out) {
    double times[REPEATS];
    TRI_TRY(sum_once(p, values, count));
    for (int i = 0; i < REPEATS; i++) {
        TRI_TRY(tri_comm_barrier(p->comm, "all-reduce"));
        double begin = tri_os_seconds();
        TRI_TRY(sum_once(p, values, count));
        times[i] = tri_os_seconds() - begin;
    }
    TRI_TRY(tri_comm_run(p->comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                 .reduction = TRI_REDUCE_MAX,
                                                 .dtype = TRI_F64,
                                                 .count = REPEATS,
                                                 .send = times,
                                                 .recv = times,
                                                 .label = "all-reduce"}));
    *out = times[0];
    for (int i = 1; i < REPEATS; i++) *out = fmin(*out, times[i]);
    return TRI_OK;
}

static tri_status measure(preflight *p) {
    double rate = slowest_pair(p), seconds = 0;
    double bytes = fmin(fmax(TARGET_S * rate / traffic(p), LEAST_BYTES), MOST_BYTES);
    int64_t count = (int64_t)(bytes / sizeof(float));
    void *values;
    TRI_TRY(p->comm->backend->alloc(p->comm, (size_t)count * sizeof(float), &values));
    tri_status status = time_sums(p, values, count, &seconds);
    p->comm->backend->free(p->comm, values);
    TRI_TRY(status);
    if (p->sum_s == 0 || seconds / bytes < p->sum_s / p->sum_bytes) {
        p->sum_s = seconds;
        p->sum_bytes = (double)count * sizeof(float);
        p->sum_expected_s = rate > 0 ? p->sum_bytes * traffic(p) / rate : 0;
    }
    return TRI_OK;
}

static void judge(preflight *p, preflight_row *row) {
    double fraction = p->sum_s > 0 ? p->sum_expected_s / p->sum_s : 0,
           least = p->request->limits.sum_fraction;
    row->values = tri_tree_map(p->arena);
    tri_tree_put(p->arena, row->values, "bytes", tri_tree_double(p->arena, p->sum_bytes));
    tri_tree_put(p->arena, row->values, "seconds", tri_tree_double(p->arena, p->sum_s));
    row->summary = tri_arena_printf(p->arena, "%s in %s", tri_bytes_text(p->sum_bytes),
                                    tri_duration_text(p->sum_s));
    // On one host an all-reduce is faster than the messages by which the pairs' rates were
    // measured, so no time can be expected from these rates.
    if (p->host_count < 2) return;
    tri_tree_put(p->arena, row->values, "expected_s", tri_tree_double(p->arena, p->sum_expected_s));
    row->summary = tri_arena_printf(p->arena, "%s, %.0f%% of what the slowest pair allows",
                                    row->summary, 100 * fraction);
    if (fraction < least)
        preflight_fail(p, row,
                       "%s take %s to be added up; the slowest pair lets expect %s, and at least "
                       "%g of that rate is needed",
                       tri_bytes_text(p->sum_bytes), tri_duration_text(p->sum_s),
                       tri_duration_text(p->sum_expected_s), least);
}

const preflight_check preflight_sums = {
    .name = "all-reduce", .attempts = 3, .skips = skips, .measure = measure, .judge = judge};
