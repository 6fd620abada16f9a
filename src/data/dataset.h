// A data set: numbered samples, each with one or more named tensors, its fields. The number of
// samples and the fields are known once it is open; any number of threads may read at the same
// time.
//
// Each field is either in the table of fields.c or declared by the recipe (data.extra_fields). A
// model gets it as F32 or I64.
#ifndef TRIREME_DATA_DATASET_H
#define TRIREME_DATA_DATASET_H

#include "base/status.h"
#include "data/names.h"
#include "data/options.h"
#include "data/transform/transform.h"
#include "tensor/pixels.h"

#include <trireme/tensor.h>

typedef struct tri_dataset tri_dataset;

typedef enum tri_data_split {
    TRI_DATA_TRAIN,
    TRI_DATA_VAL,
    TRI_DATA_TEST,
    TRI_DATA_SPLITS, // how many there are
} tri_data_split;

// A field as the model gets it, after conversion and transforms.
typedef struct tri_data_field {
    const char *name;  // lives as long as the options of the data set
    tri_dtype dtype;   // F32 or I64; U8 after tri_dataset_keep_bytes
    tri_shape shape;   // shape of one sample
    size_t size_bytes; // size of one sample in bytes
} tri_data_field;

// Lengths of texts, in tokens.
typedef struct tri_data_lengths {
    int64_t count, least, most, sum;
} tri_data_lengths;

static inline void tri_data_lengths_add(tri_data_lengths *to, const tri_data_lengths *more) {
    if (more->count == 0) return;
    if (to->count == 0 || more->least < to->least) to->least = more->least;
    if (more->most > to->most) to->most = more->most;
    to->count += more->count;
    to->sum += more->sum;
}

// Opens the training, validation or test data and checks everything that can be checked without
// reading every sample; errors name the file. `options` must outlive the data set. `seed` is the
// run's: random data, random transforms, and the choice of samples by data.val_fraction follow from
// it. TRI_NOT_FOUND: this split does not exist.
tri_status tri_dataset_open(const tri_data_options *options, tri_data_split split, uint64_t seed,
                            tri_dataset **out);
// Opens the training samples for an evaluation on them: random transforms do nothing, and every
// epoch has the samples of epoch 0.
tri_status tri_dataset_open_training_as_evaluated(const tri_data_options *options, uint64_t seed,
                                                  tri_dataset **out);
// Opens the validation data of a run whose training data are already open. With data.val_fraction
// they share the files and memory of `train`, which must outlive them.
tri_status tri_dataset_open_validation(const tri_dataset *train, tri_dataset **out);
// Opens all samples of the split's files as they are stored, without transforms, for the interface
// of their kind (kind.h) alone.
tri_status tri_dataset_open_stored(const tri_data_options *options, tri_data_split split,
                                   tri_dataset **out);
void tri_dataset_close(tri_dataset *dataset); // NULL allowed

// True if the options define this split. Opens no file.
bool tri_data_has(const tri_data_options *options, tri_data_split split);
// The same, but only by what the options name, and not by usual names of files, or as a part of the
// training data.
bool tri_data_names(const tri_data_options *options, tri_data_split split);
// True if the samples are text, so that data.sequence says how long they are. Opens no file.
bool tri_data_is_text(const tri_data_options *options);
// The split's name for messages: "training", "validation", "test".
const char *tri_data_split_name(tri_data_split split);
// The split's key in a recipe: "train", "val", "test".
const char *tri_data_split_key(tri_data_split split);

// Finds the fields of a data set from its options alone, for plans, which do not open the data.
// They come from data.shapes or from the settings of "synthetic" and "tokens". For other kinds they
// are a guess, the kind's usual shapes, and *is_guess is true. *count is 0 if nothing is known.
// `fields` has room for TRI_MAX_DATA_FIELDS.
tri_status tri_data_describe(const tri_data_options *options, tri_data_field *fields, int *count,
                             bool *is_guess);
// Returns, in `arena`, the value of data.shapes that describes the open data set, so that a user
// can copy it into a recipe.
const char *tri_dataset_shapes(const tri_dataset *dataset, tri_arena *arena);

int64_t tri_dataset_samples(const tri_dataset *dataset);
// How many samples data.val_fraction leaves to train on, of the files of this data set; 0: it does
// not divide them.
int64_t tri_dataset_left_to_train(const tri_dataset *dataset);
// Converts a sample's number in this split to its number in the files, which may contain training
// and validation samples.
int64_t tri_dataset_file_sample(const tri_dataset *dataset, int64_t sample);
int tri_dataset_field_count(const tri_dataset *dataset);
const tri_data_field *tri_dataset_field(const tri_dataset *dataset, int index);
// The type of a field's elements in the files.
tri_dtype tri_dataset_stored(const tri_dataset *dataset, int index);
// A file of tokens whose type follows from its name alone; NULL: there is none.
const char *tri_dataset_guessed(const tri_dataset *dataset);
// What to warn of: a sentence about what can hardly be meant; NULL: nothing.
const char *tri_dataset_doubt(const tri_dataset *dataset);
// True if the kind of data set determines the fields (as idx always has images and labels), and
// not a file that the user wrote for this model.
bool tri_dataset_has_fixed_fields(const tri_dataset *dataset);
// What chooses the fields of such data, as advice of a message; NULL: their files alone do.
const char *tri_dataset_choice_of_fields(const tri_dataset *dataset);
// True if the shapes look wrong; then `text` tells what is wrong and what to do.
bool tri_dataset_warning(const tri_dataset *dataset, char *text, size_t size);
enum { TRI_NO_FIELD = -1 };
// Finds the index of the field `name`; TRI_NO_FIELD: there is none.
int tri_dataset_find(const tri_dataset *dataset, const char *name);
// The largest number of an I64 field (classes or tokens), plus one. A model's classes are checked
// against it. 0: there is no such field, or every number is -100.
int64_t tri_dataset_classes(const tri_dataset *dataset, const char *field);
// True if some number of the field is -100. For a label this means that the loss ignores it; for a
// token it would be an invalid index.
bool tri_dataset_has_ignored(const tri_dataset *dataset, const char *field);
// Whether damaged samples are left out (data.on_error: skip), by labels that losses ignore.
bool tri_dataset_leaves_out(const tri_dataset *dataset);
// How many damaged samples were left out so far (data.on_error: skip). Each counts once.
int64_t tri_dataset_left_out(const tri_dataset *dataset);
// Whether the sample was left out when it was read.
bool tri_dataset_has_left_out(const tri_dataset *dataset, int64_t sample);
// How many damaged documents were left out when the text was packed (data.on_error: skip).
int64_t tri_dataset_documents_left_out(const tri_dataset *dataset);

// How the samples of each step are to be mixed; NULL: they are not, as in evaluation.
const tri_mix_options *tri_dataset_mix(const tri_dataset *dataset);
// The seed with which the data set was opened.
uint64_t tri_dataset_seed(const tri_dataset *dataset);
// The documents of which the samples' text consists, in tokens, without end marks. A count of 0:
// the kind of data set has no documents.
tri_data_lengths tri_dataset_documents(const tri_dataset *dataset);
// Describes what of the files no sample has, such as files of another type: "3 files, the first is
// …". NULL: nothing. *is_usual: nobody needs to be warned of it, as of the end of a text that fills
// no sample.
const char *tri_dataset_rest(const tri_dataset *dataset, bool *is_usual);

// True if images are stored as bytes and the model gets each byte scaled by a tri_pixel_scale,
// which is then *out. In that case the device can do the scaling.
bool tri_dataset_scale(const tri_dataset *dataset, tri_pixel_scale *out);
// From now on images are read as bytes, and the caller has to apply the scale. Bytes take a quarter
// of the memory and of the time to copy them to a GPU. To be called before any image is read.
void tri_dataset_keep_bytes(tri_dataset *dataset);

// From now on, tokens that `attention_mask` marks as padding before the text are moved behind it,
// with all that belongs to them, so that a causal model need not read the mask: no other token sees
// them, and positions begin at the first token of the text. To be called before any sample is read.
void tri_dataset_move_padding(tri_dataset *dataset);

// From now on every epoch has the samples of epoch 0. (Those of a mixture differ from epoch to
// epoch.) To be called before any sample is read.
void tri_dataset_repeat_epoch(tri_dataset *dataset);
// The number of the sample that is number `sample` in an epoch: another one only in a mixture,
// whose weights decide which ones an epoch has.
int64_t tri_dataset_at_epoch(const tri_dataset *dataset, int64_t sample, int64_t epoch);

// What one thread needs to read samples: decoders, and memory for a sample as it is stored and
// between transforms. `dataset` must outlive it. TRI_NO_MEMORY.
typedef struct tri_reader tri_reader;
tri_status tri_reader_create(const tri_dataset *dataset, tri_reader **out);
void tri_reader_destroy(tri_reader *reader); // NULL allowed
// Reads all fields of sample `sample`, converted and transformed: field i to out[i], which has
// size_bytes of the field. Random transforms depend on `epoch`: they differ from epoch to epoch,
// but are the same again when a run is resumed. A damaged sample ends with TRI_CORRUPT or, with
// data.on_error: skip, is left out: it becomes zeros with labels of -100, which losses and metrics
// do not count.
tri_status tri_reader_read(tri_reader *reader, int64_t sample, int64_t epoch, void *const *out);
// From now on the reader takes numbers of all samples, of which each has one, and not those of an
// epoch, in which a mixture leaves some out. For checks.
void tri_reader_take_all(tri_reader *reader);
// How many samples this reader has left out so far.
int64_t tri_reader_left_out(const tri_reader *reader);
// The same, but a damaged sample always ends with TRI_CORRUPT.
tri_status tri_reader_try(tri_reader *reader, int64_t sample, int64_t epoch, void *const *out);
// Verifies the checksums that the files contain, unless opening has done so. (Opening skips this
// where it would take long.)
tri_status tri_dataset_verify(const tri_dataset *dataset);
// The names by which the numbers of a field are numbered (names.h): classes, columns.
const tri_number_names *tri_dataset_names(const tri_dataset *dataset, int index);
// Mixes into *hash what the files of the data set contain: of large or many ones a part, of the
// files of an image folder the names. With it ranks compare copies of the same data.
tri_status tri_dataset_hash_files(const tri_dataset *dataset, uint64_t *hash);
// Whether samples are read from the file at `path`.
bool tri_dataset_reads_file(const tri_dataset *dataset, const char *path);
// Prefetches into the caches a sample that one of the next few reads will need, so that the read
// does not wait for memory.
void tri_dataset_hint(const tri_dataset *dataset, int64_t sample);

#endif
