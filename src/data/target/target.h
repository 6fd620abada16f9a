// Writes a data set as another kind (`trireme data convert`): sample after sample, as they are
// stored, without transforms. Encoded images keep their bytes where the kind has files of images.
//
// A conversion that was ended goes on from its last mark: how many samples are in the files for
// good.
#ifndef TRIREME_DATA_TARGET_TARGET_H
#define TRIREME_DATA_TARGET_TARGET_H

#include "base/limits.h"
#include "data/dataset.h"
#include "tensor/image.h"

#include <limits.h>

// A field of the samples that are written.
typedef struct tri_target_field {
    const char *name;
    tri_dtype dtype;
    tri_shape shape; // of one sample
    size_t bytes;    // size of one sample
    bool is_encoded; // each sample is an image file: sizes vary, or are those of the first one
} tri_target_field;

// The value of one field of a sample.
typedef struct tri_target_value {
    const void *data; // the elements; of an encoded image [C, H, W] bytes, or NULL if they are not
                      // wanted (keeps_encoded)
    const void *encoded; // the image file; NULL: the field has none
    size_t encoded_bytes;
} tri_target_value;

// What a conversion goes on from.
typedef struct tri_target_mark {
    int64_t samples, bytes;
    bool is_complete; // the kind's `end` has completed the files: they lack only their names
} tri_target_mark;

// What a file in the target's folder may end with until all splits are complete; the conversion
// itself takes it away then.
#define TRI_TARGET_PART ".part"

// The files of one split that are being written.
typedef struct tri_target {
    tri_arena *arena;
    const char *folder; // exists
    const char *split;  // "train", "val" or "test": the files' names begin with it
    int64_t samples, classes;
    int64_t tokens; // the largest token plus one; 0: there are none
    int field_count;
    tri_target_field fields[TRI_MAX_DATA_FIELDS];
    void *state; // of the kind
} tri_target;

typedef struct tri_target_kind {
    const char *name;     // of --to
    const char *reads_as; // data.name; NULL: the same
    bool keeps_encoded;   // image files stay as they are
    bool may_leave_out;   // false: it has a place for every sample
    bool needs_test;      // data without test data cannot be read
    // Whether a mark is worth while after so many samples, apart from those at times.
    bool (*marks_at)(int64_t samples);
    // Checks whether the kind can have these fields. TRI_BAD_INPUT.
    tri_status (*check)(const tri_target *target);
    // Opens or makes the files, to go on after *mark, which becomes 0 where they lack what it says;
    // close releases what was opened.
    tri_status (*begin)(tri_target *target, tri_target_mark *mark);
    tri_status (*put)(tri_target *target, int64_t sample, const tri_target_value *values);
    // Moves *mark forward to what is in the files now, as far as the kind can go on from there.
    tri_status (*sync)(tri_target *target, int64_t samples, tri_target_mark *mark);
    // Completes the files after the last sample, and syncs them. Repeated after a kill.
    tri_status (*end)(tri_target *target);
    void (*close)(tri_target *target);
    // The value of data.train or data.test that reads the files.
    const char *(*value)(const tri_target *target);
    // Other keys of the section `data` that reads the files, one a line; NULL: there are none.
    const char *(*keys)(const tri_target *target);
} tri_target_kind;

// Every kind that can be written: the kind X is tri_target_X.
#define TRI_TARGETS(X)                                                                             \
    X(imagefolder)                                                                                 \
    X(webdataset)                                                                                  \
    X(lmdb) X(hdf5) X(tensors) X(npy) X(npz) X(csv) X(idx) X(cifar10) X(tokens) X(parquet)
#define X(word) extern const tri_target_kind tri_target_##word;
TRI_TARGETS(X)
#undef X

// For `begin`: *mark becomes 0, so that the split begins again, if the file is not there or ends
// before mark->bytes.
void tri_target_check_part(const char *path, tri_target_mark *mark);
bool tri_target_marks_at_times(int64_t samples); // for marks_at: no
// For keys: data.fields, by which each field is the array or column of its name.
const char *tri_target_fields(const tri_target *target);
// For kinds of several files: whether a file ends after so many samples, the file in which a sample
// is, and the pattern that stands for all files.
bool tri_target_is_shard_end(int64_t samples);
void tri_target_shard(const tri_target *target, int64_t sample, const char *suffix,
                      char path[PATH_MAX]);
const char *tri_target_shards(const tri_target *target, const char *suffix);
int tri_target_find(const tri_target *target, const char *field); // TRI_NO_FIELD: there is none
// For kinds of image files: checks that the fields are images, and labels or not.
tri_status tri_target_check_images(const tri_target *target, const char *kind);
// Makes PGM or PPM of an image of bytes with 1 or 3 channels, in *made, which the caller frees.
tri_status tri_target_make_file(const tri_image *image, char **made, size_t *bytes);
// The image file of a sample: what the data set has, or PGM or PPM made from bytes, in *made, which
// the caller frees. *suffix: what its name ends with, such as "jpg".
tri_status tri_target_image(const tri_target *target, const tri_target_value *value, char **made,
                            const void **file, size_t *bytes, const char **suffix);
// The class of a sample; -1: it has none.
int64_t tri_target_label(const tri_target *target, const tri_target_value *values);

// Converts all splits of a data set to `kind`, as files in `folder`, which is made; it has to be
// empty, or that of a conversion of the same data that did not end. Prints the section `data` of a
// recipe that reads them. TRI_BAD_INPUT: there is no such target, or it cannot have these data.
tri_status tri_data_convert(const tri_data_options *options, const char *kind, const char *folder);

// The name of target `index` (--to); NULL: there are no more.
const char *tri_target_name(int index);
// Converts the first `most` training samples, for a comparison of kinds, without a word. *out, in
// `arena`, is the map that the section `data` becomes that reads them.
tri_status tri_data_convert_part(tri_arena *arena, const tri_data_options *options,
                                 const char *kind, const char *folder, int64_t most,
                                 tri_tree **out);

#endif
