// Reads a whole data set and says what is in it.
#ifndef TRIREME_DATA_CHECK_H
#define TRIREME_DATA_CHECK_H

#include "base/limits.h"
#include "data/dataset.h"

enum { TRI_CHECK_CHANNELS = 4, TRI_CHECK_CLASSES = 20, TRI_CHECK_WARNINGS = 4 };

// Of finite values as they are fed, ignored labels left out; zeros where there are none.
typedef struct tri_data_range {
    double min, max, mean;
} tri_data_range;

typedef struct tri_data_summary {
    tri_data_field field;      // its name lives as long as the program
    tri_dtype stored;          // in the files
    bool by_255;               // bytes, of which 255 is fed as 1
    tri_data_range all, first; // of all samples, and of the first one
    double std;
    int64_t not_finite;       // NaN and infinite values
    int64_t first_not_finite; // sample of the first one; -1: there is none
    int channels;             // of images that have several, those of `channel`; else 0
    tri_data_range channel[TRI_CHECK_CHANNELS];
} tri_data_summary;

typedef struct tri_data_report {
    int64_t samples;
    char shapes[512]; // the value of data.shapes that is true of the data
    int field_count;
    tri_data_summary fields[TRI_MAX_DATA_FIELDS];
    int64_t classes;                      // 0: no labels
    int64_t least_class, most_class;      // samples of the rarest and of the most frequent class
    int64_t histogram[TRI_CHECK_CLASSES]; // samples of the first classes
    int warning_count;
    char warnings[TRI_CHECK_WARNINGS][512]; // what is likely not meant, and what to do
} tri_data_report;

// Opens and reads every sample of `split`, and compares checksums; the first that cannot be read is
// the error.
tri_status tri_data_check(const tri_data_options *options, tri_data_split split, uint64_t seed,
                          tri_data_report *out);

#endif
