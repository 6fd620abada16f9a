// Fields that training had and the data of a program for outputs do not: see tri_model_request.
#ifndef TRIREME_PLAN_STAND_IN_H
#define TRIREME_PLAN_STAND_IN_H

#include "plan/program.h"

// Finds a field, of those for which an input stands in, that an output reads; the graph is swept.
// Returns its number in request->absent, and the output's name; -1: there is none.
int tri_stand_in_find_read(const tri_graph *graph, const tri_model_request *request,
                           const char **output);
// Removes the inputs that stand in for absent fields and that nothing reads.
void tri_stand_in_remove(tri_graph *graph, const tri_model_request *request);

#endif
