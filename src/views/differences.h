// In which settings recipes differ: those of several runs, or one run's and the defaults.
#ifndef TRIREME_VIEWS_DIFFERENCES_H
#define TRIREME_VIEWS_DIFFERENCES_H

#include "base/tree.h"

// A setting that not all recipes have alike.
typedef struct views_difference {
    const char *key; // "optimizer.lr"
    // The values, one for each recipe; NULL: it has no such key, or its value is null or empty.
    const tri_tree **values;
} views_difference;

// Finds the settings in which `recipes` differ, in the order of the recipes' keys. A recipe may be
// NULL; it then has no key. Lists are compared as a whole. Where a run was recorded is no setting.
// The values point into the recipes. Returns their number.
int views_differences_find(tri_arena *arena, const tri_tree *const *recipes, int count,
                           views_difference **out);

#endif
