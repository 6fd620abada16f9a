// Measures how fast the training data can be read, for a number of loader threads. In a run, each
// replica (the ranks that together run one micro-batch) reads its own micro-batches.
#ifndef TRIREME_DATA_BENCH_H
#define TRIREME_DATA_BENCH_H

#include "data/dataset.h"
#include "data/sampler.h"

typedef struct tri_data_rate {
    int64_t workers;
    int64_t batches;      // number of micro-batches that were read
    double samples_per_s; // samples per second of one replica that does nothing but read
    double bytes_per_s;   // bytes per second, counted after conversion and transforms
    double time_us;       // mean time to get one micro-batch
} tri_data_rate;

// Reads shuffled micro-batches of replica 0 for about `seconds`, from the start of an epoch, as
// training does.
tri_status tri_data_bench(const tri_dataset *dataset, const tri_sampler *sampler, int64_t workers,
                          double seconds, tri_data_rate *out);

#endif
