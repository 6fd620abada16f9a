// The table of fields: what a data set may supply and a model may read, by name. A new field of
// common use is a row in fields.c; a recipe adds its own (data.extra_fields).
#ifndef TRIREME_DATA_FIELDS_H
#define TRIREME_DATA_FIELDS_H

#include "base/tree.h"

#include <trireme/tensor.h>

typedef struct tri_field_row {
    const char *name;
    tri_dtype dtype;        // as the model gets it: F32 or I64
    int min_rank, max_rank; // of one sample
    // The field's first axis is the sequence. All such fields of a data set have the same length,
    // because they describe the same tokens.
    bool is_per_token;
    bool is_token; // I64: token numbers; else class numbers, of which -100 is left out of the loss
    const char *shape; // for messages
} tri_field_row;

// Finds the row of `name` in the table or in data.extra_fields (NULL: the recipe adds none); false:
// there is none. out->name lives as long as the tree.
bool tri_field_find(const tri_tree *extra_fields, const char *name, tri_field_row *out);
// Fails because `source` (a file or an option) has a field that neither the table nor the recipe
// has; the message names the known ones.
tri_status tri_field_fail_name(const tri_tree *extra_fields, const char *source, const char *name);
// The names of the table, for messages: "images, labels, …".
const char *tri_field_names(void);
// Checks data.extra_fields. TRI_BAD_INPUT with file and line.
tri_status tri_fields_check(const tri_tree *extra_fields);

#endif
