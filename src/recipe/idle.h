// Finds settings of a recipe that have no effect because of its other settings, so that the user
// learns of a likely mistake.
#ifndef TRIREME_RECIPE_IDLE_H
#define TRIREME_RECIPE_IDLE_H

#include "mesh/mesh.h"
#include "recipe/recipe.h"

// Returns one line for each key that differs from its default but has no effect. The lines live in
// `arena`.
tri_strings tri_recipe_idle_keys(tri_arena *arena, const tri_recipe *recipe, const tri_mesh *mesh);
// Logs the lines of tri_recipe_idle_keys as warnings, and one if small gradients are sent as 0.
// Only one rank calls this function, so that they appear once.
void tri_recipe_warn_idle(const tri_recipe *recipe, const tri_mesh *mesh);

#endif
