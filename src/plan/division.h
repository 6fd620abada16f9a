// That the results of a plan do not depend on how its steps are divided into micro-batches.
#ifndef TRIREME_PLAN_DIVISION_H
#define TRIREME_PLAN_DIVISION_H

#include "plan/plan.h"

// Finds a parameter, buffer or constant of `a` that is another one in `b`; NULL: there is none.
const char *tri_plan_other_parameter(const tri_graph *a, const tri_graph *b);
// Fails if the model's losses depend on how a training step is divided into micro-batches, and the
// number of replicas divides it.
tri_status tri_plan_check_division(const tri_plan *plan, const tri_plan_request *request);

#endif
