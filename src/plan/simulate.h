// When the actions of all ranks of a run would begin and end, from costs. The engine's rules: a
// rank starts its actions in the order of its list, each lane one after the other, each action
// after those it depends on; a collective begins when its last rank has come, a message when both
// have. The passes of ranks that share each layer are collectives: inside of them they exchange.
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

// All ranks run through their schedules together. Ranks without costs_s take no time, those without
// moments leave none.
typedef struct tri_execution {
    double end_s;       // of the last action of all ranks
    double computing_s; // of the compute lanes, all ranks together
    int stuck_rank;     // that waits for ever; -1: all came to their end
    int stuck_action;   // ... with what
} tri_execution;
tri_execution tri_execute(const tri_mesh *mesh, const tri_simulated_rank *ranks);

// The schedules have dependencies and passed tri_schedule_verify_ranks with the same mesh.
// Returns the seconds until the last action of the last rank has ended; ranks[i] is rank i of the
// mesh. *bubble: the share of that time in which compute lanes stand still, over all ranks.
double tri_simulate(const tri_mesh *mesh, const tri_simulated_rank *ranks, double *bubble);

#endif
