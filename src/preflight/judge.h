// The rules that say which of several measured values is out of line.
#ifndef TRIREME_PREFLIGHT_JUDGE_H
#define TRIREME_PREFLIGHT_JUDGE_H

#include "base/arena.h"

#include <stdbool.h>

// The median; of an even number of values the larger of the two in the middle, so that of two
// values the smaller one is compared with the larger. 0 of no values.
double preflight_median(tri_arena *arena, const double *values, int count);
// Finds which values are low: slow[i] = values[i] is below `fraction` of the median. Returns how
// many are.
int preflight_find_slow(tri_arena *arena, const double *values, int count, double fraction,
                        bool *slow);

// Judges bandwidths of pairs, rates[i * count + j] = rates[j * count + i]; 0: not measured. An end
// is slow if the best of its pairs is below `fraction` of the median of the ends' bests. A pair of
// two ends that are not slow is slow if it is below `fraction` of what both reach with others.
typedef struct preflight_slow_pairs {
    bool *ends;  // by end
    bool *pairs; // [i * count + j], i < j
    int end_count, pair_count;
} preflight_slow_pairs;
preflight_slow_pairs preflight_find_slow_pairs(tri_arena *arena, const double *rates, int count,
                                               double fraction);

// One round trip between two clocks, times in ns: when the question left, what the other clock
// showed, when the answer arrived. From `count` of them, the shortest tells most. *offset_s: how
// far the other clock is ahead; returns the uncertainty, half of that round trip.
typedef struct preflight_tick {
    long long sent_ns, other_ns, received_ns;
} preflight_tick;
double preflight_clock_offset(const preflight_tick *ticks, int count, double *offset_s);

#endif
