// What the numbers of a field mean, where the files say it by names: of classes, which are numbered
// in their sorted order, and of the columns of a table. The same number has to mean the same in all
// data of a run.
#ifndef TRIREME_DATA_NAMES_H
#define TRIREME_DATA_NAMES_H

#include "base/option.h"
#include "base/status.h"

typedef struct tri_number_names {
    tri_strings classes; // by class; none: the files number the classes themselves
    // By element, of columns that no key of data.fields has chosen; none: the elements have no
    // names, or the recipe says which column is which.
    tri_strings columns;
} tri_number_names;

// Compares the names of field `field` in two data sets, which messages call `a_name` and `b_name`.
// TRI_BAD_INPUT: they differ, so that one number would mean two things.
tri_status tri_number_names_compare(const char *field, const char *a_name,
                                    const tri_number_names *a, const char *b_name,
                                    const tri_number_names *b);

#endif
