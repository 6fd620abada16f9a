// Reads a whole data set and says what is in it.
#ifndef TRIREME_DATA_CHECK_H
#define TRIREME_DATA_CHECK_H

#include "base/limits.h"
#include "data/dataset.h"

typedef struct tri_data_summary {
    tri_data_field field;       // its name lives as long as the program
    double min, max, mean, std; // of the finite values as they are fed, ignored labels left out
    int64_t not_finite;         // NaN and infinite values
} tri_data_summary;

typedef struct tri_data_report {
    int64_t samples;
    char shapes[512]; // the value of data.shapes that is true of the data
    int field_count;
    tri_data_summary fields[TRI_MAX_DATA_FIELDS];
    int64_t classes;                 // 0: no labels
    int64_t least_class, most_class; // samples of the rarest and of the most frequent class
} tri_data_report;

// Opens and reads every sample of `split`; the first that cannot be read is the error.
tri_status tri_data_check(const tri_data_options *options, tri_data_split split, uint64_t seed,
                          tri_data_report *out);

#endif
