// Which samples of the training data are held back for validation: arithmetic, without a table.
//
// The smaller part takes one sample, at random, of each of as many runs of consecutive samples, all
// equally long within one. Both parts keep the data's order, and files that are sorted by class
// give each class its share.
#ifndef TRIREME_DATA_SPLIT_H
#define TRIREME_DATA_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_split {
    int64_t total, held; // samples in all, and of them the validation samples
    uint64_t key;
} tri_split;

// Holds back `fraction` of `total` samples, rounded, but one at least. A function of the three
// numbers. `held` may be as large as `total`: the caller refuses what leaves nothing to train on.
tri_split tri_split_make(uint64_t seed, int64_t total, double fraction);
// The number in the whole data of sample `index` of the validation part or of the training part.
int64_t tri_split_at(const tri_split *split, bool validation, int64_t index);

#endif
