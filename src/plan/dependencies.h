// What the actions of a schedule read and write, as numbered resources (such as the gradients of a
// block's parameters, or the activations of a block for a micro-batch). Two actions conflict if
// both touch a resource and one of them writes it; the later one then has to wait for the earlier
// one. So no dependency is written by hand: a new action needs only rows in the table of
// dependencies.c that say what it touches.
#ifndef TRIREME_PLAN_DEPENDENCIES_H
#define TRIREME_PLAN_DEPENDENCIES_H

#include "plan/schedule.h"

typedef struct tri_resources tri_resources;

tri_resources *tri_resources_make(tri_arena *arena, const tri_schedule_request *request);
// Calls `call` for each resource that the action reads, or writes (`writes`). The code that derives
// dependencies and the code that checks them both use this function, so that what an action touches
// is stated in one place only.
void tri_resources_visit(const tri_resources *resources, const tri_action *action,
                         void (*call)(void *context, int resource, bool writes), void *context);

// Checks that the schedule's dependencies order every conflicting pair of actions, because a
// missing dependency would show only as a rare race. TRI_INTERNAL: the message names the action
// that does not wait.
tri_status tri_dependencies_verify(const tri_schedule *schedule,
                                   const tri_schedule_request *request);

#endif
