// DeepSpeed's configuration as keys of a recipe. Facts: the page config-json of its documentation,
// and deepspeed/runtime/{config,constants,lr_schedules}.py and zero/{config,offload_config}.py.
#ifndef TRIREME_RECIPE_DEEPSPEED_H
#define TRIREME_RECIPE_DEEPSPEED_H

#include "base/option.h"
#include "base/tree.h"

typedef struct tri_deepspeed_setting {
    const char *key;  // of a recipe: "optimizer.lr"
    tri_tree *value;  // its `file` names the configuration and the key there
    bool is_fallback; // DeepSpeed's own default where this program's differs: the recipe's value
                      // goes before it
    bool is_derived;  // follows from other settings: a recipe that names the configuration may say
                      // it too, and it is compared when the ranks are known
} tri_deepspeed_setting;

typedef struct tri_deepspeed {
    tri_deepspeed_setting *settings;
    int count, capacity;
    // Forward passes of a step on each replica, as the configuration states them; TRI_AUTO: it
    // states both sizes of a batch, so that they have to be a whole number; 0: left open.
    int64_t rounds;
    tri_strings notes; // one line each, for people
} tri_deepspeed;

// Reads the configuration that `node` names (relative to the working directory, or else to the
// folder of the recipe at `recipe_file`) or holds as a mapping. TRI_BAD_INPUT for an unknown key,
// with the nearest known one, and for what this program does not do; the string "auto" sets
// nothing.
tri_status tri_deepspeed_read(tri_arena *arena, const tri_tree *node, const char *recipe_file,
                              tri_deepspeed *out);
// The same from text; `file` is its name in errors.
tri_status tri_deepspeed_parse(tri_arena *arena, char *text, size_t size, const char *file,
                               tri_deepspeed *out);

// Writes the settings into a recipe's tree. What the recipe itself says otherwise is an error that
// names both, unless the configuration is an override itself or one of the overrides says it too.
tri_status tri_deepspeed_merge(tri_arena *arena, const tri_deepspeed *deepspeed, tri_tree *root,
                               bool is_override, const char *const *overrides, int count);

#endif
