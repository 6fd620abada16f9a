// Ops that mix samples, such as a sum over the first axis of what comes from the data.
#ifndef TRIREME_PLAN_MIXING_H
#define TRIREME_PLAN_MIXING_H

#include "graph/graph.h"

// Returns the first node of the forward pass that mixes the samples of a micro-batch; NULL: none
// does. Batch norm does not count: the plan has a rule of its own for it.
const tri_node *tri_plan_find_mixing(tri_arena *arena, const tri_graph *graph);

#endif
