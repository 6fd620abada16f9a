// Finds out whether data.limit leaves samples of few classes: it takes the first ones, and data
// often lie in the order of their classes.
#ifndef TRIREME_DATA_ORDERED_H
#define TRIREME_DATA_ORDERED_H

#include "base/arena.h"
#include "data/dataset.h"

// Looks at some of the samples that data.limit leaves, a bounded number. Returns a sentence, in
// `arena`, if they lie in the order of their classes and some classes are missing; NULL: they do
// not, or there is no limit or no class.
const char *tri_dataset_find_ordered(tri_arena *arena, const tri_dataset *dataset);

#endif
