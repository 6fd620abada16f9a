// Reads a data set that consists of the fuzzer's bytes.
#ifndef TESTS_FUZZ_READ_DATASET_H
#define TESTS_FUZZ_READ_DATASET_H

#include "base/status.h"
#include "data/dataset.h"

#include <stdlib.h>

// Opens the training data and reads the last sample. False: the data are invalid, and opening them
// has failed.
static inline bool read_dataset(const tri_data_options *options) {
    tri_dataset *dataset;
    if (tri_dataset_open(options, TRI_DATA_TRAIN, 1, &dataset) != TRI_OK) return false;
    void *scratch = malloc(tri_dataset_scratch_bytes(dataset) + 1);
    for (int field = 0; field < tri_dataset_field_count(dataset); field++) {
        void *sample = malloc(tri_dataset_field(dataset, field)->size_bytes);
        TRI_ASSERT(scratch && sample);
        int64_t last = tri_dataset_samples(dataset) - 1;
        TRI_ASSERT(tri_dataset_read(dataset, field, last, 0, scratch, sample) == TRI_OK);
        free(sample);
    }
    free(scratch);
    tri_dataset_close(dataset);
    return true;
}

#endif
