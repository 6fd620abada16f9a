// The rules that find, among several measured values, those that are worse than the others. An
// endpoint is a host or, if there is only one host, a rank: a preflight measures pairs of
// endpoints.
#ifndef TRIREME_PREFLIGHT_JUDGE_H
#define TRIREME_PREFLIGHT_JUDGE_H

#include "base/arena.h"
#include "preflight/limits.h"

#include <stdbool.h>
#include <stdint.h>

// Returns the median, or 0 if there are no values. For an even number of values it is the larger of
// the two in the middle. So of two rates it is the faster one, by which the slower one is judged.
double preflight_median(tri_arena *arena, const double *values, int count);
// Finds which values are low: slow[i] is set if values[i] is below `fraction` of the median.
// Returns how many are.
int preflight_find_slow(tri_arena *arena, const double *values, int count, double fraction,
                        bool *slow);

// What an endpoint has measured with one partner. An endpoint is a host or, if there is only one
// host, a rank.
typedef struct preflight_pair {
    int32_t partner;    // the other endpoint's number: of a host or, on one host, a rank; -1: none
    double bytes_per_s; // rate in each direction, while both directions are used; 0: not measured
    double latency_s; // time of a round trip; set only if this endpoint has the pair's lower number
} preflight_pair;

// A summary of what one endpoint (a host or a rank) has measured with all its partners. All ranks
// get these summaries, which are far shorter than the lists of pairs. With them each endpoint
// judges its own pairs: of its partners it needs only their best rates.
typedef struct preflight_endpoint_rates {
    // What this host (or this rank, if there is only one host) has measured: its best rate, its
    // best rate with a partner other than best_partner, its lowest rate, and its longest latency.
    double best, best_elsewhere, slowest, latency_s;
    int32_t best_partner, pairs; // best_partner: partner of `best`; pairs: how many were measured
} preflight_endpoint_rates;
preflight_endpoint_rates preflight_endpoint_rates_of(const preflight_pair *pairs, int count);

// Finds slow endpoints: slow[i] is set if the best rate of endpoint i is below `fraction` of the
// median of all endpoints' best rates. Returns how many are.
int preflight_find_slow_endpoints(tri_arena *arena, const preflight_endpoint_rates *rates,
                                  int count, double fraction, bool *slow);

// What can be wrong with a pair of endpoints. The limits link_fraction, link_gb_s and link_ms are
// in limits.h.
typedef enum preflight_fault_kind {
    // The pair is slow although neither of its two endpoints is. Each of the two has a best rate
    // with other partners, and the pair's rate is below link_fraction of both of these rates.
    PREFLIGHT_SLOWER,
    PREFLIGHT_TOO_SLOW, // the rate is below link_gb_s
    PREFLIGHT_FAR,      // the latency is above link_ms
    PREFLIGHT_FAULT_KINDS,
} preflight_fault_kind;

enum { PREFLIGHT_NAMED_PAIRS = 4 };
typedef struct preflight_fault {
    // count: how many pairs of this endpoint have the fault; partner: the other endpoints of these
    // pairs, but only of the first PREFLIGHT_NAMED_PAIRS pairs.
    int32_t count, partner[PREFLIGHT_NAMED_PAIRS];
    double value[PREFLIGHT_NAMED_PAIRS]; // by pair: the measured bytes/s; PREFLIGHT_FAR: seconds
} preflight_fault;
typedef struct preflight_endpoint_faults {
    preflight_fault of[PREFLIGHT_FAULT_KINDS];
} preflight_endpoint_faults;
// Finds the faults of the pairs of `endpoint` (a host or, if there is only one host, a rank) with
// endpoints of higher numbers. So each pair is judged once, and no fault is counted twice. `rates`
// and `slow` are by endpoint.
void preflight_find_faults(const preflight_endpoint_rates *rates, const bool *slow, int endpoint,
                           const preflight_pair *pairs, int count, const preflight_limits *limits,
                           preflight_endpoint_faults *out);

// One round trip between two clocks: when the question left, what the other clock showed, and when
// the answer arrived.
typedef struct preflight_tick {
    long long sent_ns, other_ns, received_ns;
} preflight_tick;
// Finds how far the other host's clock is ahead (*offset_s), as NTP does: it takes the shortest of
// `count` round trips, and assumes that the other clock was read in the middle of this round trip.
// Returns how wrong *offset_s may be, in seconds: half of the round trip.
double preflight_clock_offset(const preflight_tick *ticks, int count, double *offset_s);

#endif
