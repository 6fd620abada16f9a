// The rules that say which of several measured values is out of line.
#ifndef TRIREME_PREFLIGHT_JUDGE_H
#define TRIREME_PREFLIGHT_JUDGE_H

#include "base/arena.h"
#include "preflight/limits.h"

#include <stdbool.h>
#include <stdint.h>

// The median; of an even number of values the larger of the two in the middle, so that of two
// values the smaller one is compared with the larger. 0 of no values.
double preflight_median(tri_arena *arena, const double *values, int count);
// Finds which values are low: slow[i] = values[i] is below `fraction` of the median. Returns how
// many are.
int preflight_find_slow(tri_arena *arena, const double *values, int count, double fraction,
                        bool *slow);

// What an end measured with one partner: an end is a host, or a rank of the only host.
typedef struct preflight_pair {
    int32_t partner;    // an end; -1: none
    double bytes_per_s; // in each direction at once; 0: not measured
    double latency_s;   // of a round trip; only the lower of the two ends has it
} preflight_pair;

// All that the others have to know of an end's pairs.
typedef struct preflight_end_rates {
    double best, second, slowest, latency_s; // second: without best_partner; the longest latency
    int32_t best_partner, pairs;             // measured ones
} preflight_end_rates;
preflight_end_rates preflight_end_rates_of(const preflight_pair *pairs, int count);

// slow[i]: the best of end i's pairs is below `fraction` of the median of the ends' bests. Returns
// how many are.
int preflight_find_slow_ends(tri_arena *arena, const preflight_end_rates *rates, int count,
                             double fraction, bool *slow);

typedef enum preflight_fault_kind {
    PREFLIGHT_SLOWER,   // both ends are not slow, and the pair is below link_fraction of what both
                        // reach with others
    PREFLIGHT_TOO_SLOW, // below link_gb_s
    PREFLIGHT_FAR,      // above link_ms
    PREFLIGHT_FAULT_KINDS,
} preflight_fault_kind;

enum { PREFLIGHT_NAMED_PAIRS = 4 };
typedef struct preflight_fault {
    int32_t count, partner[PREFLIGHT_NAMED_PAIRS]; // of more, the first ones
    double value[PREFLIGHT_NAMED_PAIRS];           // bytes per second, or seconds
} preflight_fault;
typedef struct preflight_end_faults {
    preflight_fault of[PREFLIGHT_FAULT_KINDS];
} preflight_end_faults;
// Judges the pairs of `end` with higher ends. `rates` and `slow` are by end.
void preflight_find_faults(const preflight_end_rates *rates, const bool *slow, int end,
                           const preflight_pair *pairs, int count, const preflight_limits *limits,
                           preflight_end_faults *out);

// One round trip between two clocks, times in ns: when the question left, what the other clock
// showed, when the answer arrived. From `count` of them, the shortest tells most. *offset_s: how
// far the other clock is ahead; returns the uncertainty, half of that round trip.
typedef struct preflight_tick {
    long long sent_ns, other_ns, received_ns;
} preflight_tick;
double preflight_clock_offset(const preflight_tick *ticks, int count, double *offset_s);

#endif
