// The settings of the recipe's section `data`.
#ifndef TRIREME_DATA_OPTIONS_H
#define TRIREME_DATA_OPTIONS_H

#include "base/option.h"
#include "format/tokens.h"

typedef struct tri_data_options {
    const char *name; // the kind: a row of TRI_DATASET_KINDS
    const char *path; // folder of the files
    // Files, absolute or relative to `path`; for npy also maps from fields to files. NULL: the
    // kind's usual names for training and test data, and no validation file.
    const tri_tree *train, *val, *test;
    double val_fraction; // of the training samples, for validation; 0: none
    bool shuffle, drop_last;
    int64_t workers;              // loader threads; 0: the caller reads
    const tri_tree *transform;    // list of transforms; NULL: none
    const tri_tree *extra_fields; // map from names to types (fields.h); NULL: none
    const tri_tree *shapes;       // map from fields to the sizes of one stored sample
    int64_t limit;    // uses only so many samples of the training files, the first; 0: all
    int64_t sequence; // of text: tokens per sample
    // These are for the kind "tokens".
    tri_token_type dtype; // of the token numbers in the files
    // These are for the kind "synthetic".
    tri_ints shape; // of one sample
    int64_t samples, test_samples;
    int64_t classes;    // of the labels; 0: no labels, but targets of the inputs' shape
    int64_t vocabulary; // not 0: samples are `sequence` token numbers below this
} tri_data_options;

extern const tri_option_table tri_data_table;

#endif
