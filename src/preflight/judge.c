// Rules on plain numbers, without communication: medians, slow ends and pairs, clocks. So tests can
// try them with any numbers.
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

static double best_of(const double *rates, int count, int end, int except) {
    double best = 0;
    for (int i = 0; i < count; i++) {
        double rate = rates[end * count + i];
        if (i != end && i != except && rate > best) best = rate;
    }
    return best;
}

preflight_slow_pairs preflight_find_slow_pairs(tri_arena *arena, const double *rates, int count,
                                               double fraction) {
    preflight_slow_pairs out = {.ends = TRI_NEW_ARRAY(arena, bool, count),
                                .pairs = TRI_NEW_ARRAY(arena, bool, (size_t)count *(size_t)count)};
    double *best = TRI_NEW_ARRAY(arena, double, count);
    for (int i = 0; i < count; i++) best[i] = best_of(rates, count, i, i);
    out.end_count = preflight_find_slow(arena, best, count, fraction, out.ends);
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++) {
            double rate = rates[i * count + j], a = best_of(rates, count, i, j),
                   b = best_of(rates, count, j, i);
            bool is_slow = rate > 0 && rate < fraction * (a < b ? a : b);
            if (!is_slow || out.ends[i] || out.ends[j]) continue;
            out.pairs[i * count + j] = true;
            out.pair_count++;
        }
    return out;
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
