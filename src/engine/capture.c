// Captured parts of steps. A step is a list of actions, such as FORWARD of a layer. Actions run in
// lanes, each of which starts its actions in the order of the list: the compute lane (a queue of
// the device, which runs kernels), and beside it lanes for communication, storage and copies. A
// part is a run of actions of the compute lane. Only its first action waits for other lanes, and
// other lanes wait only for its last action. A device that can do so (a GPU, with CUDA graphs)
// captures a part once and then repeats it as one, so that the host issues one graph instead of
// many kernels. engine.c calls engine_run_in_part for the actions of a part.
//
// Each shape of step (full, an epoch's smaller last one, evaluation, test: tri_step_shape) has
// parts of its own. When a shape runs for the first time, its parts are issued kernel by kernel,
// because libraries allocate what they need in their first call. Later a part is captured once for
// each flight (the room for the results of one step in flight), because it contains kernels that
// write the times of its actions into the flight's memory. In all further steps it is repeated:
//
//   step      0        1           2           3          4
//   flight    0        1           0           1          0
//   a part    issued   captured,   captured,   repeated   repeated
//                      repeated    repeated
//
// A captured part always repeats the same work. So an action for which the engine issues other work
// in some steps belongs to no part: see plan/capture.h.
#include "plan/capture.h"
#include "engine/engine_internal.h"

#include <stdio.h>
#include <string.h>

typedef struct engine_part {
    int first, last; // indices into the schedule's actions
    bool was_issued;
    // By flight (the room for the results of one step in flight): the part as captured for it;
    // NULL: not captured yet.
    tri_captured *captured[1 + TRI_MAX_STEPS_AHEAD];
} engine_part;

// Whether a kernel that updates or casts this unit (parameters that are updated together) uses the
// host's memory. A captured part repeats only work of the device, so it cannot contain such a
// kernel.
static bool uses_host(const engine_range_kernels *list, int unit) {
    for (int i = list->first[unit]; i < list->first[unit + 1]; i++)
        if (list->items[i].kernel.def->uses_host) return true;
    return false;
}

// Whether NORM uses the host's memory: a kernel of it does, or its results are copied to a host
// that runs the optimizer.
static bool norm_uses_host(const tri_engine *e, int shape) {
    const engine_numbers *n = &e->numbers;
    const tri_kernel *const kernels[] = {&n->sum_rows[shape], &n->sum_squares, &n->make_step};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (kernels[i]->def->uses_host) return true;
    for (int u = 0; u < e->plan->flat.unit_count; u++)
        if (uses_host(&e->squares, u) || uses_host(&e->finders, u)) return true;
    return e->host.device != NULL;
}

static bool may_capture(const tri_engine *e, int shape, const tri_action *a) {
    if (!tri_capture_allows(e->plan, &e->plan->steps[shape], a)) return false;
    if (a->kind == TRI_ACTION_NORM) return !norm_uses_host(e, shape);
    if (a->kind == TRI_ACTION_STEP) return !uses_host(&e->step_kernels, a->subject);
    return a->kind != TRI_ACTION_PREPARE || !uses_host(&e->casts, a->subject);
}

static bool issues_work(const tri_schedule *s, const tri_capture *run) {
    for (int i = run->first; i <= run->last; i++)
        if (tri_action_lane(s->actions[i].kind) == TRI_LANE_COMPUTE &&
            s->actions[i].kind != TRI_ACTION_RELEASE)
            return true;
    return false;
}

static void find_in(tri_engine *e, int shape) {
    const tri_schedule *s = &e->plan->steps[shape].schedule;
    bool *may = TRI_NEW_ARRAY(e->arena, bool, s->count);
    int *of_action = TRI_NEW_ARRAY(e->arena, int, s->count);
    for (int i = 0; i < s->count; i++) {
        of_action[i] = -1;
        may[i] = may_capture(e, shape, &s->actions[i]);
    }
    tri_capture *runs;
    int count = tri_capture_find(e->arena, s, may, &runs), used = 0;
    engine_part *parts = TRI_NEW_ARRAY(e->arena, engine_part, count);
    for (int k = 0; k < count; k++) {
        if (!issues_work(s, &runs[k])) continue;
        for (int i = runs[k].first; i <= runs[k].last; i++)
            if (tri_action_lane(s->actions[i].kind) == TRI_LANE_COMPUTE) of_action[i] = used;
        parts[used++] = (engine_part){.first = runs[k].first, .last = runs[k].last};
    }
    e->captures.parts[shape] = parts;
    e->captures.count[shape] = used;
    e->captures.of_action[shape] = of_action;
}

void engine_find_parts(tri_engine *e) {
    // The search for anomalies reads every value on the host, between kernels, so nothing can be
    // captured.
    if (!e->device->backend->captures || e->device->without_captures || e->detects_anomaly) return;
    for (int shape = 0; shape < TRI_STEP_SHAPE_COUNT; shape++)
        if (e->plan->steps[shape].samples > 0) find_in(e, shape);
}

void engine_forget_parts(tri_engine *e) {
    memset(e->captures.of_action, 0, sizeof e->captures.of_action);
}

void engine_close_parts(tri_engine *e) {
    for (int shape = 0; shape < TRI_STEP_SHAPE_COUNT; shape++)
        for (int k = 0; k < e->captures.count[shape]; k++)
            for (int i = 0; i <= TRI_MAX_STEPS_AHEAD; i++)
                if (e->captures.parts[shape][k].captured[i])
                    e->device->backend->close_capture(e->captures.parts[shape][k].captured[i]);
}

engine_part *engine_part_of(const tri_engine *e, const tri_action *a) {
    tri_step_shape shape = e->run.input->shape;
    const int *of_action = e->captures.of_action[shape];
    int part = of_action ? of_action[a - e->run.step->schedule.actions] : -1;
    return part < 0 ? NULL : &e->captures.parts[shape][part];
}

int engine_before_in_part(const tri_engine *e, tri_step_shape shape, int i) {
    const int *of_action = e->captures.of_action[shape];
    if (!of_action || of_action[i] < 0) return -1;
    int first = e->captures.parts[shape][of_action[i]].first;
    for (int k = i - 1; k >= first; k--)
        if (of_action[k] == of_action[i]) return k;
    return -1;
}

// Issues those actions of the captured part that belong to the compute lane. Actions of other lanes
// that stand between them in the schedule are left out: nothing in the part depends on them, and
// the caller starts them.
static tri_status issue(tri_engine *e, const engine_part *part) {
    for (int i = part->first; i <= part->last; i++) {
        const tri_action *a = &e->run.step->schedule.actions[i];
        if (tri_action_lane(a->kind) != TRI_LANE_COMPUTE) continue;
        engine_set_slots(e, a);
        TRI_TRY(engine_issue_action(e, a));
    }
    return TRI_OK;
}

static tri_status capture(tri_engine *e, const engine_part *part, tri_captured **out) {
    const tri_device_backend *device = e->device->backend;
    char why[TRI_MESSAGE_MAX_BYTES];
    TRI_TRY(device->begin_capture(e->queue));
    tri_status status = issue(e, part);
    if (status == TRI_OK) return device->end_capture(e->queue, out);
    snprintf(why, sizeof why, "%s", tri_error_message());
    if (device->end_capture(e->queue, out) == TRI_OK) device->close_capture(*out);
    *out = NULL;
    return TRI_FAIL(status, "%s", why);
}

static tri_status run(tri_engine *e, engine_part *part) {
    tri_captured **captured = &part->captured[engine_next_flight(e)];
    if (e->run.is_cancelled) return issue(e, part);
    if (!part->was_issued) {
        part->was_issued = true;
        return issue(e, part);
    }
    if (!*captured) TRI_TRY(capture(e, part, captured));
    return e->device->backend->repeat(e->queue, *captured);
}

tri_status engine_run_in_part(tri_engine *e, engine_part *part, const tri_action *a,
                              tri_ticket *ticket) {
    const tri_action *actions = e->run.step->schedule.actions;
    if (a == &actions[part->first]) TRI_TRY(run(e, part));
    return a == &actions[part->last] ? e->device->backend->record(e->queue, ticket) : TRI_OK;
}
