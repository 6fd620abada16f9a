// Reads a replica's micro-batches ahead of their use, in order, on threads of its own. A replica is
// the ranks that together run one micro-batch; a round is the number of a micro-batch among those
// of one replica in one step. "Batch" below means a micro-batch.
//
// The order of batches is computed (sampler.h), so a loader can begin at any epoch, step and
// micro-batch without reading what comes before. It allocates all memory when it is created.
#ifndef TRIREME_DATA_LOADER_H
#define TRIREME_DATA_LOADER_H

#include "base/limits.h"
#include "data/dataset.h"
#include "data/sampler.h"

typedef struct tri_loader tri_loader;

// Where a loader gets its memory. A device may supply memory of a special kind, from which it
// copies faster. All zero: from the C library.
typedef struct tri_loader_memory {
    tri_status (*alloc)(void *context, size_t size_bytes, void **out); // aligned to 64 bytes
    void (*free)(void *context, void *memory);
    void *context;
} tri_loader_memory;

typedef struct tri_loader_options {
    int64_t replica;            // the replica whose micro-batches are read
    int64_t workers;            // number of threads; 0: tri_loader_next itself reads
    int64_t prefetch;           // how many batches are read ahead; 0: twice the workers
    int64_t hold;               // how many batches the caller may hold at the same time; 0 means 1
    int64_t epoch, step, round; // position of the first micro-batch
    int64_t end_epoch;          // the loader ends before this epoch; 0: never
    bool as_stored;             // samples are not mixed (mixup, cutmix): for evaluation
    int64_t steps_per_epoch;    // limit on the steps of each epoch; 0: all steps
    tri_loader_memory memory;
} tri_loader_options;

// One micro-batch. `round` is its number among the micro-batches of this replica in the step. In
// the last round some replicas may have no samples left: their loaders leave that round out.
typedef struct tri_data_batch {
    int64_t epoch, step, round;
    tri_micro_batch micro;  // the micro-batch: its index and position in the step, and its size
    const int64_t *samples; // [size]: numbers of the samples in the data set
    int64_t left_out;       // how many of them are damaged and left out (data.on_error: skip)
    // By field of the data set: the field's values of all samples, [size, …]; aligned to 64 bytes.
    void *fields[TRI_MAX_DATA_FIELDS];
} tri_data_batch;

// Makes a loader and starts its threads. `dataset` must outlive the loader; `sampler` is copied.
// TRI_NO_MEMORY, also if a thread cannot be started; or an error of memory.alloc.
tri_status tri_loader_create(const tri_dataset *dataset, const tri_sampler *sampler,
                             const tri_loader_options *options, tri_loader **out);
// For how many batches a loader with these options allocates memory. The plan of a run includes
// this memory.
int64_t tri_loader_batches(const tri_loader_options *options);
// Stops the threads and frees all batches, including those that the caller holds. NULL allowed.
void tri_loader_destroy(tri_loader *loader);

// tri_loader_next gets the next micro-batch: first all of the replica in a step, then those of the
// next step of the epoch, then those of the next epoch. *out is NULL after the last one. The batch
// belongs to the loader and stays valid until tri_loader_release; the caller may hold at most
// `hold` batches. If a sample cannot be read, this call of tri_loader_next and every further one
// return the error. Only one thread may call the two functions.
tri_status tri_loader_next(tri_loader *loader, const tri_data_batch **out);
void tri_loader_release(tri_loader *loader, const tri_data_batch *batch);

// The total time of all calls of tri_loader_next so far, in which training has waited for data.
int64_t tri_loader_waited_ns(const tri_loader *loader);

#endif
