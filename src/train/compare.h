// Checks that the ranks of a run have the same of everything that each of them makes or reads by
// itself: recipe, program, model, plan, data, weights. Ranks that differ would train several models
// at once, on sums of gradients that do not belong together, or would wait for each other for ever.
#ifndef TRIREME_TRAIN_COMPARE_H
#define TRIREME_TRAIN_COMPARE_H

#include "comm/comm.h"
#include "plan/plan.h"
#include "recipe/recipe.h"
#include "rendezvous/rendezvous.h"
#include "train/fields.h"
#include "train/task.h"

// All ranks of a session.
typedef struct train_ranks {
    tri_arena *arena;
    tri_comm *comm;
    const tri_host_claim *claims; // by rank: what it has told about its host
} train_ranks;

// What this rank has found.
typedef struct train_findings {
    const tri_recipe *recipe;
    const tri_task *task;
    const tri_plan *plan;
    const train_named_data *data;
    int data_count;
} train_findings;

// Compares what a session has before its engine is made: the recipe and the program's version, the
// file of a model that is not built in, the data (how many samples, the names of classes and
// columns, fields, the content of the files), the parameters with their home layouts (the order of
// elements in which a parameter and its gradient are kept), and, of the ranks of a pipeline, the
// layouts of what they send each other. Collective over ranks->comm. TRI_BAD_INPUT: a rank differs;
// the message names it, its host, and in what. TRI_REFUSED: another rank has bad input.
tri_status train_compare_ranks(const train_ranks *ranks, const train_findings *own);
// Compares the weights that tri_checkpoint_load_weights finds at `path`. `option`: what names the
// path, for messages. Collective, and fails in the same way.
tri_status train_compare_weights(const train_ranks *ranks, const char *path, const char *option);

#endif
