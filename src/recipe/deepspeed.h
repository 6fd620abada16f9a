// Turns DeepSpeed's configuration into keys of a recipe. Sources: the page config-json of its
// documentation, deepspeed/runtime/{config,constants,lr_schedules}.py and
// zero/{config,offload_config}.py.
#ifndef TRIREME_RECIPE_DEEPSPEED_H
#define TRIREME_RECIPE_DEEPSPEED_H

#include "recipe/deepspeed_settings.h"

// Reads the configuration. `node` is the path of its file, or the configuration itself as a map.
// The value "auto" stands for the recipe's value. TRI_BAD_INPUT: a key is not known (the message
// has the nearest one), or a setting is not supported.
tri_status tri_deepspeed_read(tri_arena *arena, const tri_tree *node, tri_deepspeed *out);
// Reads the configuration from `text`, which is modified; `file` is its name for messages.
tri_status tri_deepspeed_parse(tri_arena *arena, char *text, size_t size, const char *file,
                               tri_deepspeed *out);

// Writes the settings into a recipe's tree. If the recipe sets a key to another value, it is not
// clear which value is meant, so this is an error, and its message has both. There are two
// exceptions. If the configuration comes from an override, its value replaces the recipe's. If one
// of `overrides` sets the key, that override is applied later, and its value counts.
// A setting that yields to the recipe's value adds a note.
// Two kinds of settings never conflict with the recipe (deepspeed_settings.h): a default of
// DeepSpeed (is_fallback) is used only if the recipe sets nothing, and so is a derived value
// (is_derived), unless the configuration comes from an override.
tri_status tri_deepspeed_merge(tri_arena *arena, tri_deepspeed *deepspeed, tri_tree *root,
                               bool is_override, const char *const *overrides, int count);

// Adds the note which values hold where the configuration says "auto" and neither the recipe nor an
// override has one. `resolved` is the recipe with all defaults.
void tri_deepspeed_note_autos(tri_arena *arena, tri_deepspeed *deepspeed,
                              const char *const *overrides, int count, const tri_tree *resolved);

#endif
