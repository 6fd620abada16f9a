// When the actions of all ranks of a run would begin and end, from costs. The rules are the
// engine's: a rank starts its actions in the order of its list, a lane runs its actions one after
// the other, and an action starts after those it depends on. A collective begins when the last of
// its ranks is ready, a message when both of its ranks are. Compute actions of ranks that share
// each layer begin together, since they exchange values inside of them.
#ifndef TRIREME_PLAN_SIMULATE_H
#define TRIREME_PLAN_SIMULATE_H

#include "plan/schedule.h"

typedef struct tri_moment {
    double start_s, end_s;
} tri_moment;

typedef struct tri_simulated_rank {
    const tri_schedule *schedule;
    const double *costs_s; // by action
    tri_moment *moments;   // by action: filled in
} tri_simulated_rank;

// The outcome of following the schedules of all ranks together. Actions of ranks without costs_s
// take no time; without `moments` none are written.
typedef struct tri_execution {
    double end_s;       // of the last action of all ranks
    double computing_s; // of the compute lanes, all ranks together
    int stuck_rank;     // a rank that waits for ever; -1: all schedules end
    int stuck_action;   // the action at which it waits
} tri_execution;
tri_execution tri_execute(const tri_mesh *mesh, const tri_simulated_rank *ranks);

// The schedules have dependencies and passed tri_schedule_verify_ranks with the same mesh.
// Returns the seconds until the last action of the last rank has ended; ranks[i] is rank i of the
// mesh. *bubble: the fraction of that time in which compute lanes wait, over all ranks.
double tri_simulate(const tri_mesh *mesh, const tri_simulated_rank *ranks, double *bubble);

#endif
