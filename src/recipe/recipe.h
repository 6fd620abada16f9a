// A recipe: everything that defines a run, read from YAML and overrides through the option tables
// of the rooms.
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
    const char *name; // of the run; a recipe without one has its model's
    int64_t seed;
    tri_model_options model;
    const char *init; // safetensors file of initial weights, or NULL
    tri_data_options data;
    tri_batch_options batch;
    tri_optimizer_options optimizer;
    tri_schedule_options schedule;
    tri_trainer_options trainer;
    tri_strategy_options strategy;
    tri_checkpoint_options checkpoint;
    tri_log_options log;
    tri_comm_options comm;
    const tri_tree *deepspeed; // always NULL: its settings are in the sections above
    int64_t rounds;            // that a DeepSpeed configuration states (tri_deepspeed.rounds)
    tri_strings notes;         // lines for people about what was read, see tri_recipe_say_notes
} tri_recipe;

// The whole recipe as one table: its help is the manual of a recipe.
extern const tri_option_table tri_recipe_table;

// Reads the file at `path` and applies `overrides` ("key.path=value") in order. Overriding
// data.name, optimizer.name or schedule.name with another value first discards that mapping's other
// keys of the file. `task` names the model of a program that brings its own; NULL: the recipe has
// to name one. A relative data.path of the file that does not exist is taken from the folder of the
// recipe if it exists there; so is the file that `deepspeed` names. What that file says counts as
// the recipe's: where both speak and differ it is an error, unless an override says it too,
// or an override names the file. All
// memory lies in `arena`. Everything a table can check is checked;
// no file but the recipe is opened. TRI_BAD_INPUT and others: one line with file and line, or the
// override.
tri_status tri_recipe_load(tri_arena *arena, const char *path, const char *const *overrides,
                           int count, const char *task, tri_recipe *out);
// The same for text that is already there; `file` is its name in errors.
tri_status tri_recipe_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                            const char *const *overrides, int count, const char *task,
                            tri_recipe *out);

// Says the notes, as warnings: by one rank, once it is sure that the recipe is good.
void tri_recipe_say_notes(const tri_recipe *recipe);

// The resolved recipe: every key with its value, defaults too. Loading it gives the same recipe.
tri_tree *tri_recipe_tree(tri_arena *arena, const tri_recipe *recipe);
char *tri_recipe_emit(tri_arena *arena, const tri_recipe *recipe); // as YAML

// The keys ("optimizer.lr") that define what a run computes and have other values in `b` than in
// `a`. What may change between a run and its continuation is left out: where data lies, how far and
// on what the run goes, what it writes.
tri_strings tri_recipe_differences(tri_arena *arena, const tri_recipe *a, const tri_recipe *b);

#endif
