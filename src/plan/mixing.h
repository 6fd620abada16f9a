// Ops that mix samples, such as a sum over the first axis of what comes from the data, or that give
// samples something by their places in a micro-batch.
#ifndef TRIREME_PLAN_MIXING_H
#define TRIREME_PLAN_MIXING_H

#include "graph/graph.h"

// Returns the first node of the forward pass that mixes the samples of a micro-batch, or that is
// given them along another axis than the first, of which it is not known what it does with them;
// NULL: none does. `samples`: how many
// the graph's micro-batch has; of one, an axis of size 1 may be that of samples or any other. Batch
// norm does not count: the plan has a rule of its own for it.
const tri_node *tri_plan_find_mixing(tri_arena *arena, const tri_graph *graph, int64_t samples);
// Returns the first node that is another one, or computes with another number, such as a rate or a
// constant of a formula, than that of the same model for another number of samples; NULL: none.
const tri_node *tri_plan_find_sized(const tri_graph *graph, const tri_graph *other);

// Returns the first node of the forward pass that makes rows for the samples of what is none of
// them, such as a slice of a parameter or a dropout of it, so that a sample's place in its
// micro-batch decides what it is given; NULL: none does. Rows that are all alike may be made.
// `graph` and `other` are graphs of one model for two numbers of samples, `samples` that of
// `graph`; their nodes are alike (tri_plan_find_sized).
const tri_node *tri_plan_find_rows(tri_arena *arena, const tri_graph *graph, const tri_graph *other,
                                   int64_t samples);

#endif
