// Computes medians, finds slow endpoints (hosts or, on one host, ranks) and slow pairs of them, and
// computes how far two clocks are apart. This code gets measured numbers and does not communicate,
// so that tests can try it with any numbers.
#include "preflight/judge.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double preflight_median(tri_arena *arena, const double *values, int count) {
    if (count < 1) return 0;
    double *sorted = TRI_NEW_ARRAY(arena, double, count);
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    return sorted[count / 2];
}

int preflight_find_slow(tri_arena *arena, const double *values, int count, double fraction,
                        bool *slow) {
    double least = fraction * preflight_median(arena, values, count);
    int found = 0;
    for (int i = 0; i < count; i++) found += slow[i] = values[i] < least;
    return found;
}

preflight_endpoint_rates preflight_endpoint_rates_of(const preflight_pair *pairs, int count) {
    preflight_endpoint_rates out = {.best_partner = -1};
    for (int i = 0; i < count; i++) {
        double rate = pairs[i].bytes_per_s;
        if (pairs[i].partner < 0 || rate <= 0) continue;
        out.pairs++;
        if (pairs[i].latency_s > out.latency_s) out.latency_s = pairs[i].latency_s;
        if (out.slowest == 0 || rate < out.slowest) out.slowest = rate;
        if (rate > out.best) {
            out.best_elsewhere = out.best;
            out.best = rate;
            out.best_partner = pairs[i].partner;
        } else if (rate > out.best_elsewhere) {
            out.best_elsewhere = rate;
        }
    }
    return out;
}

int preflight_find_slow_endpoints(tri_arena *arena, const preflight_endpoint_rates *rates,
                                  int count, double fraction, bool *slow) {
    double *best = TRI_NEW_ARRAY(arena, double, count);
    for (int i = 0; i < count; i++) best[i] = rates[i].best;
    return preflight_find_slow(arena, best, count, fraction, slow);
}

static double best_without(const preflight_endpoint_rates *rates, int except) {
    return rates->best_partner == except ? rates->best_elsewhere : rates->best;
}

static void note_fault(preflight_fault *fault, int partner, double value) {
    if (fault->count < PREFLIGHT_NAMED_PAIRS) {
        fault->partner[fault->count] = partner;
        fault->value[fault->count] = value;
    }
    fault->count++;
}

void preflight_find_faults(const preflight_endpoint_rates *rates, const bool *slow, int endpoint,
                           const preflight_pair *pairs, int count, const preflight_limits *limits,
                           preflight_endpoint_faults *out) {
    *out = (preflight_endpoint_faults){0};
    for (int i = 0; i < count; i++) {
        int other = pairs[i].partner;
        double rate = pairs[i].bytes_per_s, a, b;
        // Each pair is judged once, for the one of its two endpoints (hosts or ranks) with the
        // lower number.
        if (other < endpoint || rate <= 0) continue;
        a = best_without(&rates[endpoint], other);
        b = best_without(&rates[other], endpoint);
        if (!slow[endpoint] && !slow[other] && rate < limits->link_fraction * (a < b ? a : b))
            note_fault(&out->of[PREFLIGHT_SLOWER], other, rate);
        if (rate < limits->link_gb_s * 1e9) note_fault(&out->of[PREFLIGHT_TOO_SLOW], other, rate);
        if (pairs[i].latency_s * 1e3 > limits->link_ms)
            note_fault(&out->of[PREFLIGHT_FAR], other, pairs[i].latency_s);
    }
}

double preflight_clock_offset(const preflight_tick *ticks, int count, double *offset_s) {
    const preflight_tick *best = &ticks[0];
    for (int i = 1; i < count; i++)
        if (ticks[i].received_ns - ticks[i].sent_ns < best->received_ns - best->sent_ns)
            best = &ticks[i];
    long long half_ns = (best->received_ns - best->sent_ns) / 2;
    *offset_s = 1e-9 * (double)(best->other_ns - best->sent_ns - half_ns);
    return 1e-9 * (double)half_ns;
}
