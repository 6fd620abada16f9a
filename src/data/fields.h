// The table of fields: which fields, by name, a data set may supply and a model may read. A new
// field of general use is a row in fields.c; a recipe can add fields of its own
// (data.extra_fields).
#ifndef TRIREME_DATA_FIELDS_H
#define TRIREME_DATA_FIELDS_H

#include "base/limits.h"
#include "base/tree.h"

#include <trireme/tensor.h>

typedef struct tri_field_row {
    const char *name;
    tri_dtype dtype;        // the type that the model gets: F32 or I64
    int min_rank, max_rank; // number of axes of one sample
    // The field's first axis is the sequence. In one data set all such fields have the same length,
    // because they describe the same tokens.
    bool is_per_token;
    // The field's last two axes are the height and width of `images`: transforms move its numbers
    // as they move the pixels.
    bool is_per_pixel;
    // For I64 fields: the numbers are tokens; false: they are classes, and the loss ignores -100.
    bool is_token;
    const char *shape; // shape of the field, as text for messages
} tri_field_row;

// Finds the row of `name` in the table or in data.extra_fields (NULL: the recipe adds none). False:
// there is none. out->name lives as long as `extra_fields`.
bool tri_field_find(const tri_tree *extra_fields, const char *name, tri_field_row *out);
// Returns TRI_BAD_INPUT because `source` (a file or an option) has a field `name` that is neither
// in the table nor in the recipe. The message lists the known fields.
tri_status tri_field_fail_name(const tri_tree *extra_fields, const char *source, const char *name);
enum { TRI_MAX_FIELD_NAMES = 8 + TRI_MAX_DATA_FIELDS };
// Lists the names in the table and in data.extra_fields; returns their number.
int tri_field_list(const tri_tree *extra_fields, const char *out[TRI_MAX_FIELD_NAMES]);
// The names in the table, for messages: "images, labels, …".
const char *tri_field_names(void);
// Checks data.extra_fields. TRI_BAD_INPUT: the message names file and line.
tri_status tri_fields_check(const tri_tree *extra_fields);

#endif
