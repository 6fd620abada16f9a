// Measures how long each node of a graph takes on a device, and compares this with what the machine
// reaches at best, to show which kernels are worth work.
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
    double bf16_flops_per_s; // of BF16 with sums in F32; F32's rate without such instructions
    double bytes_per_s;      // of memory: reads and writes, on buffers larger than the caches
    tri_bench_rate caches[TRI_BENCH_RATES]; // sorted by size, the smallest first
} tri_bench_peak;

typedef struct tri_bench_row {
    int node; // of the graph
    const char *kernel;
    double seconds; // median of the repetitions
    double fastest;
    double flops;    // by the op's cost rule, for the direct algorithm
    double bytes;    // of all inputs and outputs, each counted once
    double fraction; // tri_bench_fraction of the median
} tri_bench_row;

// The fraction of the machine's peak that a kernel reaches: the shortest possible time divided by
// the time taken. The shortest possible time is that of the arithmetic, or of moving `bytes` at the
// rate of the cache or memory that holds them, whichever is longer. Returns 0 if that is longer
// than the time taken: then the kernel does less than the direct algorithm (Winograd, a table's
// rows, a view), and no fraction would mean anything.
double tri_bench_fraction(const tri_bench_peak *peak, double flops, double bytes, bool is_bf16,
                          double seconds);

// Runs all nodes of a graph, after the layout pass, in order, again and again for `budget_s`
// seconds and at least three times. Allocates memory for all values and fills it with random
// numbers. `rows` has room for all nodes. TRI_NO_MEMORY, or what a kernel returns.
tri_status tri_bench_graph(tri_device *device, const tri_graph *graph, const tri_bench_peak *peak,
                           double budget_s, tri_bench_row *rows);

#endif
