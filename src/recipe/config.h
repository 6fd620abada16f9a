// The option model.config, which names a config.json of Hugging Face.
#ifndef TRIREME_RECIPE_CONFIG_H
#define TRIREME_RECIPE_CONFIG_H

#include "base/tree.h"

// Puts the options that the file has in the place of model.config, where the recipe has none of its
// own, so that the recorded recipe does not need the file. Without model.name, that follows from
// the file, too. `file`: the recipe's. `has_own`: the program brings a model, which one without a
// name is. TRI_BAD_INPUT: there is no such file, or it describes
// another model.
tri_status tri_recipe_settle_config(tri_arena *arena, tri_tree *root, const char *file,
                                    bool has_own);

#endif
