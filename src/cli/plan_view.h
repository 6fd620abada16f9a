// What the parts of `trireme plan` share.
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
    tri_device *device;
    tri_field fields[TRI_MAX_DATA_FIELDS];
    tri_model_request model;
    tri_plan_request request;
    tri_pipeline_plans pipeline; // one plan for each place along the pipeline
    int ranks;
    tri_mesh mesh;
    tri_rates rates;
    const char *rates_from; // "assumed", "given", "measured"
    const tri_measured *measured;
    tri_estimate estimate;
} plan_view;

// X(member)
#define PLAN_MEMORY_LIST(X)                                                                        \
    X(parameters)                                                                                  \
    X(gradients) X(optimizer) X(activations) X(workspace) X(communication) X(peak)

// Text on standard output: everything, or what `show` names. TRI_BAD_INPUT: it names nothing.
tri_status plan_print(const plan_view *v, const char *show);
void plan_print_json(const plan_view *v);
void plan_print_candidates_json(const plan_view *v, const tri_candidate *found, int count);
tri_status plan_write_svg(const plan_view *v, const char *path);

int64_t plan_block_parameters(const tri_graph *g, int block);
double plan_block_flops(const tri_plan *plan, int block, tri_phase phase); // a sample

#endif
