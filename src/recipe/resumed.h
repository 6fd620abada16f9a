// The recipe of a run that is resumed with other values of some keys (train --resume-with). The run
// folder's recipe then has the new values, and in `began_with` those with which the run began, by
// key. So the unchanged command resumes the run with the new values too.
#ifndef TRIREME_RECIPE_RESUMED_H
#define TRIREME_RECIPE_RESUMED_H

#include "recipe/recipe.h"

typedef struct tri_recipe_resumption {
    // The recipe that the command names, as tri_recipe_load takes it.
    const char *path;
    const char *const *overrides;
    int count;
    const char *task;
    // The run to resume: its folder, and auto, never or the path of a checkpoint.
    const char *run_dir, *resume;
    // "key.path=value" of the keys whose value is to change.
    const char *const *changes;
    int change_count;
} tri_recipe_resumption;

// Reads the recipe, with the values of this and earlier changes. TRI_BAD_INPUT: there is a change
// but no run to resume. Changes of keys that define the run are not refused here, but when the
// recipe is compared with the run's.
tri_status tri_recipe_resume(tri_arena *arena, const tri_recipe_resumption *resumption,
                             tri_recipe *out);
// Lists what the recipe changed since `older`, an earlier recipe of the same run: maps with `key`,
// `from` and `to`. NULL: nothing.
const tri_tree *tri_recipe_changes(tri_arena *arena, const tri_recipe *older,
                                   const tri_recipe *recipe);

#endif
