// The settings of a recipe that follow from a DeepSpeed configuration.
#ifndef TRIREME_RECIPE_DEEPSPEED_SETTINGS_H
#define TRIREME_RECIPE_DEEPSPEED_SETTINGS_H

#include "base/option.h"
#include "base/tree.h"

typedef struct tri_deepspeed_setting {
    const char *key; // the recipe's key, such as "optimizer.lr"
    tri_tree *value; // the value; its `file` names the configuration and the key
    // Whether `value` is a default of DeepSpeed that differs from this program's. It is used only
    // if the recipe sets no value.
    bool is_fallback;
    // Whether the setting follows from other settings. The recipe may set it too; the two are
    // compared once the number of ranks is known.
    bool is_derived;
} tri_deepspeed_setting;

typedef struct tri_deepspeed {
    tri_deepspeed_setting *settings;
    int count, capacity;
    // Micro-batches of a step on each replica (gradient_accumulation_steps). TRI_AUTO: not given,
    // but it follows from the two sizes of a batch, and has to be a whole number. 0: not given and
    // not known.
    int64_t rounds;
    tri_strings notes; // warnings, one line each
} tri_deepspeed;

#endif
