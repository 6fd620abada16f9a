// Statistics of all samples of an open data set, as a model gets them. Several threads read, and
// the sums are added up in one order, so that the numbers do not depend on how many there are.
#ifndef TRIREME_DATA_STATS_H
#define TRIREME_DATA_STATS_H

#include "base/limits.h"
#include "data/dataset.h"

enum { TRI_STATS_CHANNELS = 4096 };

// Range, mean and standard deviation of finite values: after conversion and transforms, without
// ignored labels. All zero if there are no such values.
typedef struct tri_data_range {
    double min, max, mean, std;
} tri_data_range;

typedef struct tri_field_stats {
    tri_data_range all, first; // over all samples, and of the first one that can be read
    int64_t not_finite;        // number of NaN and infinite values
    int64_t first_not_finite;  // the first sample with a NaN or infinite value; -1: there is none
    // Number of entries of `channel`; 0 unless the field is images of several channels or, then by
    // column, inputs that are a list of numbers.
    int channels;
    const tri_data_range *channel;
} tri_field_stats;

typedef struct tri_data_stats {
    tri_field_stats fields[TRI_MAX_DATA_FIELDS];
    const int64_t *class_counts; // by class: how many labels; NULL: there are none
    tri_data_lengths lengths;    // of the samples, as attention_mask says; count 0: there is none
} tri_data_stats;

// A sample could not be read: `status` is TRI_CORRUPT, TRI_BAD_INPUT or TRI_NOT_FOUND.
typedef void (*tri_stats_on_damage)(void *context, int64_t sample, tri_status status,
                                    const char *message);

// Reads all samples and shows the progress on standard error as those of `split`. `on_damage` is
// called in the order of the samples, and the other figures are those of the rest. *out lies in
// `arena`.
tri_status tri_data_stats_read(tri_arena *arena, const tri_dataset *dataset, const char *split,
                               int64_t workers, tri_stats_on_damage on_damage, void *context,
                               tri_data_stats *out);

#endif
