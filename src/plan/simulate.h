// When the actions of all ranks of a run would begin and end. The input is a schedule (a list of
// actions) for each rank, and the time that each action takes (its cost). The rules are those of
// the engine, except that here the lanes ALONG and BACK also finish their actions in order: a rank
// starts its actions in the order of its list, a lane (compute, a communicator, storage, …) runs
// its actions one after the other, and an action starts after the actions on which it depends. A
// collective begins when the last of its ranks is ready, a message when both of its ranks are.
// Compute actions of a group along the tensor axis begin together, because its ranks exchange
// values within the actions.
#ifndef TRIREME_PLAN_SIMULATE_H
#define TRIREME_PLAN_SIMULATE_H

#include "plan/schedule.h"

typedef struct tri_moment {
    double start_s, end_s;
} tri_moment;

typedef struct tri_simulated_rank {
    const tri_schedule *schedule;
    const double *costs_s; // by action: how many seconds it takes; NULL: all actions take no time
    tri_moment *moments;   // by action: filled in by the simulation; NULL: not wanted
} tri_simulated_rank;

// What the simulation of all ranks found.
typedef struct tri_execution {
    double end_s;       // when the last action of all ranks ends
    double computing_s; // sum over all ranks of the time in which compute lanes work
    int stuck_rank;     // a rank that waits for ever; -1: there is none
    int stuck_action;   // the action at which this rank waits
} tri_execution;
tri_execution tri_execute(const tri_mesh *mesh, const tri_simulated_rank *ranks);

// Returns the seconds until the last action of the last rank has ended; ranks[i] is rank i of the
// mesh. *bubble: the fraction of that time in which ranks wait instead of computing. The schedules
// must have dependencies, and no rank may wait for ever in them: tri_pipeline_plans_create checks
// this, and so does tri_schedule_verify_ranks.
double tri_simulate(const tri_mesh *mesh, const tri_simulated_rank *ranks, double *bubble);

#endif
