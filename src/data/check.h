// Reads a whole data set and reports what it contains, so that mistakes in data are found before
// training.
#ifndef TRIREME_DATA_CHECK_H
#define TRIREME_DATA_CHECK_H

#include "base/limits.h"
#include "data/dataset.h"
#include "data/stats.h"

enum {
    TRI_CHECK_WARNINGS = 4,
    TRI_CHECK_DAMAGES = 100000, // so many damaged samples are named; the others are counted
    TRI_CHECK_NO_SAMPLE = -1,
};

typedef struct tri_data_summary {
    tri_data_field field;   // `name` is valid as long as the options of tri_data_check
    tri_dtype stored_dtype; // the type in the files
    bool is_divided_by_255; // true for images of bytes, whose values become 0 to 1
    tri_field_stats stats;
} tri_data_summary;

// A sample that cannot be read.
typedef struct tri_data_damage {
    int64_t sample;     // its number in the split; TRI_CHECK_NO_SAMPLE: the data cannot be opened
    const char *reason; // begins with the file's name
    struct tri_data_damage *next;
} tri_data_damage;

typedef struct tri_data_report {
    int64_t samples;
    char shapes[512]; // a value for the recipe's data.shapes that is right for these data
    int field_count;
    tri_data_summary fields[TRI_MAX_DATA_FIELDS];
    int64_t classes; // number of classes; 0: there are no labels
    // Number of samples of the rarest class, and of the most frequent class.
    int64_t min_class_samples, max_class_samples;
    const int64_t *class_counts; // by class: number of labels; in the arena of tri_data_check
    tri_data_lengths lengths;    // of the samples' text (tri_data_stats)
    tri_data_lengths documents;  // of which the text consists (tri_dataset_documents)
    int64_t documents_left_out;  // damaged ones that were left out when the text was packed
    int warning_count;
    char warnings[TRI_CHECK_WARNINGS][512]; // likely mistakes, and what to do about them
    const char *not_used; // what of the files no sample has (tri_dataset_rest); NULL: nothing
    // Number of samples that cannot be read. The other figures are those of the rest.
    int64_t damaged;
    int64_t left_out;               // how many of them a run leaves out (data.on_error: skip)
    const tri_data_damage *damages; // in the order of the samples; in the arena of tri_data_check
    const tri_data_damage *refused; // the first one that ends a run; NULL: there is none
} tri_data_report;

// Opens the data of the split, verifies the checksums of its files, and reads every sample, with
// data.workers threads. Lists what is damaged. Fails if the recipe does not fit the data, or if a
// file system does not work.
tri_status tri_data_check(tri_arena *arena, const tri_data_options *options, tri_data_split split,
                          uint64_t seed, tri_data_report *out);

#endif
