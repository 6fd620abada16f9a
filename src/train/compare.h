// Checks that the plans of all ranks fit together. A plan is all that a rank needs for its steps
// (schedules, kernels, memory), and each rank makes its own. The check is done when a session
// (ranks, data, device, plan and engine of a command) is opened: after each rank has made its plan,
// before it creates its engine.
#ifndef TRIREME_TRAIN_COMPARE_H
#define TRIREME_TRAIN_COMPARE_H

#include "comm/comm.h"
#include "plan/plan.h"
#include "recipe/recipe.h"
#include "rendezvous/rendezvous.h"

// Checks that all ranks have the same recipe, program version, parameters and home layouts (the
// order of elements in which a parameter and its gradient are kept); else they would add gradients
// of different elements. Checks also that the ranks of a pipeline have the same layouts of what
// they send each other. Collective over `comm`, which has all ranks of the run. claims[r] is what
// rank r has told about its host. TRI_BAD_INPUT: a rank differs; the message names it and its host.
// TRI_REFUSED: another rank has bad input.
tri_status tri_compare_plans(const tri_plan *plan, const tri_recipe *recipe, tri_comm *comm,
                             const tri_host_claim *claims);

#endif
