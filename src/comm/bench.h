// Times one operation over a list of sizes, as nccl-tests does, for `trireme bench comm`.
#ifndef TRIREME_COMM_BENCH_H
#define TRIREME_COMM_BENCH_H

#include "comm/comm.h"

#include <stdio.h>

typedef struct tri_comm_bench_options {
    tri_comm_kind kind; // zero: all_reduce. SEND: every rank sends to the next one, in a ring
    bool fold;          // REDUCE_SCATTER accumulates; its name is "fold"
    tri_dtype dtype;    // F32 (zero), F64, BF16 or F16
    // Bytes of the whole buffer, as nccl-tests counts them: of `recv` for an all-gather, of `send`
    // for a reduce-scatter. Rounded up to whole elements of every rank. NULL: 8 bytes to
    // 256 MiB.
    const size_t *sizes_bytes;
    int sizes;
    int repetitions; // timed, per size; 0: chosen by size
    bool json;       // one object per line instead of a table
} tri_comm_bench_options;

// Times one kind of operation for all sizes. Collective. Rank 0 alone writes to `out` (flushed line
// by line): the median over the repetitions of the slowest rank's time. As an upper bound the table
// also shows the rate of the memory, at which all ranks at once read and write buffers of that size
// in place; an all-reduce causes that traffic. TRI_INTERNAL: an operation gave a wrong result.
tri_status tri_comm_bench(tri_comm *comm, const tri_comm_bench_options *options, FILE *out);

// Times one operation on a whole buffer of `bytes`. Preflight uses it to find slow links.
// Collective. *bus_bytes_per_s: what the busiest link then carries, as in nccl-tests. F32; medians
// as above.
tri_status tri_comm_bench_one(tri_comm *comm, tri_comm_kind kind, size_t bytes, double *seconds,
                              double *bus_bytes_per_s);

#endif
