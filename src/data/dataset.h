// A data set: numbered samples, each with one or more named tensors, its fields. The number of
// samples and the fields are known once it is open; any number of threads may read at once.
//
// A model receives the fields of the table in fields.c, F32 or I64, and those that the recipe
// declares.
#ifndef TRIREME_DATA_DATASET_H
#define TRIREME_DATA_DATASET_H

#include "base/status.h"
#include "data/options.h"
#include "tensor/pixels.h"

#include <trireme/tensor.h>

typedef struct tri_dataset tri_dataset;

typedef enum tri_data_split { TRI_DATA_TRAIN, TRI_DATA_VAL, TRI_DATA_TEST } tri_data_split;

// A field as the model receives it, after conversion and transforms.
typedef struct tri_data_field {
    const char *name;  // lives as long as the options
    tri_dtype dtype;   // F32 or I64; U8 after tri_dataset_keep_bytes
    tri_shape shape;   // of one sample
    size_t size_bytes; // of one sample
} tri_data_field;

// Opens the training, validation or test data and checks all that can be checked without reading
// every sample; errors name the file. `options` must outlive the data set. `seed` is the run's: it
// determines random data, random transforms, and which samples data.val_fraction takes from the
// training data. TRI_NOT_FOUND if this split does not exist.
tri_status tri_dataset_open(const tri_data_options *options, tri_data_split split, uint64_t seed,
                            tri_dataset **out);
// Opens the validation data of a run whose training data are open. With data.val_fraction they
// share the files and memory of `train`, which must outlive them.
tri_status tri_dataset_open_validation(const tri_dataset *train, tri_dataset **out);
void tri_dataset_close(tri_dataset *dataset); // NULL allowed

// True if the options define this split. Opens no file.
bool tri_data_has(const tri_data_options *options, tri_data_split split);
// The split's name for messages: "training", "validation", "test".
const char *tri_data_split_name(tri_data_split split);

// Finds the fields from the options alone, for plans, which do not open the data. They come from
// data.shapes or from the settings of "synthetic" and "tokens"; for other kinds they are the usual
// shapes of the kind, which is a guess (*is_guess). *count is 0 if none of this applies. `fields`
// has room for TRI_MAX_DATA_FIELDS.
tri_status tri_data_describe(const tri_data_options *options, tri_data_field *fields, int *count,
                             bool *is_guess);
// The value of data.shapes that describes the open data set, for a user to copy into a recipe.
const char *tri_dataset_shapes(const tri_dataset *dataset, tri_arena *arena);

int64_t tri_dataset_samples(const tri_dataset *dataset);
int tri_dataset_field_count(const tri_dataset *dataset);
const tri_data_field *tri_dataset_field(const tri_dataset *dataset, int index);
// The type of a field's elements in the files.
tri_dtype tri_dataset_stored(const tri_dataset *dataset, int index);
// Returns true if the shapes look wrong; then `text` says what is wrong and what to do.
bool tri_dataset_warning(const tri_dataset *dataset, char *text, size_t size);
enum { TRI_NO_FIELD = -1 };
// Index of the field `name`, or TRI_NO_FIELD.
int tri_dataset_find(const tri_dataset *dataset, const char *name);
// One more than the largest number of an I64 field (classes or tokens), against which a model's
// classes are checked; 0 when there is no such field, or every number is -100.
int64_t tri_dataset_classes(const tri_dataset *dataset, const char *field);
// True if some number of the field is -100. As a label it means that the loss leaves it out; as a
// token it would be an invalid index.
bool tri_dataset_has_ignored(const tri_dataset *dataset, const char *field);

// True if images are stored as bytes and the model gets each byte scaled by a tri_pixel_scale,
// which is then *out: then the device can do the scaling.
bool tri_dataset_scale(const tri_dataset *dataset, tri_pixel_scale *out);
// Makes images be read as bytes from now on; then the caller has to apply the scale. Bytes take a
// quarter of the memory and of the way to a GPU. Call it before any image is read.
void tri_dataset_keep_bytes(tri_dataset *dataset);

// Bytes of scratch memory that each thread needs for tri_dataset_read, which allocates nothing.
size_t tri_dataset_scratch_bytes(const tri_dataset *dataset);
// Reads field `field` of sample `sample`, converted and transformed, to `out` (size_bytes of the
// field). Random transforms depend on `epoch`, so that they differ from epoch to epoch but are the
// same when a run is resumed.
tri_status tri_dataset_read(const tri_dataset *dataset, int field, int64_t sample, int64_t epoch,
                            void *scratch, void *out);
// Verifies the checksums that are stored in the files, if opening has not done so because it takes
// long.
tri_status tri_dataset_verify(const tri_dataset *dataset);
// Fetches into the caches a sample that one of the next few reads will ask for, so that the read
// does not wait for memory.
void tri_dataset_hint(const tri_dataset *dataset, int field, int64_t sample);

#endif
