// When the device carried out the actions of the compute lane (kernels, in order). A device that
// works asynchronously carries them out after they were issued. So kernels of the device write the
// times into memory, and the host reads the times after the step. The ledger (the rank's record of
// its actions) gets them in a lane of their own, "device". The ledger's compute lane shows when the
// host issued the actions. A step in flight is one that was issued and whose results the host has
// not read yet; it has memory of its own for its times and results (a flight).
#include "engine/engine_internal.h"

#include <string.h>

typedef struct engine_span {
    int64_t begin_ns, end_ns;
} engine_span;

// Allocates memory for times. A kernel of the device writes them and the host reads them, so it is
// memory that both can use, if the device has such memory.
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

// When the device began action i; 0: it has not begun. In a part that was captured (actions that
// the device repeats as one), an action begins when the one before it has ended, so one kernel
// writes both times, as the end of the action before.
static int64_t begin_of(const tri_engine *e, tri_step_shape shape, const engine_span *spans,
                        int i) {
    int before = engine_before_in_part(e, shape, i);
    return before < 0 || spans[i].begin_ns ? spans[i].begin_ns : spans[before].end_ns;
}

// The action's entry in the times of the step that is being issued.
static engine_span *span_of(const tri_engine *e, const tri_action *action) {
    return &e->times.spans[engine_next_flight(e)][action - e->run.step->schedule.actions];
}

tri_status engine_time_begin(tri_engine *e, const tri_action *action) {
    // In the first step of a shape, parts are not captured: the device waits between two actions
    // while the host loads kernels.
    int at = (int)(action - e->run.step->schedule.actions);
    tri_step_shape shape = e->run.input->shape;
    if (e->was_issued[shape] && engine_before_in_part(e, shape, at) >= 0) return TRI_OK;
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
        int64_t begin_ns = begin_of(e, flight->shape, spans, i);
        tri_ledger_add(e->groups.world->ledger, &noted, begin_ns, spans[i].end_ns);
    }
}

void engine_clear_times(tri_engine *e, engine_flight *flight) {
    engine_span *spans = e->times.spans[flight - e->flights.items];
    size_t count = (size_t)e->plan->steps[flight->shape].schedule.count;
    if (spans) memset(spans, 0, count * sizeof *spans);
}

// Finds the first action that the device has begun and not ended. Searches the times of all flights
// from the oldest step on, and sets *flight to the step of the action. NULL: there is no such
// action.
static const tri_action *unfinished(const tri_engine *e, const engine_flight **flight) {
    enum { FLIGHTS = 1 + TRI_MAX_STEPS_AHEAD };
    for (int k = 1; k <= FLIGHTS; k++) {
        int at = (engine_next_flight(e) + k) % FLIGHTS;
        *flight = &e->flights.items[at];
        const tri_schedule *s = &e->plan->steps[(*flight)->shape].schedule;
        const engine_span *spans = e->times.spans[at];
        for (int i = 0; spans && i < s->count; i++)
            if (engine_is_timed(e, &s->actions[i]) && !spans[i].end_ns &&
                begin_of(e, (*flight)->shape, spans, i))
                return &s->actions[i];
    }
    return NULL;
}

tri_status engine_name_failure(tri_engine *e, tri_status status) {
    char said[TRI_MESSAGE_MAX_BYTES];
    int rank = e->groups.world->rank;
    if (!e->device->backend->time) return status;
    if (status == TRI_INTERNAL || status == TRI_NO_MEMORY)
        return tri_status_context(status, "rank %d", rank);
    if (status != TRI_IO) return status;
    snprintf(said, sizeof said, "%s", tri_error_message());
    tri_ticket ticket;
    if (e->device->backend->record(e->queue, &ticket) == TRI_OK)
        return TRI_FAIL(status, "%s", said); // the device still works: something else failed
    const engine_flight *flight;
    const tri_action *a = unfinished(e, &flight);
    if (!a) return TRI_FAIL(status, "rank %d: %s", rank, said);
    tri_ledger_action noted = engine_ledger_action(e, a);
    return TRI_FAIL(status, "rank %d, step %lld, in %s%s%s: %s", rank, (long long)flight->step + 1,
                    noted.kind, noted.label ? " " : "", noted.label ? noted.label : "", said);
}
