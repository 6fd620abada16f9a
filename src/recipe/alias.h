// Names that other systems have for a strategy.
#ifndef TRIREME_RECIPE_ALIAS_H
#define TRIREME_RECIPE_ALIAS_H

#include "base/tree.h"

// Replaces a strategy.name that PyTorch Lightning, PyTorch FSDP or accelerate know by the one of
// this program, and sets strategy.offload if the name says it. TRI_BAD_INPUT when the recipe sets
// another strategy.offload, or a hybrid has no sizes.
tri_status tri_recipe_settle_strategy(tri_arena *arena, tri_tree *root);

#endif
