// The action TAKE: copies a micro-batch from the loader's memory to the device's. The engine's main
// loop calls engine_take for it. On a device that works asynchronously (is_asynchronous), TAKE has
// a queue of its own. So the next micro-batch is copied while the device computes. The loader gets
// the memory of a micro-batch back when its copy is done (tri_step_input.release). A round is the
// number of a micro-batch in the step. Read next: compute.c.
#include "engine/caches.h"

#include <string.h>

tri_status engine_open_takes(tri_engine *e) {
    e->takes.queue = e->queue;
    if (!e->device->backend->is_asynchronous) return TRI_OK;
    return tri_queue_open(e->device, &e->takes.queue);
}

void engine_close_takes(tri_engine *e) {
    if (e->takes.queue != e->queue) tri_queue_close(e->takes.queue);
}

void engine_begin_takes(tri_engine *e) {
    e->takes.turn = !e->takes.turn;
    e->memory.heaps[TRI_HEAP_INPUTS] = e->memory.inputs[e->takes.turn];
}

tri_status engine_end_takes(tri_engine *e) {
    return e->device->backend->record(e->queue, &e->takes.last_reader[e->takes.turn]);
}

tri_status engine_may_take(tri_engine *e, const tri_action *a) {
    const tri_schedule_request *r = &e->run.step->request;
    bool has_own = r->takes_ahead;
    for (int i = 0; i < a->round && has_own; i++) has_own = r->round_sizes[i] == 0;
    const tri_ticket *ticket = has_own ? &e->takes.last_reader[e->takes.turn] : &e->run.begin;
    return engine_let_wait(e, e->takes.queue, ticket);
}

// Waits for the oldest copy of a micro-batch to the device, and gives the micro-batch's memory back
// to the loader. Copies end in the order in which they were started.
static tri_status release_oldest(tri_engine *e) {
    engine_copy copy = e->takes.copies[0];
    e->takes.copy_count--;
    memmove(e->takes.copies, e->takes.copies + 1,
            (size_t)e->takes.copy_count * sizeof *e->takes.copies);
    tri_status status = tri_ticket_wait(&copy.ticket);
    if (copy.release) copy.release(copy.context);
    return status;
}

tri_status tri_engine_release_batches(tri_engine *e) {
    tri_status status = TRI_OK;
    while (e->takes.copy_count > 0) {
        tri_status one = release_oldest(e);
        if (status == TRI_OK) status = one;
    }
    return status;
}

static tri_status next_batch(tri_engine *e, tri_engine_batch *out) {
    if (e->takes.copy_count == TRI_TAKEN_BATCHES) TRI_TRY(release_oldest(e));
    tri_ledger_mark mark = tri_ledger_enter(e->groups.world->ledger, "loading data", NULL);
    tri_status status = e->run.input->next(e->run.input->context, out);
    tri_ledger_end(e->groups.world->ledger, mark);
    return status;
}

static tri_status copy_fields(tri_engine *e, const tri_step_round *round,
                              const tri_engine_batch *batch) {
    const tri_program *p = round->program;
    const tri_graph *g = p->graph;
    for (int i = 0, field = 0; i < g->input_count; i++) {
        tri_value value = g->inputs[i].value;
        void *to = e->memory.slots[TRI_SLOT_INPUTS] + p->locations[value.id].offset;
        const int64_t position[2] = {e->run.input->step, round->first};
        bool is_position = !strcmp(g->inputs[i].name, "position");
        const void *from = is_position ? position : batch->fields[field++];
        TRI_TRY(engine_check_spans(p, i, from, round));
        TRI_TRY(e->device->backend->copy_in(e->takes.queue, to, from,
                                            (size_t)tri_value_bytes(g, value)));
    }
    return TRI_OK;
}

tri_status engine_take(tri_engine *e, const tri_action *a, tri_ticket *ticket) {
    const tri_step_round *round = &e->run.step->round_items[a->round];
    tri_engine_batch batch;
    if (e->run.is_cancelled) return TRI_OK;
    TRI_TRY(next_batch(e, &batch));
    TRI_ASSERT(batch.size == round->size);
    engine_copy *copy = &e->takes.copies[e->takes.copy_count++];
    *copy = (engine_copy){.release = e->run.input->release, .context = e->run.input->context};
    tri_status status = copy_fields(e, round, &batch);
    if (status == TRI_OK) status = e->device->backend->record(e->takes.queue, ticket);
    copy->ticket = *ticket;
    // If there is no ticket, the copies were already done when copy_in returned.
    if (!ticket->kind && status == TRI_OK) return release_oldest(e);
    return status;
}
