// What a kind of data set supplies; a new one is a file with such a struct and a row in dataset.c.
#ifndef TRIREME_DATA_KIND_H
#define TRIREME_DATA_KIND_H

#include "base/limits.h"
#include "data/dataset.h"
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
    bool (*has_test)(const tri_data_options *options);
    // Fields from options alone, into an empty dataset. May be NULL.
    tri_status (*describe)(tri_dataset *dataset);
} tri_dataset_kind;

typedef struct tri_dataset_column {
    tri_data_field fed;
    tri_dtype stored;
    size_t stored_bytes;
    const tri_transforms *transforms; // of images, else NULL
} tri_dataset_column;

struct tri_dataset {
    tri_arena *arena;
    const tri_dataset_kind *kind;
    const tri_data_options *options;
    tri_data_split split;
    uint64_t seed;
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
// `name` within data.path; absolute names stay.
const char *tri_dataset_path(tri_dataset *dataset, const char *name);

extern const tri_dataset_kind tri_dataset_idx, tri_dataset_tensors, tri_dataset_synthetic,
    tri_dataset_tokens;

#endif
