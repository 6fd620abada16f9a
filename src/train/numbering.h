// What the numbers of a run's data mean, where their files say it by names (data/names.h): classes
// and columns. A checkpoint keeps the names of its training data, because its weights give the same
// classes again, whatever the folders and files are called later.
#ifndef TRIREME_TRAIN_NUMBERING_H
#define TRIREME_TRAIN_NUMBERING_H

#include "base/tree.h"
#include "data/dataset.h"

#include <trireme/task.h>

// The key of the names in a checkpoint's training state.
#define TRI_DATA_NAMES "data_names"

// Makes the map that a checkpoint keeps: the shape and type of each field, {labels: {shape: [],
// dtype: I64}}, the names, if a checkpoint has room for so many, {labels: {classes: [cat, dog]},
// inputs: {columns: [a, b]}}, the hash of the tokenizer's file, {input_ids: {tokenizer: 9f2c…}},
// and the type in which images are stored, {images: {stored: U8}}, because bytes are scaled.
tri_tree *train_numbering_tree(tri_arena *arena, const tri_dataset *data);
// Reads the fields of which the map (NULL: there is none) has shape and type, at most `most`.
// Returns how many there are: none in checkpoints of older versions.
int train_numbering_fields(const tri_tree *kept, tri_field *fields, int most);
// Compares the map of the checkpoint `path` (NULL: it has none) with the names of `data`, which
// messages call `data_name`. One list of classes may go on where the other ends. TRI_BAD_INPUT: the
// same number means another class or column.
tri_status train_numbering_compare(tri_arena *arena, const tri_tree *kept, const char *path,
                                   const tri_dataset *data, const char *data_name);
// Logs a warning if the images were bytes and are none now, or the other way round; if data.fields
// now chooses columns of other names; and if the tokenizer is another file.
void train_numbering_warn(tri_arena *arena, const tri_tree *kept, const char *path,
                          const tri_dataset *data, const char *data_name);

#endif
