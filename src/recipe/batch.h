// Sizes of a batch, once it is known how many replicas there are.
#ifndef TRIREME_RECIPE_BATCH_H
#define TRIREME_RECIPE_BATCH_H

#include "recipe/recipe.h"

// batch.global and batch.micro from what the recipe says of them, of
// trainer.accumulate_grad_batches (as Lightning means it: forward passes of one step on each
// replica) and in a DeepSpeed configuration. A micro of 0 stays when nothing asks for more than
// one pass. TRI_BAD_INPUT, naming the numbers, when they contradict each other.
tri_status tri_recipe_settle_batch(const tri_recipe *recipe, int64_t replicas,
                                   tri_batch_options *out);
// What does not train has no steps of so many passes: batch.global is some number of samples.
tri_batch_options tri_recipe_batch_without_steps(const tri_recipe *recipe);

#endif
