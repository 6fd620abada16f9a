// The options of a model that name files: model.config, a config.json of Hugging Face, and
// model.program, a network that PyTorch has exported.
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
// Of a model that is an exported network: makes model.program and model.evaluation_program
// absolute, and lets the run begin with the weights of the first, unless the recipe has others or
// wants none.
tri_status tri_recipe_settle_program(tri_arena *arena, tri_tree *root, const char *file);

#endif
