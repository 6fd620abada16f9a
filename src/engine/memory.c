#include "engine/engine_internal.h"

static tri_status allocate(tri_engine *e, int64_t size_bytes, void *out) {
    void **slot = out;
    if (size_bytes == 0) return TRI_OK;
    return e->device->backend->alloc(e->device, (size_t)size_bytes, slot);
}

// Gradients lie where the communicator reduces fastest, if the host may touch the device's memory.
static tri_status allocate_gradients(tri_engine *e, int64_t size_bytes) {
    if (!e->device->backend->host_memory) return allocate(e, size_bytes, &e->gradients);
    void *memory;
    TRI_TRY(e->replicas->backend->alloc(e->replicas, (size_t)size_bytes, &memory));
    e->gradients = memory;
    return TRI_OK;
}

tri_status engine_allocate(tri_engine *e) {
    const tri_plan *plan = e->plan;
    int64_t bytes = plan->flat.elements * (int64_t)sizeof(float);
    TRI_TRY(allocate(e, bytes, &e->parameters));
    TRI_TRY(allocate_gradients(e, bytes));
    TRI_TRY(allocate(e, plan->round_elements * (int64_t)sizeof(float), &e->round_gradients));
    for (int i = 0; i < e->optimizer.state_count; i++) TRI_TRY(allocate(e, bytes, &e->states[i]));
    TRI_TRY(allocate(e, plan->activation_bytes, &e->activations));
    TRI_TRY(allocate(e, plan->workspace_bytes, &e->workspace));
    TRI_TRY(allocate(e, plan->input_bytes, &e->inputs));
    TRI_TRY(allocate(e, plan->result_bytes, &e->results));
    TRI_TRY(allocate(e, sizeof(float), &e->scalars[TRI_SCALAR_SEED]));
    return allocate(e, TRI_STEP_SCALAR_COUNT * (int64_t)sizeof(double),
                    &e->scalars[TRI_SCALAR_STEP]);
}

void engine_release(tri_engine *e) {
    void *const owned[] = {e->parameters,
                           e->round_gradients,
                           e->states[0],
                           e->states[1],
                           e->activations,
                           e->workspace,
                           e->inputs,
                           e->results,
                           e->scalars[TRI_SCALAR_SEED],
                           e->scalars[TRI_SCALAR_STEP]};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        if (owned[i]) e->device->backend->free(e->device, owned[i]);
    if (!e->gradients) return;
    if (e->device->backend->host_memory)
        e->replicas->backend->free(e->replicas, e->gradients);
    else
        e->device->backend->free(e->device, e->gradients);
}

// Where a value lies; `later` asks for the place of gradients that are added afterwards.
static void *address(const tri_engine *e, const tri_program *p, tri_value value, bool later) {
    if (!tri_value_is(value)) return NULL;
    tri_place place = p->places[value.id];
    const tri_flat *flat = &e->plan->flat;
    switch (place.kind) {
    case TRI_PLACE_NONE:
        return NULL;
    case TRI_PLACE_ACTIVATION:
        return e->activations + place.offset;
    case TRI_PLACE_INPUT:
        return e->inputs + place.offset;
    case TRI_PLACE_RESULT:
        return e->results + place.offset;
    case TRI_PLACE_PARAMETER:
        return e->parameters + flat->parameters[place.index].offset;
    case TRI_PLACE_SCALAR:
        return e->scalars[place.index];
    case TRI_PLACE_GRADIENT:
        break;
    }
    int64_t offset = flat->parameters[place.index].offset;
    if (!later) return e->gradients + offset;
    return e->round_gradients + offset -
           flat->blocks[p->graph->parameters[place.index].block].offset;
}

static void bind_program(tri_engine *e, const tri_program *p, engine_binding *out) {
    const tri_graph *g = p->graph;
    out->program = p;
    for (int later = 0; later < 2; later++) {
        if (later && !e->round_gradients) continue;
        out->args[later] = TRI_NEW_ARRAY(e->arena, engine_args, g->node_count);
        for (int i = 0; i < g->node_count; i++) {
            const tri_node *node = &g->nodes[i];
            engine_args *args = &out->args[later][i];
            for (int k = 0; k < node->input_count; k++)
                args->in[k] = address(e, p, node->inputs[k], later);
            for (int k = 0; k < node->output_count; k++)
                args->out[k] = address(e, p, node->outputs[k], later);
        }
    }
}

tri_status engine_bind(tri_engine *e) {
    for (int i = 0; i < e->plan->program_count; i++)
        bind_program(e, e->plan->programs[i], &e->bindings[i]);
    const tri_graph *g = e->plan->graph;
    e->reduce_labels = TRI_NEW_ARRAY(e->arena, const char *, g->block_count);
    for (int i = 0; i < g->block_count; i++)
        e->reduce_labels[i] = tri_arena_printf(e->arena, "REDUCE %s", g->blocks[i]);
    int actions = 0;
    for (int i = 0; i < TRI_STEP_SHAPE_COUNT; i++)
        if (e->plan->steps[i].schedule.count > actions) actions = e->plan->steps[i].schedule.count;
    e->tickets = TRI_NEW_ARRAY(e->arena, tri_comm_ticket, actions);
    e->counters = TRI_NEW_ARRAY(e->arena, int64_t, g->parameter_count);
    return TRI_OK;
}
