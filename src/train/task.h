// The model of a recipe: built in, the program's own, or from a shared object. All are tasks, so
// that the rest of the program sees no difference.
#ifndef TRIREME_TRAIN_TASK_H
#define TRIREME_TRAIN_TASK_H

#include "plan/program.h"
#include "recipe/recipe.h"

// Checks a task that a user wrote. TRI_BAD_INPUT: it has no name or build function, or a field of
// it has an impossible shape. `whose`: what the message says about where the task is from.
tri_status tri_task_check(const tri_task *task, const char *whose);
// Finds the task that `recipe` names; `own` is the program's own task or NULL. A shared object
// stays loaded, because the task lies in it. TRI_BAD_INPUT names the model and the nearest known
// one.
tri_status tri_task_find(const tri_recipe *recipe, const tri_task *own, const tri_task **out);

// The recipe's model options, and what the model has asked for: from these follows which options no
// model knows.
typedef struct tri_task_options {
    tri_arena *arena;
    const tri_tree *map;
    bool *taken;        // for each entry of `map`: the model got it
    const char **asked; // every key that the model asked for, once
    int asked_count, asked_capacity;
} tri_task_options;
// Fills in the options of graphs of the recipe's model; `context` must outlive those graphs.
tri_status tri_task_graph_options(tri_arena *arena, const tri_recipe *recipe,
                                  tri_task_options *context, tri_graph_options *out);
// Called after a graph was built, because only then it is known which options the model asks for.
// TRI_BAD_INPUT: names an option that the model did not ask for and the nearest one that it did.
tri_status tri_task_check_options(const tri_task_options *context, const char *model);

#endif
