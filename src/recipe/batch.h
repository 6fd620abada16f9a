// The sizes of a batch, which are known once the number of replicas is known.
#ifndef TRIREME_RECIPE_BATCH_H
#define TRIREME_RECIPE_BATCH_H

#include "recipe/recipe.h"

// Computes batch.global and batch.micro from the recipe's own values, from
// trainer.accumulate_grad_batches (as in Lightning: micro-batches of one step on each replica) and
// from a DeepSpeed configuration. batch.micro stays 0 if no setting asks for more than one
// micro-batch. TRI_BAD_INPUT: the numbers contradict each other; the message names them.
tri_status tri_recipe_settle_batch(const tri_recipe *recipe, int64_t replicas,
                                   tri_batch_options *out);
// Gets the sizes of a batch for commands that do not train. They need no exact batch.global, so if
// it is auto, the size of one micro-batch takes its place.
tri_batch_options tri_recipe_batch_without_steps(const tri_recipe *recipe);

#endif
