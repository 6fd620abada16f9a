// DeepSpeed's configuration as keys of a recipe. Sources: the page config-json of its
// documentation, deepspeed/runtime/{config,constants,lr_schedules}.py and
// zero/{config,offload_config}.py.
#ifndef TRIREME_RECIPE_DEEPSPEED_H
#define TRIREME_RECIPE_DEEPSPEED_H

#include "recipe/deepspeed_settings.h"

// Reads the configuration: `node` is the name of its file (relative to the working directory, or
// else to the folder of the recipe at `recipe_file`), or a mapping. The value "auto" sets nothing.
// TRI_BAD_INPUT for an unknown key, with the nearest known one, and for a setting that this program
// does not support.
tri_status tri_deepspeed_read(tri_arena *arena, const tri_tree *node, const char *recipe_file,
                              tri_deepspeed *out);
// Reads the configuration from `text`, which is modified; `file` is its name in errors.
tri_status tri_deepspeed_parse(tri_arena *arena, char *text, size_t size, const char *file,
                               tri_deepspeed *out);

// Writes the settings into a recipe's tree. If the recipe itself sets a key to another value,
// nobody can know which is meant: that is an error that names both, unless the configuration comes
// from an override or an override sets the key.
tri_status tri_deepspeed_merge(tri_arena *arena, const tri_deepspeed *deepspeed, tri_tree *root,
                               bool is_override, const char *const *overrides, int count);

#endif
