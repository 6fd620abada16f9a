// The settings of the recipe's section `data`.
#ifndef TRIREME_DATA_OPTIONS_H
#define TRIREME_DATA_OPTIONS_H

#include "base/option.h"
#include "format/tokens.h"

// What happens if a sample turns out to be damaged when it is read.
typedef enum tri_data_on_error { TRI_DATA_REFUSE, TRI_DATA_SKIP } tri_data_on_error;

typedef struct tri_data_options {
    const char *name; // the kind of data: a row of TRI_DATASET_KINDS
    const char *path; // folder with the files, or the training file itself
    // The files of the three splits, absolute or relative to `path`; for npy also maps from fields
    // to files. NULL: the recipe names none. Then `path` may be the training file itself, and idx
    // finds its training and test files by their usual names.
    const tri_tree *train, *val, *test;
    double val_fraction; // fraction of the training samples that serves for validation; 0: none
    bool shuffle, drop_last;
    tri_data_on_error on_error;
    int64_t workers;              // number of loader threads; 0: the training loop itself reads
    const tri_tree *transform;    // a list of transforms; NULL: none
    const tri_tree *fields;       // a map from fields to arrays or columns of a file; NULL: none
    const tri_tree *extra_fields; // a map from names to types (fields.h); NULL: none
    const tri_tree *shapes;       // a map from fields to the sizes of one stored sample
    int64_t limit;       // only the first `limit` samples of the training files are used; 0: all
    int64_t sequence;    // for text: number of tokens in each sample
    const tri_tree *mix; // a list of sources, for the kind "mixture"; NULL: none
    // For the kinds "jsonl", "tokens" and "webdataset": the folder for what is made of the data
    // once; NULL: where it can be.
    const char *cache;
    // The members below are for the kind "csv".
    const char *delimiter; // one character, or the word tab
    bool header;           // the first record names the columns
    // `refuse`, a number that stands for missing values, or a map from columns to such numbers or,
    // for labels that are names, to `class` (tri_data_missing_is_class): NA is one of them.
    const tri_tree *missing;
    // The members below are for the kind "tokens".
    tri_token_type dtype; // type of the token numbers in the files
    // The members below are for the kinds "jsonl" and "parquet".
    const char *field;     // the key of a line's text, or the column
    const char *tokenizer; // path of a tokenizer.json or tokenizer.model
    // The members below are for the kind "synthetic".
    tri_ints shape; // shape of one sample
    int64_t samples, test_samples;
    // Number of classes of the labels; 0: no labels, but targets of the inputs' shape.
    int64_t classes;
    int64_t vocabulary; // not 0: a sample is `sequence` token numbers, all below `vocabulary`
    // No setting: set for outputs of the model, for which the files need not have every field that
    // the recipe names, such as the labels.
    bool may_lack_fields;
} tri_data_options;

// tri_dataset_choice_of_fields of data with these options.
const char *tri_data_choice_of_fields(const tri_data_options *data);
// Whether a value of the map `missing` is the word `class`.
bool tri_data_missing_is_class(const tri_tree *value);

extern const tri_option_table tri_data_table;

#endif
