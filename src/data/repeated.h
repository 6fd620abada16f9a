// Finds files that the data of a run have twice: in two splits, so that a model is chosen or tested
// by samples on which it was trained, or twice in one, so that an epoch has their samples twice.
#ifndef TRIREME_DATA_REPEATED_H
#define TRIREME_DATA_REPEATED_H

#include "base/arena.h"
#include "data/dataset.h"

// Compares the files of the data sets of a run, whatever their paths. Returns a sentence that names
// the first such file, in `arena`; NULL: there is none. The sources of a mixture may share files,
// and validation data that are a part of the training data share all.
const char *tri_dataset_find_repeated(tri_arena *arena, const tri_dataset *const *sets, int count);

#endif
