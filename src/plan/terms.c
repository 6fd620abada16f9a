// Counts what losses are divided by if no label is ignored: the terms of all micro-batches of a
// step. A micro-batch of another size may have another number for each sample, as a mean over
// parameters or over pairs of samples has.
#include "plan/plan.h"

// Adds what `micro_batches` micro-batches of `size` samples count.
static tri_status add_counts(tri_plan *plan, const tri_plan_request *request, int64_t size,
                             int64_t micro_batches, double *counts) {
    const tri_graph *g = NULL;
    if (size == 0 || micro_batches == 0) return TRI_OK;
    for (int i = 0; i < plan->program_count; i++)
        if (plan->programs[i]->training && plan->programs[i]->batch == size)
            g = plan->programs[i]->graph;
    if (!g) { // a size that only other replicas have
        tri_model_request model = *request->model;
        model.options.training = true;
        tri_graph *built;
        TRI_TRY(tri_model_build(plan->arena, &model, size, &built));
        g = built;
    }
    const tri_metric_info *losses = &g->metrics[g->term_count > 0 ? g->first_term : 0];
    for (int i = 0; i < 1 || i < g->term_count; i++)
        counts[i] += losses[i].term.count * (double)micro_batches;
    return TRI_OK;
}

tri_status tri_plan_count_terms(tri_plan *plan, const tri_plan_request *request,
                                tri_step_shape shape) {
    const tri_graph *g = plan->graph;
    int64_t samples = request->step_samples[shape], micro = request->micro;
    if (!tri_step_trains(shape)) return TRI_OK;
    double *counts = TRI_NEW_ARRAY(plan->arena, double, g->term_count + 1);
    plan->steps[shape].term_counts = counts;
    if (micro > 0) {
        TRI_TRY(add_counts(plan, request, micro, samples / micro, counts));
        return add_counts(plan, request, samples % micro, 1, counts);
    }
    // Each replica has one micro-batch; their sizes differ by at most one.
    int64_t size = samples / plan->replicas, larger = samples % plan->replicas;
    TRI_TRY(add_counts(plan, request, size + 1, larger, counts));
    return add_counts(plan, request, size, plan->replicas - larger, counts);
}
