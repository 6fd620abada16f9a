// When the device carried out the compute actions of a step. A device that runs ahead of the host
// carries them out after they were issued. So kernels of the device write the times into memory,
// from which they come back behind the step, and the ledger takes them in a lane of their own. The
// host's own lane shows when actions were issued.
#include "engine/engine_internal.h"

typedef struct engine_span {
    int64_t begin_ns, end_ns;
} engine_span;

// Makes memory for times. A kernel of the device writes them and the host reads them, so the memory
// is of the kind that both can touch, where the device has such memory.
static tri_status make_spans(tri_engine *e, int count, engine_span **out) {
    const tri_device_backend *device = e->device->backend;
    void *memory;
    if (!device->alloc_host) {
        *out = TRI_NEW_ARRAY(e->arena, engine_span, count);
        return TRI_OK;
    }
    TRI_TRY(device->alloc_host(e->device, (size_t)count * sizeof **out, &memory));
    *out = memory;
    return TRI_OK;
}

tri_status engine_make_times(tri_engine *e) {
    if (!e->device->backend->time) return TRI_OK;
    e->times.lane = tri_ledger_lane(e->groups.world->ledger, "device");
    int most = 0;
    for (int i = 0; i < TRI_STEP_SHAPE_COUNT; i++)
        if (e->plan->steps[i].schedule.count > most) most = e->plan->steps[i].schedule.count;
    for (int i = 0; i <= TRI_MAX_STEPS_AHEAD; i++) TRI_TRY(make_spans(e, most, &e->times.spans[i]));
    return TRI_OK;
}

void engine_release_times(tri_engine *e) {
    const tri_device_backend *device = e->device->backend;
    for (int i = 0; i <= TRI_MAX_STEPS_AHEAD && device->alloc_host; i++)
        if (e->times.spans[i]) device->free_host(e->device, e->times.spans[i]);
}

bool engine_is_timed(const tri_engine *e, const tri_action *action) {
    return e->device->backend->time && tri_action_lane(action->kind) == TRI_LANE_COMPUTE;
}

// The action's entry among the times of the step that is being issued.
static engine_span *span_of(const tri_engine *e, const tri_action *action) {
    return &e->times.spans[engine_next_flight(e)][action - e->run.step->schedule.actions];
}

tri_status engine_time_begin(tri_engine *e, const tri_action *action) {
    return e->device->backend->time(e->queue, &span_of(e, action)->begin_ns);
}

tri_status engine_time_end(tri_engine *e, const tri_action *action) {
    return e->device->backend->time(e->queue, &span_of(e, action)->end_ns);
}

void engine_note_times(tri_engine *e, const engine_flight *flight) {
    const tri_schedule *s = &e->plan->steps[flight->shape].schedule;
    const engine_span *spans = e->times.spans[flight - e->flights.items];
    for (int i = 0; spans && i < s->count; i++) {
        if (!engine_is_timed(e, &s->actions[i])) continue;
        tri_ledger_action noted = engine_ledger_action(e, &s->actions[i]);
        noted.lane = e->times.lane;
        tri_ledger_add(e->groups.world->ledger, &noted, spans[i].begin_ns, spans[i].end_ns);
    }
}
