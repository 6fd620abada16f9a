// A data set: samples by number, each a few named tensors. How many there are and what they look
// like is known once it is open; reading is safe from any number of threads.
//
// Fields are those of tri_batch: images F32 [C, H, W], labels I64 [] (-100: ignored), inputs and
// targets F32 of any shape, input_ids I64 [T].
#ifndef TRIREME_DATA_DATASET_H
#define TRIREME_DATA_DATASET_H

#include "base/status.h"
#include "data/options.h"

#include <trireme/tensor.h>

typedef struct tri_dataset tri_dataset;

typedef enum tri_data_split { TRI_DATA_TRAIN, TRI_DATA_VAL, TRI_DATA_TEST } tri_data_split;

typedef struct tri_data_field {
    const char *name;
    tri_dtype dtype; // as it is fed: F32 or I64
    tri_shape shape; // of one sample
    size_t size_bytes;
} tri_data_field;

// Opens the training, validation or test data and checks all that can be checked without reading
// every sample; the errors name the file. `options` must outlive the data set. `seed` is the run's:
// it keys random data, random transforms and the samples that data.val_fraction holds back, of
// which the training data are free. TRI_NOT_FOUND when this split does not exist.
tri_status tri_dataset_open(const tri_data_options *options, tri_data_split split, uint64_t seed,
                            tri_dataset **out);
// The validation data of a run whose training data are open. With data.val_fraction it uses their
// files and memory, so `train` must outlive it.
tri_status tri_dataset_open_validation(const tri_dataset *train, tri_dataset **out);
void tri_dataset_close(tri_dataset *dataset); // NULL allowed

// Whether the recipe has this split at all; looks at options only.
bool tri_data_has(const tri_data_options *options, tri_data_split split);
// "training", "validation", "test".
const char *tri_data_split_name(tri_data_split split);

// The fields of a data set as its options alone tell them: data.shapes, the settings of "synthetic"
// and "tokens", or, as a guess, what data of the kind look like as a rule; else *count is 0. For
// plans, which do not open the data. `fields` has room for TRI_MAX_DATA_FIELDS.
tri_status tri_data_describe(const tri_data_options *options, tri_data_field *fields, int *count,
                             bool *is_guess);
// The value of data.shapes that is true of an open data set.
const char *tri_dataset_shapes(const tri_dataset *dataset, tri_arena *arena);

int64_t tri_dataset_samples(const tri_dataset *dataset);
int tri_dataset_field_count(const tri_dataset *dataset);
const tri_data_field *tri_dataset_field(const tri_dataset *dataset, int index);
// Of the elements in the files.
tri_dtype tri_dataset_stored(const tri_dataset *dataset, int index);
// What about the shapes is likely not meant, and what to do, into `text`; false: nothing.
bool tri_dataset_warning(const tri_dataset *dataset, char *text, size_t size);
// Index of the field `name`; -1 when there is none.
int tri_dataset_find(const tri_dataset *dataset, const char *name);
// One more than the largest label or token number; 0 when there are none.
int64_t tri_dataset_classes(const tri_dataset *dataset);

// Bytes of scratch memory for a call of tri_dataset_read; one per thread.
size_t tri_dataset_scratch_bytes(const tri_dataset *dataset);
// Field `field` of sample `sample` as it is fed in `epoch` (random transforms differ), size_bytes
// bytes at `out`.
tri_status tri_dataset_read(const tri_dataset *dataset, int field, int64_t sample, int64_t epoch,
                            void *scratch, void *out);
// Compares all bytes with the checksums that the files have, where opening has not done it.
tri_status tri_dataset_verify(const tri_dataset *dataset);
// Says that this sample will be read soon, a few reads from now.
void tri_dataset_hint(const tri_dataset *dataset, int field, int64_t sample);

#endif
