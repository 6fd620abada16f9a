// What a recipe can say and this version does not do.
#ifndef TRIREME_RECIPE_MISSING_H
#define TRIREME_RECIPE_MISSING_H

#include "base/tree.h"

// TRI_UNSUPPORTED with file and line for the first such value in a recipe's tree.
tri_status tri_recipe_refuse_missing(tri_arena *arena, const tri_tree *root);

#endif
