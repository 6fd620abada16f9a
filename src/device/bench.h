// Measures how long each node of a graph takes on a device, and compares this with the highest
// rates of the machine, to show which kernels are far from them (`trireme bench kernels`).
#ifndef TRIREME_DEVICE_BENCH_H
#define TRIREME_DEVICE_BENCH_H

#include "device/device.h"

// The rate at which a loop reads and writes the same `bytes` bytes again and again. If they fit
// into a cache this is the cache's rate, else the memory's.
typedef struct tri_bench_rate {
    double bytes, bytes_per_s;
} tri_bench_rate;

enum { TRI_BENCH_RATES = 5 };

// The highest rates that the machine reaches with the device's number of threads.
typedef struct tri_bench_peak {
    double flops_per_s; // F32 multiplications and additions
    // Multiplications and additions of BF16 with sums in F32. If the machine has no instructions
    // for these: the rate of F32.
    double bf16_flops_per_s;
    double bytes_per_s; // reading and writing memory, in buffers larger than the caches
    tri_bench_rate caches[TRI_BENCH_RATES]; // sorted by size, the smallest first
} tri_bench_peak;

typedef struct tri_bench_row {
    int node; // number of the node in the graph
    const char *kernel;
    double seconds; // median time of the repetitions
    double fastest; // time of the fastest repetition, in seconds
    // Arithmetic operations of one run, by the op's cost rule. For a convolution the rule counts
    // those of the direct algorithm, even if the kernel uses another one.
    double flops;
    double bytes;    // size of all inputs and outputs, each counted once
    double fraction; // tri_bench_fraction of the median time
    // If the kernel computes by Winograd's algorithm: the kernel that computes the same by the
    // direct one, its median time, and the fraction that it reaches. Else NULL, 0 and 0.
    const char *direct_kernel;
    double direct_seconds, direct_fraction;
} tri_bench_row;

// The fraction of the machine's peak that a kernel reaches: the shortest possible time divided by
// the time that it took. The shortest possible time is that of the arithmetic, or of reading and
// writing `bytes` at the rate of the cache or memory that holds them, whichever is longer. Returns
// 0 if the kernel was more than 5 % faster than that (less may be noise): it then did less work
// than `flops` and `bytes` count (Winograd's algorithm, an embedding and a view do), and a fraction
// would mean nothing.
double tri_bench_fraction(const tri_bench_peak *peak, double flops, double bytes, bool is_bf16,
                          double seconds);

// Runs all nodes of a graph in order, again and again for `budget_s` seconds and at least three
// times. If kernels compute by Winograd's algorithm, every second run of the graph replaces them by
// those of the direct algorithm. So both are measured in turns, with the caches as a training step
// leaves them. The layout pass must have run before. Allocates memory for all values
// and fills it with random numbers. `rows` has room for all nodes. Fails with TRI_NO_MEMORY, or as
// a kernel fails.
tri_status tri_bench_graph(tri_device *device, const tri_graph *graph, const tri_bench_peak *peak,
                           double budget_s, tri_bench_row *rows);

#endif
