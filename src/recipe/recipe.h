// A recipe: everything that defines a run. It is read from YAML and overrides by option tables, one
// for each section.
#ifndef TRIREME_RECIPE_RECIPE_H
#define TRIREME_RECIPE_RECIPE_H

#include "base/option.h"
#include "checkpoint/options.h"
#include "comm/options.h"
#include "data/options.h"
#include "nn/options.h"
#include "observe/options.h"
#include "plan/options.h"
#include "recipe/trainer.h"

typedef struct tri_recipe {
    const char *name; // of the run; the model's name if the recipe has none
    int64_t seed;
    tri_model_options model;
    const char *init; // file or folder of initial weights, or NULL
    tri_data_options data;
    tri_batch_options batch;
    tri_optimizer_options optimizer;
    tri_schedule_options schedule;
    tri_trainer_options trainer;
    tri_strategy_options strategy;
    tri_checkpoint_options checkpoint;
    tri_log_options log;
    tri_comm_options comm;
    const tri_tree *deepspeed; // always NULL: its settings are merged into the sections above
    int64_t rounds;            // tri_deepspeed.rounds of a DeepSpeed configuration
    tri_strings notes;         // warnings about the recipe, see tri_recipe_log_notes
} tri_recipe;

// The whole recipe as one table; its help texts are the reference of a recipe's keys.
extern const tri_option_table tri_recipe_table;

// Reads the file at `path` and applies `overrides` ("key.path=value") in order.
// - An override that changes data.name, optimizer.name or schedule.name first discards the other
//   keys of that section in the file.
// - `task` is the model's name in a program that brings its own model; NULL: the recipe has to name
//   a model.
// - If the file's relative data.path does not exist, it is looked up in the recipe's folder; so is
//   the file that `deepspeed` names.
// - If the DeepSpeed configuration and the recipe set a key to different values, that is an error,
//   unless an override sets the key or names the configuration.
// All memory is in `arena`. Checks all that the tables can check; opens no file but the recipe and
// the DeepSpeed configuration. TRI_BAD_INPUT and others: one line that names file and line, or the
// override.
tri_status tri_recipe_load(tri_arena *arena, const char *path, const char *const *overrides,
                           int count, const char *task, tri_recipe *out);
// Reads a recipe as tri_recipe_load does, from text that was read already (a checkpoint's); `file`
// is its name in errors.
tri_status tri_recipe_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                            const char *const *overrides, int count, const char *task,
                            tri_recipe *out);

// Logs the notes as warnings. One rank calls it, after the recipe has proved to be valid: a recipe
// with an error needs no advice.
void tri_recipe_log_notes(const tri_recipe *recipe);

// The resolved recipe: every key with its value, also defaults. Loading it gives the same recipe,
// which makes a run reproducible after defaults have changed.
tri_tree *tri_recipe_tree(tri_arena *arena, const tri_recipe *recipe);
char *tri_recipe_emit(tri_arena *arena, const tri_recipe *recipe); // as YAML

// The keys ("optimizer.lr") that define what a run computes and differ between `a` and `b`. Keys
// that may change between a run and its continuation are left out: where data is stored, how long
// and on how many ranks the run trains, what it writes.
tri_strings tri_recipe_differences(tri_arena *arena, const tri_recipe *a, const tri_recipe *b);

#endif
