// Times one operation over a list of sizes, as nccl-tests does: the engine of `trireme bench comm`.
#ifndef TRIREME_COMM_BENCH_H
#define TRIREME_COMM_BENCH_H

#include "comm/comm.h"

#include <stdio.h>

typedef struct tri_comm_bench_options {
    tri_comm_kind kind; // zero: all_reduce. SEND is a ring: everybody sends to the next rank
    bool fold;          // REDUCE_SCATTER accumulates; its name is "fold"
    tri_dtype dtype;    // F32 (zero), F64, BF16 or F16
    // Bytes as nccl-tests counts them: of the whole buffer, which is `recv` of an all-gather and
    // `send` of a reduce-scatter. Rounded up to whole elements of every rank. NULL: 8 bytes to
    // 256 MiB.
    const size_t *sizes_bytes;
    int sizes;
    int repetitions; // timed ones per size; 0: chosen by size
    bool json;       // an object a line instead of a table
} tri_comm_bench_options;

// Collective. Rank 0 alone writes to `out` (flushed line by line). The median over the repetitions
// of the slowest rank's time. The table also shows what memory would allow: the rate at which all
// ranks at once read and write buffers of that size in place, which is the traffic of an
// all-reduce. TRI_INTERNAL: an operation gave a wrong result.
tri_status tri_comm_bench(tri_comm *comm, const tri_comm_bench_options *options, FILE *out);

#endif
