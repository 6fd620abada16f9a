// The interface of a kind of data set (data.name). To add a kind, write a file that defines a
// tri_dataset_kind, and a row in kinds.h.
#ifndef TRIREME_DATA_KIND_H
#define TRIREME_DATA_KIND_H

#include "base/limits.h"
#include "data/dataset.h"
#include "data/fields.h"
#include "data/kinds.h"
#include "data/left_out.h"
#include "data/names.h"
#include "data/split.h"
#include "data/transform/transform.h"

// The value of one field of a sample, as the files have it. `read` of a kind gets `buffer` and sets
// the rest.
typedef struct tri_sample_value {
    void *buffer;     // room for the stored elements of the sample; NULL if their number varies
    const void *data; // the elements: in `buffer`, or in memory of the kind or of its worker
    tri_image image;  // in place of `data`, for images whose sizes vary
    // The image file that `image` was decoded from, in memory of the worker; NULL: there is none.
    const void *encoded;
    size_t encoded_bytes;
} tri_sample_value;

typedef struct tri_dataset_kind {
    // Opens the data. Sets `samples` and `state`, which lies in dataset->arena, and adds the fields
    // by tri_dataset_add. Then sets `classes` and `has_ignored` of I64 fields, and `names` of
    // fields. If it fails, its caller calls `close`, which has to release what was opened.
    tri_status (*open)(tri_dataset *dataset);
    void (*close)(tri_dataset *dataset);
    // A worker is what one thread needs to read, such as a decoder and its memory. NULL: nothing.
    tri_status (*worker_create)(const tri_dataset *dataset, void **out);
    void (*worker_destroy)(void *worker);
    // Reads all fields of one sample into values [field_count], of which only `buffer` is set. Any
    // number of threads may call it at the same time, each with its own worker. TRI_CORRUPT: this
    // sample is damaged, and the message names its file; opening has not found it (data.on_error
    // says what follows).
    tri_status (*read)(const tri_dataset *dataset, void *worker, int64_t sample,
                       tri_sample_value *values);
    // Converts a number of a sample of epoch `epoch` to the one that `read` gets. NULL: it is the
    // same in every epoch.
    int64_t (*at_epoch)(const tri_dataset *dataset, int64_t sample, int64_t epoch);
    // Prefetches a sample that will be read soon. NULL: that would not make reading faster.
    void (*hint)(const tri_dataset *dataset, int64_t sample);
    // Verifies the checksums of all bytes of the files; `open` does not, in order to be fast. NULL:
    // there is nothing left to verify.
    tri_status (*verify)(const tri_dataset *dataset);
    // True if the options define validation or test data. NULL: if they name files of the split.
    bool (*names)(const tri_data_options *options, tri_data_split split);
    bool has_usual_test; // test data have a usual name, so that nobody has to name them
    // True if samples are windows of data.sequence tokens. NULL: they never are.
    bool (*is_text)(const tri_data_options *options);
    // Adds the fields that follow from the options alone, for plans, which do not open the data.
    // NULL: without the data, no field is known; of a mixture, none is added then.
    tri_status (*describe)(tri_dataset *dataset);
    // True: `describe` adds the kind's usual shapes, but those in the files may differ.
    bool describes_guess;
    // True: samples are decoded, and so checked, when they are read. False: opening checks all.
    bool is_decoded;
} tri_dataset_kind;

// What a data set has beside its samples. A mixture has what its sources have together
// (add_facts in mixture_dataset.c), so a new member belongs there, too.
typedef struct tri_data_facts {
    // Of the kind; of a mixture, those of the sources' kinds.
    bool is_decoded, has_fixed_fields, describes_guess;
    // Set by `open` of the kind.
    const char *rest; // what of the files no sample has: see tri_dataset_rest; NULL: nothing
    bool rest_is_usual;
    tri_data_lengths documents; // see tri_dataset_documents
    const char *guessed;        // see tri_dataset_guessed
    const char *doubt;          // see tri_dataset_doubt
    // What tri_dataset_hash_files hashes: files (tri_dataset_note_file), and the names of those
    // that are too many to be read.
    const char **files;
    int file_count, file_capacity;
    uint64_t listing;
    // The files or folders that the recipe names for the split, as often as it does.
    const char **sources;
    int source_count, source_capacity;
    int64_t documents_left_out;
} tri_data_facts;

// A field as the files contain it and, in `field`, as the model gets it.
typedef struct tri_stored_field {
    tri_data_field field;
    tri_field_row row;
    int64_t classes;  // number of classes of an I64 field, set by the kind: see tri_dataset_classes
    bool has_ignored; // some numbers of an I64 field are -100, which losses ignore; set by the kind
    tri_number_names names; // what the numbers mean; set by the kind
    tri_dtype stored_dtype;
    tri_shape stored_shape; // shape of one sample in the files
    // Size of one sample in the files, in bytes; 0: it varies, and the shape has TRI_ANY_SIZE.
    size_t stored_bytes;
    bool makes_soft; // the numbers of classes in the files become soft labels (mixup, cutmix)
    // NULL unless the field is `images`, or `inputs` that are a list of numbers, which are
    // normalised as the channels of an image of one pixel.
    const tri_transforms *transforms;
} tri_stored_field;

// The shape that transforms see.
static inline tri_shape tri_stored_image_shape(const tri_stored_field *field) {
    const tri_shape *shape = &field->stored_shape;
    if (shape->rank == 2) return tri_shape_of(1, shape->dims[0], shape->dims[1]);
    return shape->rank == 3 ? *shape : tri_shape_of(shape->dims[0], 1, 1);
}

struct tri_dataset {
    tri_arena *arena;
    const tri_dataset_kind *kind;
    const tri_data_options *options;
    tri_data_split split;
    // The split whose files the kind opens. It differs from `split` only for validation data that
    // data.val_fraction takes from the training files.
    tri_data_split file_split;
    uint64_t seed;
    tri_mix_options mixing; // of the split for training
    // Which samples in the files belong to `split`; NULL: all of them.
    const tri_validation_split *validation_split;
    // The data set whose files and state this one uses; NULL: it has its own.
    const tri_dataset *owner;
    int64_t samples;
    bool moves_padding; // tri_dataset_move_padding was called
    bool repeats_epoch; // tri_dataset_repeat_epoch was called
    bool is_evaluated;  // the split for training, opened for an evaluation on it
    tri_data_facts facts;
    tri_left_out *left_out; // the damaged samples that were left out so far (data.on_error: skip)
    int field_count;
    tri_stored_field fields[TRI_MAX_DATA_FIELDS];
    void *state; // private data of the kind, such as its open files; set by tri_dataset_kind.open
};

// Adds the field `name`. Each of its samples is stored as elements of type `stored` in `shape`; for
// images, height and width may be TRI_ANY_SIZE.
// TRI_BAD_INPUT: neither fields.c nor data.extra_fields has a field of that name, or its type or
// number of axes does not allow this; the message names `source`, a file or an option.
tri_status tri_dataset_add(tri_dataset *dataset, const char *source, const char *name,
                           tri_dtype stored, const tri_shape *shape);
// Returns the names in the order in which fields are added that a file names: the alphabet's, so
// that the files of all splits have the same, whatever wrote them.
const char **tri_dataset_field_order(tri_arena *arena, const char *const *names, int count);
// tri_dataset_files gets the value of data.train, data.val or data.test, depending on file_split;
// NULL: the recipe does not set it. tri_dataset_file gets the value's text; NULL if it is a map.
const tri_tree *tri_dataset_files(const tri_dataset *dataset);
const char *tri_dataset_file(const tri_dataset *dataset);
// Makes a path from `name`; a relative name is relative to data.path.
const char *tri_dataset_path(tri_dataset *dataset, const char *name);
// Finds the path of the split's file, for kinds whose split is one file. For training, data.path
// may be the file itself, which makes the shortest recipe. TRI_NOT_FOUND: neither is set; `what`
// says in the message what is looked for, such as "the CSV file with the samples".
tri_status tri_dataset_find_path(tri_dataset *dataset, const char *what, const char **out);

// Notes that samples are read from this file, or made with its help.
void tri_dataset_note_file(tri_dataset *dataset, const char *path);
// Adds a path to facts.sources. The path is used as it is.
void tri_dataset_note_source(tri_dataset *dataset, const char *path);

// Makes a data set that has only the fields that follow from the options (`describe`); there are
// none if the files alone say which. tri_dataset_forget ends it.
tri_status tri_dataset_describe_stored(const tri_data_options *options, tri_dataset **out);
void tri_dataset_forget(tri_dataset *dataset); // NULL allowed
// Reads a sample by the kind. TRI_CORRUPT: it is damaged.
tri_status tri_dataset_read(const tri_dataset *dataset, void *worker, int64_t sample,
                            tri_sample_value *values);

#define TRI_DECLARE_KIND(word, rows, count, help) extern const tri_dataset_kind tri_dataset_##word;
TRI_DATASET_KINDS(TRI_DECLARE_KIND)
#undef TRI_DECLARE_KIND
// The kind "parquet" where data.tokenizer is set: a column of text.
extern const tri_dataset_kind tri_dataset_parquet_text;

#endif
