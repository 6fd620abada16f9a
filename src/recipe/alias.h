// Other spellings of a recipe. Accepts strategies under their names in other systems
// ("deepspeed_stage_3", …), so that recipes can be carried over from there.
#ifndef TRIREME_RECIPE_ALIAS_H
#define TRIREME_RECIPE_ALIAS_H

#include "base/tree.h"

// Replaces a strategy.name of PyTorch Lightning, PyTorch FSDP or accelerate by this program's own
// name, and sets strategy.offload if the alias implies it. TRI_BAD_INPUT: the recipe sets another
// strategy.offload, or names a hybrid strategy without strategy.mesh.shard or replicate.
tri_status tri_recipe_settle_strategy(tri_arena *arena, tri_tree *root);
// `init: PATH` is short for `init: {path: PATH}`, and `loss: [...]` for `loss: {name: sum, terms:
// [...]}`. tri_recipe_lengthen makes the long forms, tri_recipe_shorten_init the short one of
// `init`, unless the map has more than the path.
void tri_recipe_lengthen(tri_arena *arena, tri_tree *root);
void tri_recipe_shorten_init(tri_arena *arena, tri_tree *root);

// Lets strategy.tensor_plan, with the words of Hugging Face's base_model_tp_plan (colwise, rowwise)
// or ours, stand for strategy.tensor. TRI_BAD_INPUT: both are there.
tri_status tri_recipe_settle_tensor_plan(tri_tree *root);

#endif
