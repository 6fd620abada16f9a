#include "plan/plan.h"

#include "base/limits.h"
#include "data/sampler.h"

#include <string.h>

// The program of that size and mode, made at its first use.
static tri_status find_program(tri_plan *plan, tri_device *device, const tri_plan_request *request,
                               int64_t batch, bool training, tri_program **out) {
    for (int i = 0; i < plan->program_count; i++) {
        tri_program *p = plan->programs[i];
        if (p->batch != batch || p->training != training) continue;
        *out = p;
        return TRI_OK;
    }
    TRI_ASSERT(plan->program_count < TRI_MAX_PROGRAMS);
    tri_model_request model = *request->model;
    model.options.training = training;
    TRI_TRY(tri_program_create(plan->arena, device, &model, batch, out));
    plan->programs[plan->program_count++] = *out;
    return TRI_OK;
}

// All programs share one place for each parameter and one sum for each metric.
static tri_status check_alike(const tri_graph *a, const tri_graph *b) {
    bool alike = a->parameter_count == b->parameter_count && a->block_count == b->block_count &&
                 a->metric_count == b->metric_count;
    for (int i = 0; alike && i < a->parameter_count; i++) {
        const tri_parameter_info *p = &a->parameters[i], *q = &b->parameters[i];
        alike = !strcmp(p->name, q->name) && p->role == q->role && p->block == q->block &&
                tri_shape_equal(&p->shape, &q->shape);
    }
    for (int i = 0; alike && i < a->metric_count; i++)
        alike = !strcmp(a->metrics[i].name, b->metrics[i].name);
    if (!alike)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "the model has other blocks, parameters or metrics for another batch size "
                        "or in evaluation: its build function must not do that");
    for (int i = 0; i < a->parameter_count; i++)
        TRI_ASSERT(tri_layout_equal(&a->parameters[i].layout, &b->parameters[i].layout) ||
                   !b->parameters[i].layout_chosen);
    return TRI_OK;
}

static tri_status plan_step(tri_plan *plan, tri_device *device, const tri_plan_request *request,
                            tri_step_shape shape, bool *accumulates) {
    tri_step_plan *step = &plan->steps[shape];
    bool training = shape != TRI_STEP_EVALUATE;
    int64_t samples = request->step_samples[shape], replicas = plan->replicas;
    int64_t micro = training ? request->micro : request->eval_micro;
    int64_t replica = tri_mesh_replica(&plan->mesh, plan->rank);
    step->samples = samples;
    int64_t rounds = tri_micro_batch_rounds(samples, micro, replicas);
    if (rounds > TRI_MAX_ROUNDS)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: %lld samples in micro-batches of %lld are %lld rounds on each of %lld "
                        "replicas; at most %d are possible: raise it",
                        training ? "batch.micro" : "batch.eval", (long long)samples,
                        (long long)micro, (long long)rounds, (long long)replicas, TRI_MAX_ROUNDS);
    step->rounds = (int)rounds;
    step->items = TRI_NEW_ARRAY(plan->arena, tri_round, step->rounds);
    int64_t *sizes = TRI_NEW_ARRAY(plan->arena, int64_t, step->rounds);
    int active = 0;
    for (int i = 0; i < step->rounds; i++) {
        tri_micro_batch m = tri_micro_batch_of(samples, micro, replicas, replica, i);
        step->items[i] = (tri_round){.first = m.first, .size = m.size};
        sizes[i] = m.size;
        if (m.size == 0) continue;
        active++;
        TRI_TRY(find_program(plan, device, request, m.size, training, &step->items[i].program));
    }
    *accumulates = *accumulates || (training && active > 1);
    if (plan->program_count == 0) { // a rank without a micro-batch still has all parameters
        tri_program *program;
        int64_t most = tri_micro_batch_most(samples, micro, replicas);
        TRI_TRY(find_program(plan, device, request, most, training, &program));
    }
    plan->graph = plan->programs[0]->graph;
    bool *has_state = TRI_NEW_ARRAY(plan->arena, bool, plan->graph->block_count);
    for (int i = 0; i < plan->graph->parameter_count; i++)
        if (plan->graph->parameters[i].role != TRI_ROLE_COUNTER)
            has_state[plan->graph->parameters[i].block] = true;
    tri_schedule_request schedule = {.blocks = plan->graph->block_count,
                                     .has_state = has_state,
                                     .rounds = step->rounds,
                                     .round_sizes = sizes,
                                     .replicas = (int)replicas,
                                     .training = training};
    return tri_schedule_make(plan->arena, plan->strategy, &schedule, &step->schedule);
}

static void raise_to(int64_t *most, int64_t value) {
    if (value > *most) *most = value;
}

static void size_memory(tri_plan *plan, const tri_plan_request *request, bool accumulates) {
    int64_t flat = plan->flat.elements * (int64_t)sizeof(float);
    for (int i = 0; accumulates && i < plan->flat.block_count; i++)
        raise_to(&plan->round_elements, plan->flat.blocks[i].elements);
    for (int i = 0; i < plan->program_count; i++) {
        const tri_program *p = plan->programs[i];
        raise_to(&plan->activation_bytes, p->activation_bytes);
        raise_to(&plan->workspace_bytes, p->workspace_bytes);
        raise_to(&plan->input_bytes, p->input_bytes);
        raise_to(&plan->result_bytes, p->result_bytes);
    }
    plan->memory = (tri_memory_plan){
        .parameters = flat,
        .gradients = flat + plan->round_elements * (int64_t)sizeof(float),
        .optimizer = flat * request->optimizer_states,
        .activations = plan->activation_bytes + plan->input_bytes + plan->result_bytes,
        .workspace = plan->workspace_bytes,
    };
    tri_memory_plan *m = &plan->memory;
    m->peak = m->parameters + m->gradients + m->optimizer + m->activations + m->workspace +
              m->communication;
}

static const char *find_statistic(const tri_graph *graph) {
    for (int i = 0; i < graph->parameter_count; i++)
        if (graph->parameters[i].role == TRI_ROLE_STATISTIC) return graph->parameters[i].name;
    return NULL;
}

static tri_status check_batch_norm(const tri_plan *plan, const tri_plan_request *request) {
    const char *name = find_statistic(plan->graph);
    if (!name) return TRI_OK;
    if (request->sync_batchnorm && request->micro > 0)
        return TRI_FAIL(TRI_BAD_INPUT, "trainer.sync_batchnorm and batch.micro exclude each other: "
                                       "batch norm is over a step or over a micro-batch");
    if (request->sync_batchnorm && plan->replicas > 1)
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "'trainer.sync_batchnorm: true' on several replicas is not in this version "
                        "of Trireme; set batch.micro (batch norm over so many samples)");
    if (plan->replicas == 1 || request->micro > 0) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "batch norm (%s) on several replicas needs batch.micro or "
                    "trainer.sync_batchnorm to be set, else its result would depend on how many "
                    "there are; this version has batch.micro, at most batch.global over their "
                    "number",
                    name);
}

static tri_status make_plan(tri_plan *plan, tri_device *device, const tri_plan_request *request) {
    if (plan->strategy->needs_one_rank && plan->mesh.ranks > 1)
        return TRI_FAIL(TRI_BAD_INPUT, "strategy.name: '%s' is for one rank, not %d; use ddp",
                        plan->strategy->name, plan->mesh.ranks);
    bool accumulates = false; // some step has more than one round on this rank
    for (int i = 0; i < TRI_STEP_SHAPE_COUNT; i++)
        if (request->step_samples[i] > 0)
            TRI_TRY(plan_step(plan, device, request, (tri_step_shape)i, &accumulates));
    if (!plan->graph) return TRI_FAIL(TRI_BAD_INPUT, "there is no step to plan");
    for (int i = 1; i < plan->program_count; i++)
        TRI_TRY(check_alike(plan->graph, plan->programs[i]->graph));
    TRI_TRY(check_batch_norm(plan, request));
    plan->flat = tri_flat_make(plan->arena, plan->graph);
    size_memory(plan, request, accumulates);
    return TRI_OK;
}

tri_status tri_plan_create(tri_arena *parent, tri_device *device, const tri_plan_request *request,
                           tri_plan **out) {
    tri_arena *arena = tri_arena_create(parent, "plan");
    tri_plan *plan = TRI_NEW(arena, tri_plan);
    *plan = (tri_plan){.arena = arena,
                       .mesh = request->mesh,
                       .rank = request->rank,
                       .replicas = tri_mesh_replicas(&request->mesh),
                       .strategy = request->strategy};
    tri_status status = make_plan(plan, device, request);
    if (status != TRI_OK) {
        tri_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return TRI_OK;
}

void tri_plan_destroy(tri_plan *plan) {
    if (!plan) return;
    for (int i = 0; i < plan->program_count; i++) tri_program_destroy(plan->programs[i]);
    tri_arena_destroy(plan->arena);
}
