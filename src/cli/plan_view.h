// What the files of `trireme plan` share: the planned run, and its outputs as text, JSON and SVG.
#ifndef TRIREME_CLI_PLAN_VIEW_H
#define TRIREME_CLI_PLAN_VIEW_H

#include "cli/cli.h"

#include "base/os.h"
#include "plan/draw.h"
#include "plan/fit.h"

typedef struct plan_view {
    tri_arena *arena;
    const tri_recipe *recipe;
    const tri_task *task;
    const char *device_name; // the value of --device
    tri_device_description device;
    tri_field fields[TRI_MAX_DATA_FIELDS];
    tri_task_options task_options; // `model` reads these whenever a plan is made
    tri_model_request model;
    tri_plan_request request;
    tri_pipeline_plans pipeline; // one plan for each pipeline rank
    int ranks;
    bool is_elsewhere; // the run will be on other hosts than this one
    tri_mesh mesh;
    tri_rates rates;
    const char *rates_source; // words for the source of the rates, such as "assumed" or "given"
    const tri_measured *measured;
    tri_estimate estimate;
    int64_t samples;     // the value of --samples; 0: not given
    const char *program; // the name by which this program was called
    // The recipe's path, and the overrides with which it was read, for the commands that are shown.
    const char *path, **overrides;
    int override_count;
    tri_device_memory memory; // what a rank may use; 0 bytes: not known
} plan_view;

// Plans v->recipe for v->ranks ranks of the device v->device_name; the caller has set these
// members. The caller destroys v->pipeline, also after a failure.
tri_status plan_make(plan_view *v, const cli_context *context);
// Finds what a rank may use: strategy.memory, the device's memory or, for a single rank on this
// host, the host's free memory. 0 bytes: not known.
tri_device_memory plan_memory(const plan_view *v);
// Checks that the plan fits into that memory.
tri_status plan_check_fits(const plan_view *v);

// What `trireme plan` tells about the whole run: its steps, its time, and what it leaves on disk.
typedef struct plan_run {
    int64_t samples;                      // samples of the training data; 0: not known
    int64_t steps_per_epoch;              // 0: not known
    int64_t steps;                        // steps of the whole run; -1: not known
    double hours;                         // hours of training, without evaluation; -1: not known
    int64_t model_bytes, optimizer_bytes; // sizes of one checkpoint's weights and optimizer state
    int64_t checkpoints; // the most checkpoints that are on disk at one time; -1: not known
} plan_run;
plan_run plan_whole_run(const plan_view *v);
// Prints the lines about the time of a step, and about the run with its checkpoints.
void plan_print_time(const plan_view *v);
// Prints the plan in ten lines: whether it fits, what it needs, and what to do next.
void plan_print_summary(const plan_view *v);

// Prints text on standard output: the section that `show` names; NULL: the summary. TRI_BAD_INPUT:
// there is no such section.
tri_status plan_print(const plan_view *v, const char *show);
void plan_print_json(const plan_view *v);
void plan_print_candidates_json(const plan_view *v, const tri_candidate *found, int count);
tri_status plan_write_svg(const plan_view *v, const char *path);

int64_t plan_block_parameters(const tri_graph *g, int block);
// Counts the flops of one phase (forward, backward, …) of a block of the model, for one sample.
double plan_block_flops(const tri_plan *plan, int block, tri_phase phase);

#endif
