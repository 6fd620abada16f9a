// Settings that this version does not support.
#ifndef TRIREME_RECIPE_MISSING_H
#define TRIREME_RECIPE_MISSING_H

#include "base/tree.h"

// Refuses the first such setting in a recipe's tree, with file and line: TRI_BAD_INPUT for another
// system's name of a key, TRI_UNSUPPORTED for a value that is not supported.
tri_status tri_recipe_refuse_missing(tri_arena *arena, const tri_tree *root);

#endif
