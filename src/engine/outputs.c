// Hands the outputs of the model to the caller of a step, micro-batch by micro-batch, so that those
// of all samples are never in memory at once. compute.c calls engine_send_output at the end of each
// FORWARD. See handover.h.
#include "engine/engine_internal.h"

tri_status engine_open_outputs(tri_engine *e) {
    const tri_device_backend *device = e->device->backend;
    size_t bytes = (size_t)e->plan->output_bytes;
    for (int i = 0; i < TRI_OUTPUT_COPIES && bytes > 0; i++) {
        void **memory = &e->outputs.copies[i].memory;
        if (device->alloc_host)
            TRI_TRY(device->alloc_host(e->device, bytes, memory));
        else
            *memory = tri_arena_alloc(e->arena, bytes);
    }
    return TRI_OK;
}

void engine_close_outputs(tri_engine *e) {
    const tri_device_backend *device = e->device->backend;
    for (int i = 0; i < TRI_OUTPUT_COPIES && device->alloc_host; i++)
        if (e->outputs.copies[i].memory) device->free_host(e->device, e->outputs.copies[i].memory);
}

static tri_status hand_over_oldest(tri_engine *e) {
    const engine_output_copy *copy = &e->outputs.copies[e->outputs.first];
    e->outputs.first = (e->outputs.first + 1) % TRI_OUTPUT_COPIES;
    e->outputs.count--;
    TRI_TRY(tri_ticket_wait(&copy->ticket));
    const tri_graph *g = copy->program->graph;
    const tri_value_info *info = tri_value_get(g, g->outputs[copy->output].value);
    const tri_step_round *round = &e->run.step->round_items[copy->round];
    const tri_output_rows rows = {.output = copy->output,
                                  .first = round->first,
                                  .size = round->size,
                                  .dtype = info->dtype,
                                  .shape = info->shape,
                                  .data = copy->memory};
    return e->run.input->output(e->run.input->context, &rows);
}

tri_status engine_send_output(tri_engine *e, const tri_program *program, int output,
                              const void *from) {
    engine_outputs *o = &e->outputs;
    if (!e->run.input->output || e->run.is_cancelled) return TRI_OK;
    if (o->count == TRI_OUTPUT_COPIES) TRI_TRY(hand_over_oldest(e));
    engine_output_copy *copy = &o->copies[(o->first + o->count) % TRI_OUTPUT_COPIES];
    copy->program = program;
    copy->output = output;
    copy->round = e->run.round;
    tri_value value = program->graph->outputs[output].value;
    TRI_TRY(e->device->backend->copy_out(e->queue, copy->memory, from,
                                         (size_t)tri_value_bytes(program->graph, value)));
    TRI_TRY(e->device->backend->record(e->queue, &copy->ticket));
    o->count++;
    return TRI_OK;
}

tri_status engine_finish_outputs(tri_engine *e) {
    while (e->outputs.count > 0) TRI_TRY(hand_over_oldest(e));
    return TRI_OK;
}
