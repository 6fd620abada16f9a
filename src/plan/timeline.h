// When a schedule's actions would run, from what they cost: the simplest simulation, and its
// picture.
#ifndef TRIREME_PLAN_TIMELINE_H
#define TRIREME_PLAN_TIMELINE_H

#include "plan/plan.h"

typedef struct tri_rates {
    double flops_per_s; // of compute
    double bytes_per_s; // of gradients reduced, and of parameters updated
} tri_rates;

typedef struct tri_moment {
    double start_s, end_s;
} tri_moment;

// One moment per action. Returns when the last one ends, in seconds.
double tri_timeline_make(const tri_plan *plan, const tri_step_plan *step, tri_rates rates,
                         tri_moment *moments);
// A Gantt chart for a terminal of `columns`: one row per lane, a letter per block.
void tri_timeline_draw(const tri_plan *plan, const tri_step_plan *step, const tri_moment *moments,
                       double end_s, int columns, FILE *out);

#endif
