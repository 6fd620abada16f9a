// What actions read and write, as numbered things: who conflicts with whom, and so who waits.
#ifndef TRIREME_PLAN_DEPENDENCIES_H
#define TRIREME_PLAN_DEPENDENCIES_H

#include "plan/schedule.h"

typedef struct tri_resources tri_resources;

tri_resources *tri_resources_make(tri_arena *arena, const tri_schedule_request *request);
// Calls for each thing that the action reads or writes.
void tri_resources_visit(const tri_resources *resources, const tri_action *action,
                         void (*call)(void *context, int resource, bool writes), void *context);

// That the dependencies kept in the schedule order at least what the accesses demand.
tri_status tri_dependencies_verify(const tri_schedule *schedule,
                                   const tri_schedule_request *request);

#endif
