// What the numbers of a field mean, where the files say it: by names of classes, which are numbered
// in their sorted order, by names of the columns of a table, or by a tokenizer. The same number has
// to mean the same in all data of a run.
#ifndef TRIREME_DATA_NAMES_H
#define TRIREME_DATA_NAMES_H

#include "base/arena.h"
#include "base/option.h"
#include "base/status.h"

typedef struct tri_number_names {
    tri_strings classes; // by class; none: the files number the classes themselves
    tri_strings columns; // by element; none: the elements have no names
    // data.fields has chosen the columns. So the recipe says which is which, and other names may
    // be meant.
    bool columns_are_chosen;
    const char *tokenizer; // SHA-256 of its file; NULL: no tokenizer is known
    // The number of the token with which a text ends, which a file beside the tokenizer may say;
    // NULL: it is not known.
    const char *end_mark;
} tri_number_names;

// Compares the names of field `field` in two data sets, which messages call `a_name` and `b_name`.
// TRI_BAD_INPUT: they differ, so that one number would mean two things. Columns that data.fields
// has chosen, and tokenizers, are not compared here.
tri_status tri_number_names_compare(const char *field, const char *a_name,
                                    const tri_number_names *a, const char *b_name,
                                    const tri_number_names *b);
// Whether both have names of columns, and these differ.
bool tri_number_names_differ(const tri_number_names *a, const tri_number_names *b);
// What to warn of if the tokenizers of both are known and differ, or their end marks; NULL:
// nothing. This is not refused, as they may be two files of one tokenizer in two formats.
const char *tri_number_names_doubt(tri_arena *arena, const char *a_name, const tri_number_names *a,
                                   const char *b_name, const tri_number_names *b);

#endif
