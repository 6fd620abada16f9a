// Explains settings in a recipe that this program lacks: those that this version does not support,
// and those that it knows under another name than other systems do.
#ifndef TRIREME_RECIPE_MISSING_H
#define TRIREME_RECIPE_MISSING_H

#include "base/option.h"

// Fails if a recipe's tree has a setting that this program lacks; the message names file and line.
// TRI_BAD_INPUT: the key belongs to another system, such as trainer.devices. TRI_UNSUPPORTED: this
// version does not support the key or its value.
tri_status tri_recipe_refuse_missing(tri_arena *arena, const tri_tree *root);

// Tells what to write instead of a flag that no command has. For `flag` "learning-rate" and `value`
// "0.1" (NULL: no value) it returns "did you mean optimizer.lr=0.1, without dashes?". Returns NULL
// if the flag is neither a key of a recipe nor another system's name of one. `table`: the table of
// recipes.
const char *tri_recipe_instead_of_flag(tri_arena *arena, const tri_option_table *table,
                                       const char *flag, const char *value);

#endif
