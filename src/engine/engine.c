#include "engine/engine_internal.h"

#include <string.h>

static tri_status make_engine(tri_engine *e) {
    TRI_TRY(engine_allocate(e));
    TRI_TRY(engine_bind(e));
    TRI_TRY(engine_make_updates(e));
    engine_list_tensors(e);
    return TRI_OK;
}

tri_status tri_engine_create(const tri_engine_config *config, tri_engine **out) {
    tri_arena *arena = tri_arena_create(NULL, "engine");
    tri_engine *e = TRI_NEW(arena, tri_engine);
    *e = (tri_engine){.arena = arena,
                      .plan = config->plan,
                      .device = config->device,
                      .replicas = config->replicas,
                      .optimizer = *config->optimizer};
    memcpy(e->axes, config->axes, sizeof e->axes);
    tri_status status = make_engine(e);
    if (status != TRI_OK) {
        tri_engine_destroy(e);
        return status;
    }
    *out = e;
    return TRI_OK;
}

void tri_engine_destroy(tri_engine *engine) {
    if (!engine) return;
    for (int i = 0; i < engine->update_count; i++) tri_kernel_release(&engine->updates[i].kernel);
    engine_release(engine);
    tri_arena_destroy(engine->arena);
}

static const engine_binding *binding_of(const tri_engine *e, const tri_program *program) {
    for (int i = 0; i < e->plan->program_count; i++)
        if (e->bindings[i].program == program) return &e->bindings[i];
    TRI_ASSERT(false);
}

static tri_status run_segment(tri_engine *e, const tri_program *p, int block, tri_phase phase,
                              bool later) {
    const engine_binding *binding = binding_of(e, p);
    tri_segment s = p->segments[block][phase];
    for (int i = s.first; i < s.end; i++) {
        const tri_kernel *kernel = &p->kernels[i];
        const tri_node *node = &p->graph->nodes[i];
        engine_args *args = &binding->args[later][i];
        if (node->op->flags & TRI_OP_COLLECTIVE)
            TRI_TRY(engine_run_collective(e, p, node, args->in, args->out));
        if (!kernel->def) continue; // a view
        TRI_TRY(kernel->def->run(
            kernel,
            &(tri_kernel_args){.in = args->in, .out = args->out, .workspace = e->workspace}));
    }
    return TRI_OK;
}

// Brings the next micro-batch to the device.
static tri_status take_batch(tri_engine *e, const tri_round *round) {
    const tri_program *p = round->program;
    const tri_graph *g = p->graph;
    tri_engine_batch batch;
    static const char kind[] = "INPUT";
    tri_ledger_mark mark = tri_ledger_begin(
        e->replicas->ledger, &(tri_ledger_action){.kind = kind, .subject = -1, .round = -1});
    tri_status status = e->input->next(e->input->context, &batch);
    tri_ledger_end(e->replicas->ledger, mark);
    TRI_TRY(status);
    TRI_ASSERT(batch.size == round->size);
    int field = 0;
    for (int i = 0; i < g->input_count; i++) {
        tri_value value = g->inputs[i].value;
        void *to = e->inputs + p->places[value.id].offset;
        if (!strcmp(g->inputs[i].name, "position")) {
            int64_t position[2] = {e->input->step, round->first};
            e->device->backend->copy_in(e->device, to, position, sizeof position);
            continue;
        }
        e->device->backend->copy_in(e->device, to, batch.fields[field++],
                                    (size_t)tri_value_bytes(g, value));
    }
    return TRI_OK;
}

// Adds what the micro-batch's loss and metrics came to.
static void count_results(tri_engine *e, const tri_program *p) {
    const tri_graph *g = p->graph;
    for (int i = 0; i < g->metric_count; i++) {
        double pair[2];
        if (!tri_value_is(g->metrics[i].value)) continue;
        e->device->backend->copy_out(
            e->device, pair, e->results + p->places[g->metrics[i].value.id].offset, sizeof pair);
        e->output->sum[i] += pair[0];
        e->output->count[i] += pair[1];
    }
}

// The gradients of one more round are written where those of other blocks were: what those left
// between the parameters would be added too, and be part of the norm.
static void clear_gaps(const tri_engine *e, int block) {
    const tri_graph *g = e->plan->graph;
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_flat_parameter *p = &e->plan->flat.parameters[i];
        int64_t rest = p->elements % TRI_FLAT_ALIGNMENT;
        if (g->parameters[i].block != block || p->offset < 0 || rest == 0) continue;
        int64_t end = p->offset + p->elements - e->plan->flat.blocks[block].offset;
        e->device->backend->zero(e->device, e->round_gradients + end,
                                 (size_t)(TRI_FLAT_ALIGNMENT - rest) * sizeof(float));
    }
}

// Adds what one more round left of a block's stretch to that of the rounds before.
static void add_round(const tri_engine *e, int block, int64_t first, int64_t end) {
    if (first == end) return;
    e->device->backend->add(e->device, e->gradients + e->plan->flat.blocks[block].offset + first,
                            e->round_gradients + first, end - first);
}

// Batch norm's statistics leave the forward pass, all other gradients the backward pass.
static tri_status do_forward(tri_engine *e, const tri_action *a) {
    const tri_round *round = &e->step->items[a->round];
    if (a->block == 0) TRI_TRY(take_batch(e, round));
    const tri_flat_block *block = &e->plan->flat.blocks[a->block];
    bool adds = a->accumulate && block->elements > block->trained;
    if (adds) clear_gaps(e, a->block);
    TRI_TRY(run_segment(e, round->program, a->block, TRI_PHASE_FORWARD, adds));
    if (adds) add_round(e, a->block, block->trained, block->elements);
    if (a->block == e->plan->graph->block_count - 1) count_results(e, round->program);
    return TRI_OK;
}

static tri_status do_backward(tri_engine *e, const tri_action *a) {
    const tri_program *p = e->step->items[a->round].program;
    if (a->accumulate) clear_gaps(e, a->block);
    TRI_TRY(run_segment(e, p, a->block, TRI_PHASE_BACKWARD, a->accumulate));
    if (a->accumulate) add_round(e, a->block, 0, e->plan->flat.blocks[a->block].trained);
    return TRI_OK;
}

static tri_status do_clear(tri_engine *e, const tri_action *a) {
    const tri_flat_block *block = &e->plan->flat.blocks[a->block];
    e->device->backend->zero(e->device, e->gradients + block->offset,
                             (size_t)block->elements * sizeof(float));
    return TRI_OK;
}

static tri_status do_reduce(tri_engine *e, const tri_action *a) {
    const tri_flat_block *block = &e->plan->flat.blocks[a->block];
    float *gradients = e->gradients + block->offset;
    tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE,
                      .reduction = TRI_REDUCE_SUM,
                      .dtype = TRI_F32,
                      .count = block->elements,
                      .send = gradients,
                      .recv = gradients,
                      .label = e->reduce_labels[a->block]};
    return e->replicas->backend->start(e->replicas, &op, 1,
                                       &e->tickets[a - e->step->schedule.actions]);
}

static tri_status do_norm(tri_engine *e, const tri_action *a) {
    (void)a;
    return engine_norm(e);
}

static tri_status do_step(tri_engine *e, const tri_action *a) {
    for (int i = 0; i < e->update_count; i++) {
        engine_update *u = &e->updates[i];
        if (u->block != a->block) continue;
        TRI_TRY(u->kernel.def->run(
            &u->kernel,
            &(tri_kernel_args){.in = u->args.in, .out = u->args.out, .workspace = e->workspace}));
    }
    return TRI_OK;
}

static tri_status (*const actions[TRI_ACTION_KIND_COUNT])(tri_engine *e, const tri_action *a) = {
    [TRI_ACTION_FORWARD] = do_forward, [TRI_ACTION_BACKWARD] = do_backward,
    [TRI_ACTION_CLEAR] = do_clear,     [TRI_ACTION_REDUCE] = do_reduce,
    [TRI_ACTION_NORM] = do_norm,       [TRI_ACTION_STEP] = do_step,
};

static tri_status do_action(tri_engine *e, const tri_action *a) {
    const char *label = a->block < 0 ? NULL : e->plan->graph->blocks[a->block];
    tri_ledger_mark mark =
        tri_ledger_begin(e->replicas->ledger, &(tri_ledger_action){.kind = tri_action_name(a->kind),
                                                                   .label = label,
                                                                   .lane = TRI_LANE_OF_COMPUTE,
                                                                   .subject = a->block,
                                                                   .round = a->round});
    tri_status status = actions[a->kind](e, a);
    tri_ledger_end(e->replicas->ledger, mark);
    return status;
}

// Compute actions run here, one after the other; those of a communicator are started here and make
// progress by themselves until somebody depends on them.
static tri_status run_schedule(tri_engine *e) {
    const tri_schedule *s = &e->step->schedule;
    for (int i = 0; i < s->count; i++) {
        const tri_action *a = &s->actions[i];
        for (int d = 0; d < a->dependency_count; d++) {
            int other = s->dependencies[a->first_dependency + d];
            if (tri_action_lane(s->actions[other].kind) != TRI_LANE_REDUCE) continue;
            if (!e->tickets[other].value) continue;
            TRI_TRY(e->replicas->backend->wait(e->replicas, e->tickets[other]));
            e->tickets[other].value = 0;
        }
        TRI_TRY(do_action(e, a));
    }
    return TRI_OK;
}

tri_status tri_engine_step(tri_engine *engine, const tri_step_input *input, tri_step_output *out) {
    engine->input = input;
    engine->step = &engine->plan->steps[input->shape];
    engine->output = out;
    *out = (tri_step_output){.gradient_norm = 0};
    TRI_ASSERT(engine->step->samples > 0);
    tri_ledger_step(engine->replicas->ledger, input->step);
    if (input->shape != TRI_STEP_EVALUATE) {
        float seed = (float)(1.0 / (double)engine->step->samples);
        engine->device->backend->copy_in(engine->device, engine->scalars[TRI_SCALAR_SEED], &seed,
                                         sizeof seed);
    }
    TRI_TRY(run_schedule(engine));
    if (input->shape != TRI_STEP_EVALUATE) {
        tri_engine_count_update(engine);
        return TRI_OK;
    }
    double nothing = 0;
    return engine_sum_metrics(engine, &nothing);
}
