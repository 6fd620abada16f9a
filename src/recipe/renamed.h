// Overrides that change the `name` of a section, such as optimizer.name=adam. The section's other
// keys belong to the old name, so they are dropped.
#ifndef TRIREME_RECIPE_RENAMED_H
#define TRIREME_RECIPE_RENAMED_H

#include "base/option.h"

enum { TRI_RECIPE_NAMED_SECTIONS = 5 };

// The sections as they were before their keys were dropped, so that a note to the user can list
// these keys; NULL: no key of the section was dropped.
typedef struct tri_recipe_dropped {
    const tri_tree *sections[TRI_RECIPE_NAMED_SECTIONS];
} tri_recipe_dropped;

// If setting `path` to `value` changes the `name` of a section, drops the section's other keys,
// because an option of SGD means nothing to Adam.
void tri_recipe_drop_renamed(tri_arena *arena, tri_tree *root, const char *path,
                             const tri_tree *value, tri_recipe_dropped *dropped);

// Finds the value that a dropped key had; NULL: none.
const tri_tree *tri_recipe_dropped_value(const tri_recipe_dropped *dropped, const char *path);

// Returns `notes` and one more line for each section in which a dropped key has another value now.
// Otherwise the user would easily overlook that, for example, the learning rate has become the
// default. `root` is the recipe's tree with all overrides; `resolved` is the tree of the options
// read from it, defaults included.
tri_strings tri_recipe_dropped_notes(tri_arena *arena, const tri_recipe_dropped *dropped,
                                     const tri_tree *root, const tri_tree *resolved,
                                     tri_strings notes);

// Makes the note about an override of a whole section: which keys of the recipe it leaves out, so
// that they become defaults. NULL: it leaves out none.
const char *tri_recipe_replaced_note(tri_arena *arena, const tri_tree *root, const char *override);

#endif
