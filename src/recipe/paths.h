// Reads the paths of a recipe, of all options whose rows say that they are paths
// (tri_option.path).
// - $NAME, ${NAME} and a leading ~ are replaced, unless the path exists as it is written.
// - A relative path starts at the working directory or, if it comes from the recipe's file and
//   nothing exists there, at the file's folder, so that a recipe can be shipped with its data.
// - Recorded recipes have absolute paths. If nothing exists at one, it is looked for where it would
//   lie if it had been moved together with the run folder (recorded_in).
// "Exists" includes arrays of archives, FILE.npz:ARRAY.
#ifndef TRIREME_RECIPE_PATHS_H
#define TRIREME_RECIPE_PATHS_H

#include "base/option.h"

// Settles all paths in the tree of the recipe at `file`, in place, and removes `recorded_in`.
// `table`: the table of recipes.
// TRI_BAD_INPUT: a variable is not set.
tri_status tri_recipe_settle_paths(tri_arena *arena, const tri_option_table *table, tri_tree *root,
                                   const char *file);
// Makes a recipe that has element `index` of the list at `key`, whose row holds sections, in the
// place of its section, with the same nodes. NULL: the element is no map.
tri_tree *tri_recipe_of_element(tri_arena *arena, const tri_tree *root, const char *key, int index);
// Settles one path that starts nowhere else.
tri_status tri_recipe_settle_path(tri_arena *arena, tri_tree *node, const char *file);
// Makes all paths in a recipe's tree absolute, except those that start at another option's folder.
void tri_recipe_complete_paths(tri_arena *arena, const tri_option_table *table, tri_tree *root);
// Whether two values of the option `key` are paths of the same file; `a` is the recorded one. `row`
// is the option's; NULL: no. `root_a` and `root_b` are the recipes that contain the values.
bool tri_recipe_is_same_file(tri_arena *arena, const tri_option *row, const char *key,
                             const tri_tree *root_a, const tri_tree *a, const tri_tree *root_b,
                             const tri_tree *b);

#endif
