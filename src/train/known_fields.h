// The fields of a sample as far as they are known without opening the data, which may be on another
// host: for plans and initial weights.
#ifndef TRIREME_TRAIN_KNOWN_FIELDS_H
#define TRIREME_TRAIN_KNOWN_FIELDS_H

#include "recipe/recipe.h"

#include <trireme/task.h>

// As tri_session_describe_fields, but sets *count to 0 if no fields are known. `fields` has room
// for TRI_MAX_DATA_FIELDS.
tri_status train_known_fields(tri_arena *arena, const tri_recipe *recipe, const tri_task *task,
                              tri_field *fields, int *count);

#endif
