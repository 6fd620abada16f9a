// The settings of a recipe that a DeepSpeed configuration asks for.
#ifndef TRIREME_RECIPE_DEEPSPEED_SETTINGS_H
#define TRIREME_RECIPE_DEEPSPEED_SETTINGS_H

#include "base/option.h"
#include "base/tree.h"

typedef struct tri_deepspeed_setting {
    const char *key; // of a recipe: "optimizer.lr"
    tri_tree *value; // its `file` names the configuration and the key there
    // Whether `value` is DeepSpeed's default, which differs from this program's: it is used only if
    // the recipe sets no value.
    bool is_fallback;
    // Whether the setting follows from other settings. The recipe may set it too, and the two are
    // compared once the number of ranks is known.
    bool is_derived;
} tri_deepspeed_setting;

typedef struct tri_deepspeed {
    tri_deepspeed_setting *settings;
    int count, capacity;
    // Micro-batches of a step on each replica (gradient_accumulation_steps). TRI_AUTO: not stated,
    // but both sizes of a batch are, so that it follows from them and has to be a whole number; 0:
    // open.
    int64_t rounds;
    tri_strings notes; // warnings, one line each
} tri_deepspeed;

#endif
