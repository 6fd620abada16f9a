// Reads a data set that consists of the fuzzer's bytes.
#ifndef TESTS_FUZZ_READ_DATASET_H
#define TESTS_FUZZ_READ_DATASET_H

#include "base/limits.h"
#include "base/status.h"
#include "data/dataset.h"

#include <stdlib.h>

// Opens the training data and reads the last sample. False: the data are invalid, and opening them
// has failed.
static inline bool read_dataset(const tri_data_options *options) {
    tri_dataset *dataset;
    if (tri_dataset_open(options, TRI_DATA_TRAIN, 1, &dataset) != TRI_OK) return false;
    tri_reader *reader;
    TRI_ASSERT(tri_reader_create(dataset, &reader) == TRI_OK);
    void *fields[TRI_MAX_DATA_FIELDS] = {0};
    for (int i = 0; i < tri_dataset_field_count(dataset); i++) {
        fields[i] = malloc(tri_dataset_field(dataset, i)->size_bytes);
        TRI_ASSERT(fields[i]);
    }
    int64_t last = tri_dataset_samples(dataset) - 1;
    TRI_ASSERT(tri_reader_read(reader, last, 0, fields) == TRI_OK);
    for (int i = 0; i < TRI_MAX_DATA_FIELDS; i++) free(fields[i]);
    tri_reader_destroy(reader);
    tri_dataset_close(dataset);
    return true;
}

#endif
