// Plans one shape of step (tri_step_shape: a full step, an epoch's last one, …): the edges between
// stages, the schedule (compute_actions.c, complete.c), its memory (step_memory.c) and its
// dependencies (dependencies.c). They are made in this order, because each needs those before it.
#include "plan/plan.h"

#include "data/sampler.h"

static const tri_program *any_program(const tri_plan *plan, bool training) {
    for (int i = 0; i < plan->program_count; i++)
        if (plan->programs[i]->training == training) return plan->programs[i];
    return NULL;
}

// Finds the edges (values that stages send each other) from one program. All programs have the same
// edges, because the size of a batch does not change which block reads what.
static tri_edge *find_edges(tri_plan *plan, const tri_program *program, int *count) {
    tri_edge_value *edge_values;
    int capacity = 0,
        found = tri_program_edge_values(plan->arena, program, plan->stages.of_block, &edge_values);
    tri_edge *edges = NULL;
    *count = 0;
    for (int i = 0; i < found; i++) {
        const tri_edge_value *c = &edge_values[i];
        int from_stage = plan->stages.of_block[c->from_block], e = 0;
        while (e < *count &&
               !(edges[e].from_block == c->from_block && edges[e].to_block == c->to_block &&
                 edges[e].to_stage == c->to_stage && edges[e].back == c->back))
            e++;
        if (e == *count)
            TRI_PUSH(plan->arena, edges, *count, capacity) = (tri_edge){.from_stage = from_stage,
                                                                        .to_stage = c->to_stage,
                                                                        .from_block = c->from_block,
                                                                        .to_block = c->to_block,
                                                                        .back = c->back};
        edges[e].bytes += tri_value_bytes(program->graph, c->value) / program->batch;
    }
    return edges;
}

// Lists the values that stages send each other for a micro-batch. Micro-batches with the same
// program share the list, so that plans of many micro-batches stay small.
static void attach_edge_values(tri_plan *plan, const tri_edge *edges, int edge_count,
                               const tri_step_plan *step, int index) {
    tri_step_round *round = &step->round_items[index];
    for (int i = index - 1; i >= 0; i--) {
        const tri_step_round *other = &step->round_items[i];
        if (other->program != round->program) continue;
        round->edge_values = other->edge_values;
        round->edge_of_value = other->edge_of_value;
        round->edge_value_count = other->edge_value_count;
        return;
    }
    tri_edge_value *edge_values;
    round->edge_value_count =
        tri_program_edge_values(plan->arena, round->program, plan->stages.of_block, &edge_values);
    int *of = TRI_NEW_ARRAY(plan->arena, int, round->edge_value_count);
    for (int i = 0; i < round->edge_value_count; i++) {
        const tri_edge_value *c = &edge_values[i];
        of[i] = -1;
        for (int e = 0; e < edge_count && of[i] < 0; e++)
            if (edges[e].from_block == c->from_block && edges[e].to_block == c->to_block &&
                edges[e].to_stage == c->to_stage && edges[e].back == c->back)
                of[i] = e;
        TRI_ASSERT(of[i] >= 0);
    }
    round->edge_values = edge_values;
    round->edge_of_value = of;
}

static void plan_memory(tri_plan *plan, tri_step_plan *step) {
    int rounds = step->rounds;
    tri_arena *a = plan->arena;
    tri_program **programs = TRI_NEW_ARRAY(a, tri_program *, rounds);
    const tri_edge_value **edge_values = TRI_NEW_ARRAY(a, const tri_edge_value *, rounds);
    const int **edges = TRI_NEW_ARRAY(a, const int *, rounds);
    int *counts = TRI_NEW_ARRAY(a, int, rounds);
    for (int i = 0; i < rounds; i++) {
        programs[i] = step->round_items[i].program;
        edge_values[i] = step->round_items[i].edge_values;
        edges[i] = step->round_items[i].edge_of_value;
        counts[i] = step->round_items[i].edge_value_count;
    }
    tri_step_memory_request request = {.schedule = &step->schedule,
                                       .schedule_request = &step->request,
                                       .flat = &plan->flat,
                                       .programs = programs,
                                       .edge_values = edge_values,
                                       .edge_of_value = edges,
                                       .edge_value_count = counts,
                                       .releases = plan->sharing.releases,
                                       .scatters_rounds = plan->sharing.scatters_rounds,
                                       .packs_gradients = plan->sharing.packs_gradients,
                                       .packs_scratch = plan->sharing.packs_scratch,
                                       .offload_set = plan->offload.set,
                                       .alignment = plan->device.alignment};
    tri_step_memory_plan(a, &request, &step->memory);
}

tri_status tri_plan_make_step(tri_plan *plan, const tri_plan_request *request,
                              tri_step_shape shape) {
    tri_step_plan *step = &plan->steps[shape];
    const tri_strategy_options *o = request->options;
    bool training = tri_step_trains(shape);
    int64_t *sizes = TRI_NEW_ARRAY(plan->arena, int64_t, step->rounds);
    int edge_count = 0;
    const tri_program *program = any_program(plan, training);
    if (!program) program = plan->programs[0];
    tri_edge *edges = find_edges(plan, program, &edge_count);
    for (int i = 0; i < step->rounds; i++) {
        sizes[i] = step->round_items[i].size;
        if (step->round_items[i].program) attach_edge_values(plan, edges, edge_count, step, i);
    }
    step->request = (tri_schedule_request){
        .strategy = plan->effective_strategy,
        .order = plan->order,
        .block_count = plan->graph->block_count,
        .unit_count = plan->flat.unit_count,
        .edge_count = edge_count,
        .stage_count = plan->stages.count,
        .blocks = plan->blocks,
        .units = plan->units,
        .edges = edges,
        .pipeline = plan->mesh.size[TRI_AXIS_PIPELINE],
        .pipeline_rank = tri_mesh_coordinate(&plan->mesh, plan->rank, TRI_AXIS_PIPELINE),
        .replicate = plan->sharing.replicate_size,
        .shard = plan->sharing.shards,
        .rounds = step->rounds,
        .round_sizes = sizes,
        .training = training,
        .takes_ahead = plan->takes_ahead,
        .deterministic = plan->deterministic,
        .reshard_after_forward = o->reshard_after_forward,
        .prefetch = (int)o->prefetch,
        .offloads = !plan->offload.steps_on_host &&
                    (plan->offload.set.states > 0 || o->offload == TRI_OFFLOAD_PARAMETERS),
        .steps_on_host = plan->offload.steps_on_host,
        .fetches = o->offload == TRI_OFFLOAD_PARAMETERS && plan->sharing.releases,
    };
    TRI_TRY(tri_schedule_make(plan->arena, &step->request, &step->schedule));
    plan_memory(plan, step);
    tri_schedule_find_dependencies(&step->schedule, &step->request, step->memory.waits,
                                   step->memory.wait_count);
    // Again, now with the dependencies, which tri_schedule_make did not have.
    TRI_TRY(tri_schedule_verify(&step->schedule, &step->request));
    TRI_TRY(tri_step_memory_verify(&step->memory, &step->schedule));
    return tri_step_values_verify(step);
}
