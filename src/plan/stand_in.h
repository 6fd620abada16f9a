// Fields that training had and the data of a program for outputs do not: see `absent` of
// tri_model_request.
#ifndef TRIREME_PLAN_STAND_IN_H
#define TRIREME_PLAN_STAND_IN_H

#include "graph/graph.h"

#include <trireme/task.h>

// Finds a field, of the `count` for which inputs stand in, that an output reads; the graph is
// swept. Returns its number, and the output's name; -1: there is none.
int tri_stand_in_find_read(const tri_graph *graph, const tri_field *absent, int count,
                           const char **output);
// Removes the inputs that stand in for absent fields and that nothing reads.
void tri_stand_in_remove(tri_graph *graph, const tri_field *absent, int count);

#endif
