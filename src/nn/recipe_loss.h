// The losses of a recipe (its section `loss`), which take the place of the model's own.
#ifndef TRIREME_NN_RECIPE_LOSS_H
#define TRIREME_NN_RECIPE_LOSS_H

#include "graph/graph.h"

// Builds the losses of the graph's options from the outputs that the model has named and from the
// fields of the batch, and declares their weighted sum as the loss. The model's own loss is dropped
// with its terms; the caller sweeps. TRI_BAD_INPUT: there is no such output or field, or shapes do
// not fit; the message names the key.
tri_status tri_recipe_loss_build(tri_graph *graph, const tri_batch *batch, const char *model);

#endif
