// What the files of `trireme scale` share: a sweep over numbers of ranks, measured and simulated,
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
    tri_recipe recipe; // the recipe with the global batch for this number of ranks
    plan_view plan;    // only on rank 0
    bool is_measured;
    tri_bench_result measured;
    double link_bytes_per_s; // rate measured between these ranks; 0: not measured
    double simulated_step_s;
    double simulated_waiting; // fraction of a simulated step in which ranks wait, not compute
} scale_point;

typedef struct scale_view {
    tri_arena *arena;
    const char *name, *strategy; // name of the recipe, and its strategy
    bool is_weak;                // the global batch grows with the ranks; false: it stays the same
    int count;
    scale_point points[SCALE_MAX_POINTS]; // sorted by number of ranks; the first one is measured
    // The speeds that the simulation assumes for computation, memory and network. The bandwidth
    // between ranks (rates.link_bytes_per_s) is used for points without a measurement of their own
    // (scale_point.link_bytes_per_s). It is the one measured at the largest point that has such a
    // measurement: with `link_ranks` ranks on `link_hosts` hosts. `link_ranks` 0: no point has one,
    // and the bandwidth is only assumed.
    tri_rates rates;
    // The rates of computation were chosen so that the simulated first point takes as long as the
    // measured one.
    bool is_calibrated;
    int link_ranks, link_hosts;
    int64_t link_bytes; // size of the all-reduces that measured the rates between ranks
} scale_view;

// Defined in scale_simulate.c. Makes the recipe of each point (each number of ranks), with the
// point's global batch, and plans it. TRI_BAD_INPUT: `trireme train` would reject such a recipe
// too; or the global batch of a point would be no whole number (--weak).
tri_status scale_plan(scale_view *v, const tri_recipe *recipe, const cli_context *context,
                      const char *device);
void scale_end_plans(scale_view *v);
// Defined in scale_simulate.c. Returns how many bytes, in F32, the gradients of the first point's
// largest unit have. A unit is the parameters whose gradients are reduced together, mostly those of
// a block. The bandwidth between ranks is measured with an all-reduce of this size.
int64_t scale_reduced_bytes(const scale_view *v);
// Defined in scale_simulate.c. Sets the rates of network and devices that the simulation assumes
// (v->rates) from the measurements, and simulates all points (all numbers of ranks).
void scale_simulate(scale_view *v);

// The functions below are in scale_show.c. They compute and print a point's numbers.

int64_t scale_batch(const scale_point *point);
// The samples/s and the seconds of a step at a point: as measured, or as simulated if the point was
// not measured.
double scale_samples_per_s(const scale_point *point);
double scale_step_s(const scale_point *point);
// The fraction of the time in which ranks wait for others. NaN: not known, because the point was
// measured on a device that works asynchronously.
double scale_waiting(const scale_point *point);
// A point's samples/s divided by those of the first point: of all ranks together (speedup), and of
// one rank (efficiency).
double scale_speedup(const scale_view *v, int point);
double scale_efficiency(const scale_view *v, int point);
// The simulation's error at a measured point; 0.1: the simulation is 10% faster than the
// measurement.
double scale_error(const scale_point *point);
const char *scale_title(const scale_view *v);
// Returns a text that tells how steps were simulated, and how far the simulation is from the
// measurements.
const char *scale_method(const scale_view *v);
void scale_print(const scale_view *v, FILE *out);
void scale_print_json(const scale_view *v, FILE *out);

// Defined in scale_draw.c. Draws the sweep as SVG.
void scale_draw(const scale_view *v, FILE *out);

#endif
