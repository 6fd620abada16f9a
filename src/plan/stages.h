// Divides the blocks of a model into the stages of a pipeline. A block is a layer or a group of
// layers; a stage is a run of consecutive blocks on one rank. stage_of[b] is set to the stage of
// block b.
#ifndef TRIREME_PLAN_STAGES_H
#define TRIREME_PLAN_STAGES_H

#include "graph/graph.h"

// Cuts by cost: the most expensive stage costs as little as possible, because all others wait for
// it. TRI_BAD_INPUT: there are more stages than blocks.
tri_status tri_stages_cut(const double *costs, int blocks, int stages, int *stage_of);
// Cuts where the user says: the blocks with these names begin the second and later stages.
// TRI_BAD_INPUT: no block has one of the names, the names are not in the order of the blocks, or
// their number is not stages - 1.
tri_status tri_stages_named(const tri_graph *graph, const char *const *names, int count, int stages,
                            int *stage_of);

#endif
