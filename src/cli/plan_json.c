// `trireme plan --json`: prints the plan as one JSON object, or the settings that --fit has found
// as a list.
#include "cli/plan_view.h"

#include <stdio.h>

static tri_tree *memory_tree(tri_arena *arena, const tri_memory_plan *m) {
    tri_tree *map = tri_tree_map(arena);
#define X(member) tri_tree_put(arena, map, #member, tri_tree_int(arena, m->member));
    TRI_MEMORY_PLAN_LIST(X)
#undef X
    if (m->nccl_estimate > 0)
        tri_tree_put(arena, map, "nccl_estimate", tri_tree_int(arena, m->nccl_estimate));
    if (m->caches > 0) tri_tree_put(arena, map, "caches", tri_tree_int(arena, m->caches));
    if (m->offloaded > 0) tri_tree_put(arena, map, "offloaded", tri_tree_int(arena, m->offloaded));
    return map;
}

// Lists the groups of ranks with the same plan, one for each rank along the mesh's axis `pipeline`:
// the group's first rank, its number of ranks, and the memory of each of them.
static tri_tree *groups_tree(const plan_view *v) {
    tri_arena *arena = v->arena;
    tri_tree *list = tri_tree_list(arena);
    for (int pipeline_rank = 0; pipeline_rank < v->pipeline.count; pipeline_rank++) {
        tri_tree *map = tri_tree_map(arena);
        tri_tree_put(arena, map, "rank",
                     tri_tree_int(arena, pipeline_rank * v->pipeline.ranks_each));
        tri_tree_put(arena, map, "ranks", tri_tree_int(arena, v->pipeline.ranks_each));
        tri_tree_put(arena, map, "memory",
                     memory_tree(arena, &v->pipeline.plans[pipeline_rank]->memory));
        tri_tree_append(arena, list, map);
    }
    return list;
}

static tri_tree *blocks_tree(const plan_view *v) {
    const tri_plan *plan = v->pipeline.plans[0];
    const tri_graph *g = plan->graph;
    tri_tree *list = tri_tree_list(v->arena);
    for (int b = 0; b < g->block_count; b++) {
        tri_tree *map = tri_tree_map(v->arena);
        tri_tree_put(v->arena, map, "name", tri_tree_string(v->arena, g->blocks[b]));
        tri_tree_put(v->arena, map, "parameters",
                     tri_tree_int(v->arena, plan_block_parameters(g, b)));
        tri_tree_put(v->arena, map, "stage", tri_tree_int(v->arena, plan->stages.of_block[b]));
        tri_tree_put(v->arena, map, "forward_flops",
                     tri_tree_double(v->arena, plan_block_flops(plan, b, TRI_PHASE_FORWARD)));
        tri_tree_put(v->arena, map, "backward_flops",
                     tri_tree_double(v->arena, plan_block_flops(plan, b, TRI_PHASE_BACKWARD) +
                                                   plan_block_flops(plan, b, TRI_PHASE_WEIGHT)));
        tri_tree_append(v->arena, list, map);
    }
    return list;
}

static tri_tree *estimate_tree(const plan_view *v) {
    tri_arena *arena = v->arena;
    tri_tree *map = tri_tree_map(arena);
    double step_s = v->estimate.step_s;
    double samples = (double)v->pipeline.plans[0]->steps[TRI_STEP_FULL].samples;
    tri_tree_put(arena, map, "rates", tri_tree_string(arena, v->rates_source));
    tri_tree_put(arena, map, "flops_per_s", tri_tree_double(arena, v->rates.flops_per_s));
    tri_tree_put(arena, map, "half_flops_per_s", tri_tree_double(arena, v->rates.half_flops_per_s));
    tri_tree_put(arena, map, "memory_bytes_per_s",
                 tri_tree_double(arena, v->rates.memory_bytes_per_s));
    tri_tree_put(arena, map, "link_bytes_per_s", tri_tree_double(arena, v->rates.link_bytes_per_s));
    tri_tree_put(arena, map, "disk_bytes_per_s", tri_tree_double(arena, v->rates.disk_bytes_per_s));
    tri_tree_put(arena, map, "host_bytes_per_s", tri_tree_double(arena, v->rates.host_bytes_per_s));
    tri_tree_put(arena, map, "host_memory_bytes_per_s",
                 tri_tree_double(arena, tri_rates_of_host_memory(&v->rates, v->mesh.ranks)));
    tri_tree_put(arena, map, "step_s", tri_tree_double(arena, step_s));
    tri_tree_put(arena, map, "samples_per_s",
                 tri_tree_double(arena, step_s > 0 ? samples / step_s : 0));
    tri_tree_put(arena, map, "step_flops", tri_tree_double(arena, v->estimate.flops));
    tri_tree_put(arena, map, "bubble", tri_tree_double(arena, v->estimate.bubble));
    return map;
}

static tri_tree *run_tree(const plan_view *v) {
    tri_arena *arena = v->arena;
    tri_tree *map = tri_tree_map(arena);
    plan_run run = plan_whole_run(v);
    if (run.samples > 0) tri_tree_put(arena, map, "samples", tri_tree_int(arena, run.samples));
    if (run.steps_per_epoch > 0) {
        tri_tree_put(arena, map, "steps_per_epoch", tri_tree_int(arena, run.steps_per_epoch));
        tri_tree_put(arena, map, "epochs",
                     tri_tree_double(arena, (double)run.steps / (double)run.steps_per_epoch));
    }
    if (run.steps >= 0) {
        tri_tree_put(arena, map, "steps", tri_tree_int(arena, run.steps));
        tri_tree_put(arena, map, "hours", tri_tree_double(arena, run.hours));
    }
    tri_tree_put(arena, map, "model_bytes", tri_tree_int(arena, run.model_bytes));
    tri_tree_put(arena, map, "optimizer_bytes", tri_tree_int(arena, run.optimizer_bytes));
    tri_tree_put(arena, map, "checkpoint_bytes",
                 tri_tree_int(arena, run.model_bytes + run.optimizer_bytes));
    if (run.checkpoints >= 0)
        tri_tree_put(arena, map, "checkpoints", tri_tree_int(arena, run.checkpoints));
    return map;
}

static tri_tree *schedule_tree(const plan_view *v) {
    const tri_plan *plan = v->pipeline.plans[0];
    const tri_schedule *s = &plan->steps[TRI_STEP_FULL].schedule;
    tri_tree *list = tri_tree_list(v->arena);
    for (int i = 0; i < s->count; i++) {
        const tri_action *a = &s->actions[i];
        tri_tree *map = tri_tree_map(v->arena), *after = tri_tree_list(v->arena);
        tri_tree_put(v->arena, map, "action", tri_tree_string(v->arena, tri_action_name(a->kind)));
        tri_subject subject = tri_action_subject(a->kind);
        if (subject == TRI_SUBJECT_BLOCK || subject == TRI_SUBJECT_UNIT)
            tri_tree_put(v->arena, map, "block",
                         tri_tree_string(v->arena, plan->flat.units[a->subject].name));
        if (a->round >= 0) tri_tree_put(v->arena, map, "round", tri_tree_int(v->arena, a->round));
        for (int d = 0; d < a->dependency_count; d++)
            tri_tree_append(v->arena, after,
                            tri_tree_int(v->arena, s->dependencies[a->first_dependency + d]));
        if (a->dependency_count) tri_tree_put(v->arena, map, "after", after);
        tri_tree_append(v->arena, list, map);
    }
    return list;
}

void plan_print_json(const plan_view *v) {
    tri_tree *map = tri_tree_map(v->arena);
    const tri_plan *plan = v->pipeline.plans[0];
    const tri_graph *g = plan->graph;
    tri_tree_put(v->arena, map, "name", tri_tree_string(v->arena, v->recipe->name));
    tri_tree_put(v->arena, map, "ranks", tri_tree_int(v->arena, v->ranks));
    tri_tree_put(v->arena, map, "strategy", tri_tree_string(v->arena, plan->strategy->name));
    tri_tree_put(v->arena, map, "parameters", tri_tree_int(v->arena, tri_graph_trained_count(g)));
    tri_tree_put(v->arena, map, "memory",
                 memory_tree(v->arena, &tri_pipeline_plans_fullest(&v->pipeline)->memory));
    if (plan->offload.in_host_memory)
        tri_tree_put(v->arena, map, "offload_step",
                     tri_tree_string(v->arena, plan->offload.steps_on_host ? "host" : "device"));
    tri_tree_put(v->arena, map, "rank_groups", groups_tree(v));
    tri_tree_put(v->arena, map, "estimate", estimate_tree(v));
    tri_tree_put(v->arena, map, "run", run_tree(v));
    tri_tree_put(v->arena, map, "blocks", blocks_tree(v));
    tri_tree_put(v->arena, map, "schedule", schedule_tree(v));
    printf("%s\n", tri_json_emit(v->arena, map));
}

void plan_print_candidates_json(const plan_view *v, const tri_candidate *found, int count) {
    tri_tree *list = tri_tree_list(v->arena);
    for (int i = 0; i < count; i++) {
        tri_tree *map = tri_tree_map(v->arena);
        tri_tree_put(v->arena, map, "overrides", tri_tree_string(v->arena, found[i].overrides));
        tri_tree_put(v->arena, map, "peak", tri_tree_int(v->arena, found[i].peak_bytes));
        tri_tree_put(v->arena, map, "step_s", tri_tree_double(v->arena, found[i].step_s));
        tri_tree_append(v->arena, list, map);
    }
    printf("%s\n", tri_json_emit(v->arena, list));
}
