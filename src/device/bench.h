// Measures how long each node of a graph takes on a device, and compares this with what the machine
// reaches at best.
#ifndef TRIREME_DEVICE_BENCH_H
#define TRIREME_DEVICE_BENCH_H

#include "device/device.h"

// The rate at which a loop reads and writes the same `bytes` again and again: a cache's rate if
// they fit in one, else the memory's.
typedef struct tri_bench_rate {
    double bytes, bytes_per_s;
} tri_bench_rate;

enum { TRI_BENCH_RATES = 5 };

// What the machine reaches at best, with the device's number of threads.
typedef struct tri_bench_peak {
    double flops_per_s;      // F32 multiplications and additions
    double bf16_flops_per_s; // likewise of BF16 with sums in F32; F32's without such instructions
    double bytes_per_s;      // of memory: reads and writes, on buffers larger than the caches
    tri_bench_rate caches[TRI_BENCH_RATES]; // sorted by size, the smallest first
} tri_bench_peak;

typedef struct tri_bench_row {
    int node; // of the graph
    const char *kernel;
    double seconds; // median of the repetitions
    double fastest;
    double flops; // by the op's cost rule, for the direct algorithm
    double bytes; // of all inputs and outputs, each counted once
    double share; // tri_bench_share of the median
} tri_bench_row;

// The time that the peaks allow, by arithmetic or by the rate at which so many bytes move from
// where they fit, whichever is longer, over the time taken. 0, no share, where that time is longer
// than what was taken, so that it is no bound: the kernel does less than the plain algorithm
// (Winograd, rows of a table, a view).
double tri_bench_share(const tri_bench_peak *peak, double flops, double bytes, bool is_bf16,
                       double seconds);

// Runs a graph that the layout pass has finished, on memory of its own that is filled with random
// numbers, from first node to last, again and again for `budget_s` seconds (at least three times).
// `rows` has room for all nodes. TRI_NO_MEMORY, or what a kernel returns.
tri_status tri_bench_graph(tri_device *device, const tri_graph *graph, const tri_bench_peak *peak,
                           double budget_s, tri_bench_row *rows);

#endif
