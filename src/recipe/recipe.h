// A recipe: everything that defines a run. It is read from a YAML file, of which overrides
// ("key.path=value") replace values. For each section, an option table describes the keys.
#ifndef TRIREME_RECIPE_RECIPE_H
#define TRIREME_RECIPE_RECIPE_H

#include "base/option.h"
#include "checkpoint/options.h"
#include "comm/options.h"
#include "data/options.h"
#include "nn/average.h"
#include "nn/options.h"
#include "observe/options.h"
#include "plan/options.h"
#include "recipe/trainer.h"

// Initial weights.
typedef struct tri_start_options {
    const char *path;   // file or folder; NULL: none
    tri_strings ignore; // patterns of names of tensors that are not taken from there
} tri_start_options;

typedef struct tri_recipe {
    const char *name; // name of the run; the model's name if the recipe has none
    int64_t seed;
    tri_model_options model;
    tri_start_options init;
    tri_lora lora;
    tri_data_options data;
    tri_batch_options batch;
    tri_loss_options loss;
    tri_strings metrics; // what evaluation reports besides the loss and accuracy
    tri_optimizer_options optimizer;
    tri_schedule_options schedule;
    tri_average_options average;
    tri_trainer_options trainer;
    tri_strategy_options strategy;
    tri_checkpoint_options checkpoint;
    tri_log_options log;
    tri_comm_options comm;
    // Always NULL, because its settings are merged into the sections above.
    const tri_tree *deepspeed;
    const char *recorded_in; // always NULL: settled with the paths
    // The values with which the run began, by key, of keys that were changed since
    // (recipe/resumed.h); NULL: none were.
    const tri_tree *began_with;
    // Keys that the recipe leaves open (names, modes) and whose values here follow from other keys.
    // The resolved recipe leaves them open too, so that they follow when another key is overridden.
    tri_strings left_open;
    bool has_default_precision; // neither the file nor an override sets trainer.precision
    bool has_default_epochs;    // neither the file nor an override sets trainer.max_epochs
    int64_t rounds;    // micro-batches per step by DeepSpeed's settings: see tri_deepspeed.rounds
    tri_strings notes; // warnings about the recipe, see tri_recipe_log_notes
} tri_recipe;

// The whole recipe as one table. Its help texts are the reference of a recipe's keys.
extern const tri_option_table tri_recipe_table;

// Reads the file at `path` and applies `overrides` ("key.path=value") in order.
// - An override that changes data.name, optimizer.name or schedule.name first drops the other keys
//   of that section in the file.
// - `task` is the model's name in a program that brings its own model; NULL: the recipe has to name
//   a model.
// - Paths are settled as recipe/paths.h says.
// - If the DeepSpeed configuration and the recipe set a key to different values, that is an error,
//   unless an override sets the key or names the configuration.
// All memory is in `arena`. Everything that the tables can check is checked. No file is opened
// except the recipe and the DeepSpeed configuration. TRI_BAD_INPUT and others: the message is one
// line that names file and line, or the override.
tri_status tri_recipe_load(tri_arena *arena, const char *path, const char *const *overrides,
                           int count, const char *task, tri_recipe *out);
// As tri_recipe_load, from text that was already read, such as a checkpoint's recipe; `file` is its
// name for messages.
tri_status tri_recipe_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                            const char *const *overrides, int count, const char *task,
                            tri_recipe *out);

// Whether a word names a recipe, by its end (.yaml or .yml): for advice where a command should be.
bool tri_recipe_is_named(const char *word);

// Logs the notes as warnings. Only one rank calls it, after the recipe was found to be valid,
// because a recipe with an error needs no advice.
void tri_recipe_log_notes(const tri_recipe *recipe);

// Makes the resolved recipe: every key with its value, also defaults, but for keys left open.
// Loading it gives the same recipe, so that a run can be repeated after defaults have changed.
tri_tree *tri_recipe_tree(tri_arena *arena, const tri_recipe *recipe);
// Writes the resolved recipe as YAML.
char *tri_recipe_emit(tri_arena *arena, const tri_recipe *recipe);

// Writes the resolved recipe as YAML for the run folder `run_dir`: with whole paths, and with the
// folder's own, so that it can be loaded from any working directory, and after the folder and its
// data were moved together.
char *tri_recipe_record(tri_arena *arena, const tri_recipe *recipe, const char *run_dir);

// Lists the keys ("optimizer.lr") that define what a run computes and that differ between `a` and
// `b`. Keys that may change freely (tri_option_change) are not listed: where data are stored, how
// long and on how many ranks the run trains, what it writes. Two spellings of one file's path do
// not differ, nor do keys that `b` has changed (began_with).
tri_strings tri_recipe_differences(tri_arena *arena, const tri_recipe *a, const tri_recipe *b);

#endif
