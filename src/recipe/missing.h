// Settings that this version does not support, and other systems' names of settings that it has.
#ifndef TRIREME_RECIPE_MISSING_H
#define TRIREME_RECIPE_MISSING_H

#include "base/option.h"

// Rejects the first setting in a recipe's tree that this program does not have; the message names
// file and line. TRI_BAD_INPUT: it is another system's name of a key. TRI_UNSUPPORTED: the value is
// not supported.
tri_status tri_recipe_refuse_missing(tri_arena *arena, const tri_tree *root);

// Tells what to write instead of the flag --`flag`, which no command has, but which is another
// system's or this program's name of a key: "did you mean optimizer.lr=0.1, without dashes?".
// `value`: what was given with the flag; NULL: nothing. `table`: the table of recipes. Returns NULL
// if the flag is no such name.
const char *tri_recipe_instead_of_flag(tri_arena *arena, const tri_option_table *table,
                                       const char *flag, const char *value);

#endif
