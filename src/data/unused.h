// Names in a data file, such as those of columns, that no field has taken.
#ifndef TRIREME_DATA_UNUSED_H
#define TRIREME_DATA_UNUSED_H

#include "data/kind.h"

// Notes in facts.rest what `path` has beside its fields, where the recipe does not choose them
// (data.fields). `word`: what a name is, such as "column". `taken`: the fields that the file has.
// TRI_BAD_INPUT: a name is nearly that of a field that the data would lack.
tri_status tri_data_unused(tri_dataset *dataset, const char *path, const char *word,
                           const tri_strings *names, const tri_strings *taken);

#endif
