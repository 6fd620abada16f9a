// What the sources of `trireme scale` share: a sweep over numbers of ranks, measured and simulated,
// and its outputs as text, JSON and SVG.
#ifndef TRIREME_CLI_SCALE_VIEW_H
#define TRIREME_CLI_SCALE_VIEW_H

#include "cli/plan_view.h"
#include "train/bench.h"

#include <stdio.h>

enum { SCALE_MAX_POINTS = 32 };

// One point of the sweep: the training with one number of ranks.
typedef struct scale_point {
    int ranks, hosts;
    tri_recipe recipe; // with the point's global batch
    plan_view plan;    // on rank 0
    bool is_measured;
    tri_bench_result measured;
    double link_bytes_per_s; // measured between these ranks; 0: it was not
    double simulated_step_s;
    double simulated_waiting; // fraction of a step in which compute lanes wait
} scale_point;

typedef struct scale_view {
    tri_arena *arena;
    const char *name, *strategy; // of the recipe
    bool weak;                   // the global batch grows with the ranks; else it stays
    int count;
    scale_point points[SCALE_MAX_POINTS]; // by rising number of ranks; the first is measured
    // What the simulation uses. Each measured point has its own link, the others that of
    // link_ranks, the most ranks for which it was measured; 0: none was, it is assumed.
    tri_rates rates;
    bool is_calibrated; // the rates of computation are such that the first point is as measured
    int link_ranks, link_hosts;
    int64_t link_bytes; // of the all-reduce by which links were measured
} scale_view;

// In scale_simulate.c. Plans all points; the recipe of each has its batch. TRI_BAD_INPUT, as
// `trireme train` refuses it.
tri_status scale_plan(scale_view *v, const tri_recipe *recipe, const cli_context *context,
                      const char *device);
void scale_end_plans(scale_view *v);
// In scale_simulate.c. Tells the bytes of the largest unit of gradients, which ranks reduce at
// once. Links are measured with as many.
int64_t scale_reduced_bytes(const scale_view *v);
// In scale_simulate.c. Chooses the rates by what was measured, and simulates all points.
void scale_simulate(scale_view *v);

// The following, in scale_show.c, compute and print a point's numbers.

int64_t scale_batch(const scale_point *point);
// A point's numbers: measured, or simulated where nothing was measured.
double scale_samples_per_s(const scale_point *point);
double scale_step_s(const scale_point *point);
double scale_waiting(const scale_point *point); // not a number: not known
// Compare a point's samples/s with the first point's: of all ranks, and of each rank.
double scale_speedup(const scale_view *v, int point);
double scale_efficiency(const scale_view *v, int point);
// Tells how much faster than measured the simulation is, as a fraction: the simulation's error.
double scale_error(const scale_point *point);
const char *scale_title(const scale_view *v);
const char *scale_method(const scale_view *v); // how steps were simulated, and how far off they are
void scale_print(const scale_view *v, FILE *out);
void scale_print_json(const scale_view *v, FILE *out);

// In scale_draw.c. Draws the sweep as SVG.
void scale_draw(const scale_view *v, FILE *out);

#endif
