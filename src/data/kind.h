// What a kind of data set supplies; a new one is a file with such a struct and a row in dataset.c.
#ifndef TRIREME_DATA_KIND_H
#define TRIREME_DATA_KIND_H

#include "base/limits.h"
#include "data/dataset.h"
#include "data/split.h"
#include "data/transform.h"

typedef struct tri_dataset_kind {
    const char *name;
    // Fills samples, classes, fields (through tri_dataset_add) and state; memory from
    // dataset->arena. After a failure `close` is called on what there is.
    tri_status (*open)(tri_dataset *dataset);
    void (*close)(tri_dataset *dataset);
    // The stored elements of one sample: *stored points into the kind's own memory or to `buffer`,
    // which has room for them. Any number of threads at once.
    tri_status (*read)(const tri_dataset *dataset, int field, int64_t sample, void *buffer,
                       const void **stored);
    // The sample will be read soon: asks the memory for it. NULL: no use.
    void (*hint)(const tri_dataset *dataset, int field, int64_t sample);
    // Checksums that `open` leaves, since they are of all bytes. NULL: none.
    tri_status (*verify)(const tri_dataset *dataset);
    bool (*has_test)(const tri_data_options *options);
    // Fields from options alone, into an empty dataset. May be NULL.
    tri_status (*describe)(tri_dataset *dataset);
    bool describes_guess; // what such data look like as a rule: the files may say otherwise
} tri_dataset_kind;

typedef struct tri_dataset_column {
    tri_data_field fed;
    tri_dtype stored;
    tri_shape stored_shape; // of one sample
    size_t stored_bytes;
    const tri_transforms *transforms; // of images, else NULL
} tri_dataset_column;

struct tri_dataset {
    tri_arena *arena;
    const tri_dataset_kind *kind;
    const tri_data_options *options;
    tri_data_split split;
    // Whose files hold the samples, for the kind: the training data's, where data.val_fraction
    // takes the validation data from them.
    tri_data_split files;
    uint64_t seed;
    const tri_split *part;    // of the files' samples; NULL: the split is all of them
    const tri_dataset *owner; // opened the files, whose state this one uses; NULL: this one did
    int64_t samples, classes;
    int field_count;
    tri_dataset_column fields[TRI_MAX_DATA_FIELDS];
    size_t scratch_bytes, buffer_bytes;
    void *state;
};

// Adds a field of tri_batch, stored as `stored` elements of `shape` per sample. `source` names the
// file or option in errors: TRI_BAD_INPUT for a name, shape or type that cannot be fed.
tri_status tri_dataset_add(tri_dataset *dataset, const char *source, const char *name,
                           tri_dtype stored, const tri_shape *shape);
// Whether it is the name of a model's input.
bool tri_data_is_field(const char *name);
// What data.train, data.val or data.test says, of `files`, or NULL; and the name, if it is one.
const tri_tree *tri_dataset_files(const tri_dataset *dataset);
const char *tri_dataset_file(const tri_dataset *dataset);
// `name` within data.path; absolute names stay.
const char *tri_dataset_path(tri_dataset *dataset, const char *name);

extern const tri_dataset_kind tri_dataset_idx, tri_dataset_tensors, tri_dataset_synthetic,
    tri_dataset_tokens, tri_dataset_npy;

#endif
