// Reads a replica's micro-batches ahead of their use, in order, on threads of its own.
//
// Which batch comes when is arithmetic (sampler.h), so a loader begins at any epoch, step and round
// at once. All memory is allocated when it is created.
#ifndef TRIREME_DATA_LOADER_H
#define TRIREME_DATA_LOADER_H

#include "base/limits.h"
#include "data/dataset.h"
#include "data/sampler.h"

typedef struct tri_loader tri_loader;

typedef struct tri_loader_options {
    int64_t replica;            // whose micro-batches
    int64_t workers;            // threads; 0: tri_loader_next reads
    int64_t prefetch;           // batches read ahead; 0: twice the workers
    int64_t hold;               // batches that the caller holds at once; 0: 1
    int64_t epoch, step, round; // where it begins
    int64_t end_epoch;          // the first epoch that it leaves out; 0: no end
    int64_t steps_per_epoch;    // at most this many of each epoch; 0: all
} tri_loader_options;

// One micro-batch. A replica that has none in a round gets one of size 0.
typedef struct tri_data_batch {
    int64_t epoch, step, round;
    tri_micro_batch micro;             // its index and place in the step, and its size
    const int64_t *samples;            // [size], numbers in the data set
    void *fields[TRI_MAX_DATA_FIELDS]; // [size, …] each, by the data set's order of fields; 64-byte
                                       // aligned
} tri_data_batch;

// `dataset` must outlive the loader; `sampler` is copied. TRI_NO_MEMORY, TRI_BAD_INPUT.
tri_status tri_loader_create(const tri_dataset *dataset, const tri_sampler *sampler,
                             const tri_loader_options *options, tri_loader **out);
// Batches in a loader's memory by those settings.
int64_t tri_loader_batches(const tri_loader_options *options);
// Stops the threads; batches still held end with it. NULL allowed.
void tri_loader_destroy(tri_loader *loader);

// The next micro-batch: rounds of a step, steps of an epoch, epochs. *out is NULL after the last.
// It belongs to the loader and keeps its place until it is released; no more than `hold` may be
// held. A sample that cannot be read is an error here, with the message of where it was found,
// again at each call. One thread calls these two.
tri_status tri_loader_next(tri_loader *loader, const tri_data_batch **out);
void tri_loader_release(tri_loader *loader, const tri_data_batch *batch);

// Time that tri_loader_next has spent waiting or reading, in all.
int64_t tri_loader_waited_ns(const tri_loader *loader);

#endif
