// `trireme data dump`: writes samples as the model gets them.
#ifndef TRIREME_DATA_DUMP_H
#define TRIREME_DATA_DUMP_H

#include "data/dataset.h"

// Writes samples first to first + count - 1 of the split, in the order of the files and as in epoch
// 0, to a safetensors file at `path`: a tensor [count, ...] for each field. TRI_BAD_INPUT: the
// split has fewer samples.
tri_status tri_data_dump(const tri_data_options *options, tri_data_split split, uint64_t seed,
                         int64_t first, int64_t count, const char *path);

// Reads these samples into memory: field i to data[i], [count, ...], which tri_data_free_samples
// frees. TRI_BAD_INPUT: there are fewer samples; TRI_NO_MEMORY.
tri_status tri_data_read_samples(const tri_dataset *dataset, int64_t first, int64_t count,
                                 void **data);
void tri_data_free_samples(const tri_dataset *dataset, void *const *data);

#endif
