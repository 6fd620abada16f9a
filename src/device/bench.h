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
    // Rates in buffers of five sizes, the smallest first: those of the caches, and of the memory if
    // a buffer is larger than all caches.
    tri_bench_rate caches[TRI_BENCH_RATES];
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
// 0 if the kernel was more than 5 % faster than that (a smaller difference may be noise): it then
// did less work than `flops` and `bytes` count, so a fraction would mean nothing. For example,
// Winograd's algorithm multiplies less often, an embedding reads only a few rows of its table, and
// a view copies nothing.
double tri_bench_fraction(const tri_bench_peak *peak, double flops, double bytes, bool is_bf16,
                          double seconds);

// Measures all nodes of a graph and fills rows[i] for node i. Runs the whole graph in order, so
// that each kernel finds the caches about as in a training step, again and again for `budget_s`
// seconds and at least three times. If kernels compute by Winograd's algorithm, every second run of
// the graph uses kernels of the direct algorithm in their place. Layouts must have been chosen
// before (pass/layout.c). Allocates memory for all values and fills it with random numbers. Returns
// TRI_NO_MEMORY, or the error of a kernel that fails.
tri_status tri_bench_graph(tri_device *device, const tri_graph *graph, const tri_bench_peak *peak,
                           double budget_s, tri_bench_row *rows);

#endif
