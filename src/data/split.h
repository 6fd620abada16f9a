// Divides the samples of the training data into training and validation samples
// (data.val_fraction). The number of each sample is computed from its index in its subset, so that
// no rank needs a table.
//
// The smaller one of the two subsets has k samples. The data are cut into k groups of consecutive
// samples, and the smaller subset gets one sample of each group, drawn at random. Both subsets keep
// the data's order; in files that are sorted by class, each class is represented in proportion.
#ifndef TRIREME_DATA_SPLIT_H
#define TRIREME_DATA_SPLIT_H

#include <stdint.h>

typedef struct tri_validation_split {
    int64_t total, validation_samples; // the rest of `total` are training samples
    uint64_t key;
} tri_validation_split;

// Assigns `fraction` of `total` samples to validation, rounded, but at least one. The result
// depends only on the three arguments. validation_samples may equal `total`; the caller then
// rejects the fraction.
tri_validation_split tri_validation_split_make(uint64_t seed, int64_t total, double fraction);

// The number, among all samples, of the index-th validation sample, and of the index-th training
// sample.
int64_t tri_validation_sample(const tri_validation_split *split, int64_t index);
int64_t tri_training_sample(const tri_validation_split *split, int64_t index);

#endif
