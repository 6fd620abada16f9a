// Settings that this version does not support, and other systems' names of those that it has.
#ifndef TRIREME_RECIPE_MISSING_H
#define TRIREME_RECIPE_MISSING_H

#include "base/option.h"

// Refuses the first setting of a recipe's tree that is not this program's, with file and line:
// TRI_BAD_INPUT for another system's name of a key, TRI_UNSUPPORTED for a value that is not
// supported.
tri_status tri_recipe_refuse_missing(tri_arena *arena, const tri_tree *root);

// What to write in place of the flag --`flag`, which no command has, but which is another system's
// or this one's name of a key: "did you mean optimizer.lr=0.1, without dashes?". `value` is what
// was given with it, or NULL. `table`: the recipe's. NULL: nothing is known of it.
const char *tri_recipe_instead_of_flag(tri_arena *arena, const tri_option_table *table,
                                       const char *flag, const char *value);

#endif
