// Times one operation over a list of sizes, as nccl-tests does, for `trireme bench comm`.
#ifndef TRIREME_COMM_BENCH_H
#define TRIREME_COMM_BENCH_H

#include "comm/comm.h"

#include <stdio.h>

typedef struct tri_comm_bench_options {
    tri_comm_kind kind; // zero: ALL_REDUCE; SEND: every rank sends to the next one, in a ring
    // True: REDUCE_SCATTER adds to the old contents of `recv`; this test is called "fold".
    bool accumulate;
    tri_dtype dtype; // F32 (the value 0), F64, BF16 or F16
    // Sizes of the whole buffer in bytes, as nccl-tests counts them: the size of `recv` for an
    // all-gather, of `send` for a reduce-scatter. They are rounded up to whole elements of every
    // rank. NULL: 8 bytes to 256 MiB.
    const size_t *sizes_bytes;
    int size_count;  // number of entries of sizes_bytes
    int repetitions; // how often each size is timed; 0: the benchmark chooses this by the size
    bool json;       // true: prints one JSON object per line instead of a table
} tri_comm_bench_options;

// Times one kind of operation for all sizes. Collective. Rank 0 alone writes to `out`, line by
// line: for each size the time of an operation. It is the median of the repetitions' times; the
// time of a repetition is that of its slowest rank. Beside the operation's rate, the table shows an
// upper bound of it: the rate at which all ranks at once can read a buffer of that size and write
// it back. TRI_INTERNAL: an operation gave a wrong result.
tri_status tri_comm_bench(tri_comm *comm, const tri_comm_bench_options *options, FILE *out);

// Times one operation on a whole buffer of `bytes` bytes of F32, as tri_comm_bench does.
// Collective. Preflight (the checks of hosts before a run) uses it to find slow connections.
// *seconds is the time of the operation, and *bus_bytes_per_s how many bytes per second the busiest
// connection between two ranks carries, as in nccl-tests.
tri_status tri_comm_bench_one(tri_comm *comm, tri_comm_kind kind, size_t bytes, double *seconds,
                              double *bus_bytes_per_s);

#endif
