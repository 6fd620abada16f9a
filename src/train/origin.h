// Compares the recipe with what is written beside weights that are loaded: the config.json of a
// Hugging Face model, or the recipe that a checkpoint keeps. Tensors show only their shapes, and
// with another rope_theta or another normalisation of images the same weights compute something
// else.
#ifndef TRIREME_TRAIN_ORIGIN_H
#define TRIREME_TRAIN_ORIGIN_H

#include "train/session.h"

// Checks `path`, from which the session will load weights (tri_checkpoint_load_weights). Rank 0
// warns of keys of model and data.transform in which the recipe of a checkpoint differs, and of
// what makes data.val_fraction hold back other samples. `own` is the task that the program brings,
// or NULL. TRI_BAD_INPUT: config.json has another value than the recipe, or one that the model
// cannot have; the message names all such keys.
tri_status train_check_origin(const tri_session *session, const tri_task *own, const char *path);
// Reads the fields of the samples on which the checkpoint `path` was trained. Returns how many are
// known: none of weights from elsewhere, or of older versions.
int train_origin_fields(tri_arena *arena, const char *path, tri_field *fields, int most);

#endif
