// The recipe's `data:` section.
#ifndef TRIREME_DATA_OPTIONS_H
#define TRIREME_DATA_OPTIONS_H

#include "base/option.h"
#include "format/tokens.h"

typedef struct tri_data_options {
    const char *name; // of the kind: a row of tri_dataset_kinds
    const char *path; // folder of the files
    // Texts, absolute or relative to `path`; of npy also maps from fields to files. NULL: the
    // kind's own names, and no validation file.
    const tri_tree *train, *val, *test;
    double val_fraction; // of the training samples, for validation; 0: none
    bool shuffle, drop_last;
    int64_t workers;           // loader threads; 0: the caller reads
    const tri_tree *transform; // list of transforms; NULL: none
    const tri_tree *shapes;    // map from fields to their sizes in the files, of one sample
    int64_t limit;    // first samples of the training files only, val_fraction's among them
    int64_t sequence; // tokens per sample, of text
    // tokens
    tri_token_type dtype; // of the numbers in the files
    // synthetic
    tri_ints shape; // of a sample, without the axis of samples
    int64_t samples, test_samples;
    int64_t classes;    // 0: targets of the inputs' own shape
    int64_t vocabulary; // not 0: `sequence` token numbers below it
} tri_data_options;

extern const tri_option_table tri_data_table;

#endif
