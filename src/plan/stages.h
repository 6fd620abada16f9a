// How blocks are divided into the stages of a pipeline.
#ifndef TRIREME_PLAN_STAGES_H
#define TRIREME_PLAN_STAGES_H

#include "graph/graph.h"

// Consecutive blocks, so that the most expensive stage costs as little as can be. TRI_BAD_INPUT if
// there are more stages than blocks.
tri_status tri_stages_cut(const double *costs, int blocks, int stages, int *stage_of);
// By the names of the blocks that begin the second and later stages. TRI_BAD_INPUT names what is
// no block, out of order, or the wrong number.
tri_status tri_stages_named(const tri_graph *graph, const char *const *names, int count, int stages,
                            int *stage_of);

#endif
