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
    // True only for batch.global, if the configuration gives the size of micro-batches but not
    // train_batch_size. `value` is then "auto": batch.global is computed once the number of
    // replicas is known. If the recipe's file gives batch.global, that value is kept, unless the
    // configuration comes from the command line; tri_recipe_settle_batch then checks it.
    bool is_derived;
    // True for what only shows how the run goes: a value of the recipe's file holds, and a note
    // tells it.
    bool yields;
    // True if the configuration says "auto", which stands for the recipe's value. `value` is then
    // null, and its `file` is the configuration's key. is_missing: the recipe has no value.
    bool is_auto, is_missing;
} tri_deepspeed_setting;

typedef struct tri_deepspeed {
    tri_deepspeed_setting *settings;
    int count, capacity;
    // Micro-batches of a step on each replica (gradient_accumulation_steps). TRI_AUTO: this key is
    // not given, but train_batch_size and train_micro_batch_size_per_gpu are; the number then
    // follows from them and from the number of replicas, and has to be whole. 0: neither is the
    // case.
    int64_t rounds;
    tri_strings notes; // warnings, one line each
} tri_deepspeed;

#endif
