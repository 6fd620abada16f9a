// Settings that a recipe states and that do nothing beside its others.
#ifndef TRIREME_RECIPE_IDLE_H
#define TRIREME_RECIPE_IDLE_H

#include "mesh/mesh.h"
#include "recipe/recipe.h"

// One line for each key that has another value than its default and no effect: harmless, but not
// what was meant. In the order of a table; what they point to lies in `arena`.
tri_strings tri_recipe_idle_keys(tri_arena *arena, const tri_recipe *recipe, const tri_mesh *mesh);
// As warnings: by one rank, as tri_recipe_say_notes.
void tri_recipe_say_idle(const tri_recipe *recipe, const tri_mesh *mesh);

#endif
