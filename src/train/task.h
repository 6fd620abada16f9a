// The model of a recipe: a built-in one, the program's own, or one from a shared object. All of
// them are tasks, so that the rest of the program need not distinguish them.
#ifndef TRIREME_TRAIN_TASK_H
#define TRIREME_TRAIN_TASK_H

#include "plan/program.h"
#include "recipe/recipe.h"

// Checks a task that a user wrote. TRI_BAD_INPUT: it has no name or no build function, or one of
// its fields has an impossible shape. `whose`: how the message describes where the task comes from.
tri_status tri_task_check(const tri_task *task, const char *whose);
// Finds the model (task) that `recipe` names. `own` is a model that the program brings itself, used
// if the recipe names it or names none; NULL: there is none. A shared object stays loaded, because
// the task lies in it. TRI_BAD_INPUT: there is no such model; the message has the nearest name.
// A network that PyTorch has exported is read into `arena`; its errors are those of
// nn_exported_open.
tri_status tri_task_find(tri_arena *arena, const tri_recipe *recipe, const tri_task *own,
                         const tri_task **out);
// The file with the code of a model that is not built in, of which tri_task_find has loaded it: the
// shared object, or the program itself. NULL: the model is built in.
const char *tri_task_file(const tri_recipe *recipe, const tri_task *task);

// The recipe's model options, and the options for which the model has asked. Comparing the two
// shows which options the model does not know.
typedef struct tri_task_options {
    tri_arena *arena;
    const tri_tree *map;
    const char **asked; // every key for which the model has asked, once
    int asked_count, asked_capacity;
} tri_task_options;
// Fills in *out, the options with which graphs of the recipe's model are built: seed, precision,
// dropout, and the recipe's model options, for which a model asks by name. `context` records for
// which ones it asks, and must outlive the graphs.
tri_status tri_task_graph_options(tri_arena *arena, const tri_recipe *recipe,
                                  tri_task_options *context, tri_graph_options *out);
// Checks the options after a graph was built, because only then it is known for which options the
// model asks. TRI_BAD_INPUT: the model did not ask for an option of the recipe; the message names
// it and the nearest one for which the model did ask.
tri_status tri_task_check_options(const tri_task_options *context, const char *model);
// Logs a warning for each setting that needs a layer which the model lacks: a rate of dropout,
// which every model accepts, and trainer.sync_batchnorm. Only one rank calls it, with a graph of
// the model.
void tri_task_warn_idle(const tri_task_options *context, const tri_recipe *recipe,
                        const tri_graph *graph, const char *model);
// Warns of an exported network whose number of samples is fixed, and another one here.
void tri_task_warn_of_batch(const tri_graph *graph);
// Warns of each pattern of a group of parameters that matches no parameter's name.
void tri_task_warn_idle_patterns(const tri_parameter_group *groups, int count,
                                 const tri_graph *graph);

#endif
