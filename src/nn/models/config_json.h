// Reads config.json, with which Hugging Face's transformers describe a model, as options of a
// built-in model, and writes it. Keys that the model has no option for are ignored, unless their
// value makes it another model.
#ifndef TRIREME_NN_MODELS_CONFIG_JSON_H
#define TRIREME_NN_MODELS_CONFIG_JSON_H

#include "nn/models/models.h"

typedef struct model_config {
    const tri_task *task; // the built-in model
    tri_tree *options;    // the options that the file has, under the model's names
} model_config;

// Leaves out what `own` has, a recipe's options, which hold instead; NULL: it has nothing.
// TRI_NOT_FOUND: the file has no model_type, so it describes no model. TRI_BAD_INPUT: no built-in
// model computes what it describes; the message says why.
tri_status model_config_read(tri_arena *arena, const tri_tree *config, const tri_tree *own,
                             model_config *out);

// True if there are config.json files of this model.
bool model_has_config(const tri_task *task);
// All options of such a model, where `options` has none their defaults, and where a value follows
// from others (head_dim) that value. TRI_BAD_INPUT: an option is wrong.
tri_status model_config_complete(tri_arena *arena, const tri_task *task, const tri_tree *options,
                                 tri_tree **out);
// Makes the config.json of such a model, of the first model_type that computes what `options` say.
// TRI_NOT_FOUND: the model has no such files. TRI_UNSUPPORTED: none computes it; the message says
// why.
tri_status model_config_write(tri_arena *arena, const tri_task *task, const tri_tree *options,
                              tri_tree **out);
#endif
