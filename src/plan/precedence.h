// Which actions of a schedule are certainly done before another one begins, whatever overtakes
// whatever. A lane (computation, a communicator, storage, …) starts its actions in the order of the
// list; all lanes but ALONG and BACK, which carry messages between stages, also finish them in that
// order.
#ifndef TRIREME_PLAN_PRECEDENCE_H
#define TRIREME_PLAN_PRECEDENCE_H

#include "plan/schedule.h"

typedef struct tri_precedence tri_precedence;

// Lives in `arena`, and refers to the schedule, which must have dependencies.
tri_precedence *tri_precedence_make(tri_arena *arena, const tri_schedule *schedule);
// Whether the lane finishes its actions in the order of the list.
bool tri_lane_is_in_order(tri_lane lane);
// Whether `action` is done before `later` begins, or is the same action.
bool tri_precedes(const tri_precedence *precedence, int action, int later);

// Returns TRI_INTERNAL, with a message that names both actions and how the first breaks the rule.
tri_status tri_precedence_broken(const tri_precedence *precedence, int action, const char *rule,
                                 int other);

#endif
