// What the files of `trireme scale` share: a sweep over numbers of ranks, measured and simulated,
// and its outputs as text, JSON and SVG.
#ifndef TRIREME_CLI_SCALE_VIEW_H
#define TRIREME_CLI_SCALE_VIEW_H

#include "cli/plan_view.h"
#include "plan/run_time.h"
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
    // With --simulate: the whole run; total_s 0: its length is not known. `network_s` is the part
    // of run.train_s that communication adds to computation.
    tri_run_time run;
    double network_s;
} scale_point;

// What `scale --simulate` is told of a machine that is not here. 0: not given.
typedef struct scale_machine {
    bool is_given;               // --simulate was
    const char *device;          // that of the profile; NULL: none
    int64_t ranks_per_host;      // 0: all ranks are on one host
    double network_bytes_per_s;  // of a host
    double rank_samples_per_s;   // of one rank's training steps, whose data are there
    double loader_samples_per_s; // that the loaders of all ranks of a full host deliver
    double start_s;              // from the start of the job to the first step
    double samples, val_samples; // of the data
    bool has_cold_loader;        // see tri_run_model.is_cold
} scale_machine;

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
    // With --simulate: see tri_rates_of, and the name of the site's profile; else NULL.
    const char *rates_source, *site;
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
// Defined in scale_simulate.c. Chooses rates with which one rank trains so many samples per second
// of a step of `point`. TRI_BAD_INPUT: there are none, or the recipe cannot run on one rank.
tri_status scale_calibrate_rank(scale_view *v, const scale_point *point, const cli_context *context,
                                const char *device, double samples_per_s);
// Defined in scale_simulate.c. Simulates a step of the point with v->rates, in which computation is
// `factor` times as fast. Returns its seconds.
double scale_simulate_point(const scale_view *v, scale_point *point, double factor);

// Defined in scale_machine.c: `scale --simulate`. Reads the flags of a machine.
tri_status scale_read_machine(scale_view *v, const cli_arguments *a, scale_machine *out);
// Simulates steps and runs of all points, of which nothing is measured.
tri_status scale_simulate_machine(scale_view *v, const scale_machine *machine,
                                  const cli_context *context, const char *device);
void scale_print_machine(const scale_view *v, const scale_machine *machine, FILE *out);
// Adds what a point's whole run takes to its JSON object, if it is known.
void scale_put_run(const scale_view *v, tri_tree *map, const scale_point *point);

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
