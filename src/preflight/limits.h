// The limits of a preflight, which decide whether a measured value means go or no-go: one row for
// each, with its reason.
#ifndef TRIREME_PREFLIGHT_LIMITS_H
#define TRIREME_PREFLIGHT_LIMITS_H

#include "base/status.h"

// X(name, default, what it is, why this default). `trireme preflight --limits` prints the reason,
// because a user who sets another value should know it.
#define PREFLIGHT_LIMIT_LIST(X)                                                                    \
    X(memory_gb, 0.5, "GB of memory free for each rank, at least",                                 \
      "program, loader and a small model need about as much")                                      \
    X(memory_fraction, 0.5, "of the hosts' median: free memory of a host, at least",               \
      "with less, something else runs there")                                                      \
    X(clock_s, 1, "seconds between the clocks of two hosts, at most",                              \
      "the time stamps of failures, in whole seconds, decide which rank was the cause")            \
    X(space_gb, 1, "GB free in the run folder, at least",                                          \
      "two checkpoints of 40 million parameters with Adam's states")                               \
    X(fsync_ms, 1000, "ms until a small file is on the disk, at most",                             \
      "a checkpoint waits so long for each of its files")                                          \
    X(seen_s, 10, "seconds until a rank sees a file of another one, at most",                      \
      "network file systems show new files within a few seconds, another folder never")            \
    X(reach_s, 3, "seconds until one host reaches another over TCP, at most",                      \
      "a packet that was lost is sent again after 1 second")                                       \
    X(link_gb_s, 0.05, "GB/s between two hosts in each direction, at least",                       \
      "half of gigabit Ethernet; a port that fell back to 100 Mbit/s has 0.012")                   \
    X(link_ms, 5, "ms from one host to another and back, at most",                                 \
      "hosts of one cluster are below 0.2 ms apart; operations on small data wait for it")         \
    X(link_fraction, 0.5, "of what its hosts reach elsewhere: bandwidth of a pair, at least",      \
      "an all-reduce runs at the rate of the slowest pair")                                        \
    X(sum_fraction, 0.2, "of what the slowest pair allows: rate of an all-reduce, at least",       \
      "sums and copies cost up to half of it where cores are few; less is a wrong network")        \
    X(compute_fraction, 0.75, "of the ranks' median: arithmetic of a rank, at least",              \
      "the others would wait for it for 25% of their time, which training reports too")

typedef struct preflight_limits {
#define X(name, value, what, why) double name;
    PREFLIGHT_LIMIT_LIST(X)
#undef X
} preflight_limits;

typedef struct preflight_limit_row {
    const char *name, *what, *why;
    double value; // the default value
} preflight_limit_row;

// Gets a row by its index; NULL: there are not so many rows.
const preflight_limit_row *preflight_limit(int index);
preflight_limits preflight_limits_default(void);
// Sets one limit from "NAME=VALUE". TRI_BAD_INPUT: there is no such limit; the message has the
// nearest name.
tri_status preflight_limits_set(preflight_limits *limits, const char *word);

#endif
