// The fields of a sample as far as they are known without opening the data, which may be on another
// host: for plans and initial weights.
#ifndef TRIREME_TRAIN_KNOWN_FIELDS_H
#define TRIREME_TRAIN_KNOWN_FIELDS_H

#include "recipe/recipe.h"

#include <trireme/task.h>

// Finds these fields: from the data's options, or from a task that is not built in and the outputs
// that its losses take. TRI_BAD_INPUT: only the data contain the fields, and data.shapes is not
// set. `fields` has room for TRI_MAX_DATA_FIELDS.
tri_status train_describe_fields(tri_arena *arena, const tri_recipe *recipe, const tri_task *task,
                                 tri_field *fields, int *count);
// The same, but sets *count to 0 if no fields are known.
tri_status train_known_fields(tri_arena *arena, const tri_recipe *recipe, const tri_task *task,
                              tri_field *fields, int *count);

#endif
