// The losses of a recipe (its section `loss`), which take the place of the model's own.
#ifndef TRIREME_NN_RECIPE_LOSS_H
#define TRIREME_NN_RECIPE_LOSS_H

#include "graph/graph.h"

#include <trireme/task.h>

// Builds the losses of the graph's options from the outputs that the model has named and from the
// fields of the batch, and declares their weighted sum as the loss. The model's own loss is dropped
// with its terms; the caller sweeps. TRI_BAD_INPUT: there is no such output or field, or shapes do
// not fit; the message names the key.
tri_status tri_recipe_loss_build(tri_graph *graph, const tri_batch *batch, const char *model);
// Adds to the fields, of which there are *count, those that the losses of the graph's options take
// and that are missing, with the shapes that follow from the outputs of `graph`; up to `most`.
// False: that of a target does not follow, as that of ctc.
bool tri_recipe_loss_add_targets(tri_graph *graph, tri_field *fields, int *count, int most);

#endif
