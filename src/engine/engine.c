// The engine's main loop: goes through a schedule, the list of this rank's actions in a step. An
// action works on a block (a layer or a group of layers), on a unit (parameters that are gathered,
// reduced and updated together) or on values that pipeline stages send each other. Actions run in
// lanes. A lane starts its actions in the order of the list; all lanes but ALONG and BACK, the
// messages of a pipeline, also finish them in that order. The main loop runs the actions of the
// compute lane, which issue kernels to a queue of the device, and starts those of other lanes
// (communication, storage, copies). A ticket stands for work that was started and is waited for
// later.
//
// The training loop calls tri_engine_issue for each step and tri_engine_collect, in results.c, for
// its results. Read next: take.c, compute.c, communicate.c, numbers.c and update.c, which carry the
// actions out.
#include "engine/engine_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Makes the names of actions that traces and messages show. They are made once, because
// communicators and the ledger (the record of actions) keep pointers to them.
static void make_labels(tri_engine *e) {
    const tri_flat *flat = &e->plan->flat;
    for (int k = 0; k < TRI_ACTION_KIND_COUNT; k++) {
        const char *name = tri_action_name((tri_action_kind)k);
        e->labels.kinds[k] = name;
        tri_subject subject = tri_action_subject((tri_action_kind)k);
        if (subject != TRI_SUBJECT_UNIT && subject != TRI_SUBJECT_BLOCK) continue;
        e->labels.subjects[k] = TRI_NEW_ARRAY(e->arena, const char *, flat->unit_count);
        for (int u = 0; u < flat->unit_count; u++)
            e->labels.subjects[k][u] =
                tri_arena_printf(e->arena, "%s %s", name, flat->units[u].name);
    }
}

static void make_step_records(tri_engine *e) {
    int actions = 0;
    for (int i = 0; i < TRI_STEP_SHAPE_COUNT; i++) {
        const tri_step_plan *step = &e->plan->steps[i];
        if (step->schedule.count > actions) actions = step->schedule.count;
    }
    e->run.tickets = TRI_NEW_ARRAY(e->arena, tri_ticket, actions);
    e->tensors.counters = TRI_NEW_ARRAY(e->arena, int64_t, e->plan->graph->parameter_count);
}

static tri_status make_engine(tri_engine *e, tri_comm *world) {
    TRI_ASSERT(e->optimizer.state_count == e->plan->optimizer_states);
    TRI_TRY(tri_queue_open(e->device, &e->queue));
    TRI_TRY(engine_open_takes(e));
    TRI_TRY(engine_open_outputs(e));
    TRI_TRY(engine_prepare_kernels(e));
    TRI_TRY(engine_open_storage(e, world->ledger));
    TRI_TRY(engine_open_host(e));
    TRI_TRY(engine_make_groups(e, world));
    TRI_TRY(engine_allocate(e));
    engine_find_gaps(e);
    engine_prepare_gradients(e);
    make_labels(e);
    make_step_records(e);
    TRI_TRY(engine_make_times(e));
    engine_size_communication(e);
    TRI_TRY(engine_make_range_kernels(e));
    TRI_TRY(engine_make_numbers(e));
    TRI_TRY(engine_make_flights(e));
    engine_list_tensors(e);
    engine_find_parts(e);
    return engine_make_constants(e);
}

tri_status tri_engine_create(const tri_engine_config *config, tri_engine **out) {
    tri_arena *arena = tri_arena_create(NULL, "engine");
    tri_engine *e = TRI_NEW(arena, tri_engine);
    *e = (tri_engine){.arena = arena,
                      .plan = config->plan,
                      .device = config->device,
                      .optimizer = *config->optimizer,
                      .loss_scale =
                          config->loss_scale ? *config->loss_scale : (tri_loss_scale_options){0},
                      .detects_anomaly = config->detect_anomaly,
                      .staging.unit = -1};
    tri_status status = make_engine(e, config->world);
    if (status != TRI_OK) {
        tri_engine_destroy(e);
        return status;
    }
    *out = e;
    return TRI_OK;
}

// Waits until the queues have done all their work, so that nothing reads memory that the caller
// frees next. The engine may end because a rank was lost. Then waiting fails too; the message of
// the first failure is kept, because that one names the cause.
static void finish_queues(tri_engine *e) {
    tri_queue *const queues[] = {e->queue, e->takes.queue, e->host.down, e->host.up};
    char why[TRI_MESSAGE_MAX_BYTES];
    snprintf(why, sizeof why, "%s", tri_error_message());
    for (int i = 0; i < 4; i++) {
        tri_status status = queues[i] ? tri_queue_finish(queues[i]) : TRI_OK;
        if (status != TRI_OK) (void)TRI_FAIL(status, "%s", why);
    }
}

void tri_engine_destroy(tri_engine *engine) {
    if (!engine) return;
    engine_stop_groups(engine);
    finish_queues(engine); // before a queue is closed, because another may wait for it
    // The storage's thread may still wait for tickets of the queues, and read memory that is freed
    // below. So the storage is closed, which ends the thread, before the queues are.
    tri_storage_close(engine->storage);
    engine_close_takes(engine);
    engine_close_parts(engine);
    tri_queue_close(engine->queue);
    engine_release_kernels(engine);
    engine_release_range_kernels(&engine->step_kernels);
    engine_release_range_kernels(&engine->casts);
    engine_release_range_kernels(&engine->squares);
    engine_release_range_kernels(&engine->finders);
    engine_close_host(engine);
    engine_release_numbers(engine);
    engine_release_times(engine);
    engine_release_flights(engine);
    engine_close_outputs(engine);
    if (engine->groups.memory) engine_release(engine);
    engine_close_groups(engine);
    tri_arena_destroy(engine->arena);
}

static tri_status do_nothing(tri_engine *e, const tri_action *a) {
    (void)e;
    (void)a;
    return TRI_OK;
}

static tri_status do_clear(tri_engine *e, const tri_action *a) {
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        tri_bucket_kind bucket = (tri_bucket_kind)k;
        int64_t elements = e->plan->flat.units[a->subject].buckets[bucket].elements;
        if (elements == 0 || !tri_bucket_has_gradients(bucket)) continue;
        TRI_TRY(e->device->backend->zero(e->queue,
                                         e->memory.slots[tri_slot_gradients(a->subject, bucket)],
                                         (size_t)elements * sizeof(float)));
    }
    return TRI_OK;
}

static tri_status do_norm(tri_engine *e, const tri_action *a) {
    (void)a;
    return engine_norm(e);
}

static tri_status do_step(tri_engine *e, const tri_action *a) {
    return engine_run_range_kernels(e, &e->step_kernels, a->subject);
}

static tri_status do_prepare(tri_engine *e, const tri_action *a) {
    return engine_run_range_kernels(e, &e->casts, a->subject);
}

// actions[kind] is the function that issues an action of this kind. The table has all kinds that
// run in the compute lane.
static tri_status (*const actions[TRI_ACTION_KIND_COUNT])(tri_engine *e, const tri_action *a) = {
    // RELEASE needs no work. It only marks from where on the plan gives the memory of a unit's
    // gathered parameters to other buffers.
    [TRI_ACTION_RELEASE] = do_nothing,
    [TRI_ACTION_FORWARD] = engine_run_compute,
    [TRI_ACTION_RECOMPUTE] = engine_run_compute,
    [TRI_ACTION_BACKWARD] = engine_run_compute,
    [TRI_ACTION_BACKWARD_INPUT] = engine_run_compute,
    [TRI_ACTION_BACKWARD_WEIGHT] = engine_run_compute,
    [TRI_ACTION_CLEAR] = do_clear,
    [TRI_ACTION_NORM] = do_norm,
    [TRI_ACTION_STEP] = do_step,
    [TRI_ACTION_PREPARE] = do_prepare,
};

// starts[lane] is the function that starts an action of this lane (communication, storage, or
// copies). It may return before the action is done; *ticket then stands for the action's work.
static tri_status (*const starts[TRI_LANE_COUNT])(tri_engine *e, const tri_action *a,
                                                  tri_ticket *ticket) = {
    [TRI_LANE_SHARD] = engine_start_communication,
    [TRI_LANE_REPLICATE] = engine_start_communication,
    [TRI_LANE_ALONG] = engine_start_communication,
    [TRI_LANE_BACK] = engine_start_communication,
    [TRI_LANE_STORE] = engine_start_storage,
    [TRI_LANE_DOWN] = engine_download,
    [TRI_LANE_UP] = engine_upload,
    [TRI_LANE_TAKE] = engine_take,
};

// Whether the driver of the device may load kernels now. A GPU (a device that can capture work)
// loads a kernel when it is first issued: outside of a step, or in the first step of each shape.
// While the driver loads a kernel, it may block every thread of the process until the device is
// idle. If a queue of the device then waited for work that a blocked thread has still to issue,
// neither would ever go on. So such a step begins only when the device has done all earlier work
// (wait_before_loading), and the host waits for tickets instead, before it issues more.
static bool loads_kernels(const tri_engine *e) {
    return e->device->backend->captures && (!e->run.input || !e->was_issued[e->run.input->shape]);
}

tri_status engine_let_wait(tri_engine *e, tri_queue *queue, const tri_ticket *ticket) {
    return loads_kernels(e) ? tri_ticket_wait(ticket) : e->device->backend->wait(queue, ticket);
}

// Lets the action `a` start only after the work for which the ticket `other` stands: an action on
// which `a` depends, or everything that was issued before the step. Where possible the queue or
// communicator that runs `a` waits, so that the host can go on issuing.
static tri_status start_after(tri_engine *e, const tri_action *a, tri_ticket *other) {
    if (!other->kind) return TRI_OK;
    if (loads_kernels(e)) return tri_ticket_wait(other);
    tri_queue *const queues[TRI_LANE_COUNT] = {[TRI_LANE_COMPUTE] = e->queue,
                                               [TRI_LANE_TAKE] = e->takes.queue,
                                               [TRI_LANE_DOWN] = e->host.down,
                                               [TRI_LANE_UP] = e->host.up};
    tri_lane lane = tri_action_lane(a->kind);
    if (queues[lane]) return e->device->backend->wait(queues[lane], other);
    if (lane == TRI_LANE_STORE && e->storage) return tri_storage_after(e->storage, other);
    if (lane == TRI_LANE_STORE) return tri_ticket_wait(other);
    return tri_comm_after(engine_group_of(e, a), other);
}

tri_ledger_action engine_ledger_action(const tri_engine *e, const tri_action *a) {
    tri_subject subject = tri_action_subject(a->kind);
    bool named = subject == TRI_SUBJECT_BLOCK || subject == TRI_SUBJECT_UNIT;
    return (tri_ledger_action){.kind = tri_action_name(a->kind),
                               .label = named ? e->plan->flat.units[a->subject].name : NULL,
                               .lane = TRI_LANE_OF_COMPUTE,
                               .subject = a->subject,
                               .round = a->round};
}

tri_status engine_issue_action(tri_engine *e, const tri_action *a) {
    bool is_timed = engine_is_timed(e, a);
    if (is_timed) TRI_TRY(engine_time_begin(e, a));
    TRI_TRY(actions[a->kind](e, a));
    return is_timed ? engine_time_end(e, a) : TRI_OK;
}

static tri_status do_compute(tri_engine *e, const tri_action *a, tri_ticket *ticket) {
    struct engine_part *part = engine_part_of(e, a);
    if (part) return engine_run_in_part(e, part, a, ticket);
    TRI_TRY(engine_issue_action(e, a));
    return e->device->backend->record(e->queue, ticket);
}

// Tells a profiler which action is being issued, such as "BACKWARD conv1".
static void show_action(const tri_engine *e, const tri_action *a) {
    char text[96];
    if (!e->device->backend->mark) return;
    tri_ledger_action noted = engine_ledger_action(e, a);
    snprintf(text, sizeof text, "%s %s", noted.kind, noted.label ? noted.label : "");
    e->device->backend->mark(e->device, text);
}

static tri_status do_action(tri_engine *e, const tri_action *a, tri_ticket *ticket) {
    tri_ledger_action noted = engine_ledger_action(e, a);
    if (engine_is_timed(e, a)) {
        noted.kind = TRI_LEDGER_ISSUE;
        noted.label = e->labels.subjects[a->kind] ? e->labels.subjects[a->kind][a->subject]
                                                  : tri_action_name(a->kind);
    }
    tri_ledger_mark mark = tri_ledger_begin(e->groups.world->ledger, &noted);
    tri_lane lane = tri_action_lane(a->kind);
    *ticket = (tri_ticket){0};
    show_action(e, a);
    tri_status status = starts[lane] ? starts[lane](e, a, ticket) : do_compute(e, a, ticket);
    if (e->device->backend->mark) e->device->backend->mark(e->device, NULL);
    tri_ledger_end(e->groups.world->ledger, mark);
    return status;
}

void engine_set_slots(tri_engine *e, const tri_action *a) {
    const tri_step_memory *memory = &e->run.step->memory;
    int i = (int)(a - e->run.step->schedule.actions);
    for (int k = memory->first[i]; k < memory->first[i + 1]; k++) {
        const tri_setting *set = &memory->settings[k];
        e->memory.slots[set->slot] =
            e->memory.heaps[memory->buffers[set->buffer].heap] + set->offset;
    }
}

// Asks whether the evaluation is to be cut short (tri_step_input.is_cancelled). Values that were
// not computed would look like anomalies on other ranks, so the search for anomalies does not ask.
static void look_for_cancel(tri_engine *e) {
    const tri_step_input *in = e->run.input;
    if (e->run.is_cancelled || !in->is_cancelled || e->detects_anomaly) return;
    e->run.is_cancelled =
        !tri_step_trains(in->shape) && in->is_cancelled(in->context, e->run.cancel_numbers);
}

// Issues the schedule of a step. Actions of the compute lane are issued one after the other.
// Actions of other lanes are started here and make progress by themselves; the first action that
// depends on one waits for it. At the end the compute lane waits for all of them, so that the next
// step starts after them.
static tri_status run_schedule(tri_engine *e) {
    const tri_schedule *s = &e->run.step->schedule;
    // The schedule has no dependencies on work before the step, but other lanes (communicators,
    // storage) read what that work wrote, for example parameters that were cast. So they wait for
    // this ticket.
    TRI_TRY(e->device->backend->record(e->queue, &e->run.begin));
    engine_begin_takes(e);
    for (int i = 0; i < s->count; i++) {
        const tri_action *a = &s->actions[i];
        tri_lane lane = tri_action_lane(a->kind);
        look_for_cancel(e);
        if (lane == TRI_LANE_TAKE)
            TRI_TRY(engine_may_take(e, a));
        else if (lane != TRI_LANE_COMPUTE)
            TRI_TRY(start_after(e, a, &e->run.begin));
        for (int d = 0; d < a->dependency_count; d++)
            TRI_TRY(start_after(e, a, &e->run.tickets[s->dependencies[a->first_dependency + d]]));
        engine_set_slots(e, a);
        TRI_TRY(do_action(e, a, &e->run.tickets[i]));
    }
    TRI_TRY(engine_end_takes(e));
    for (int i = 0; i < s->count; i++)
        if (e->run.tickets[i].kind && tri_action_lane(s->actions[i].kind) != TRI_LANE_COMPUTE)
            TRI_TRY(engine_let_wait(e, e->queue, &e->run.tickets[i]));
    return TRI_OK;
}

// If state was written since the last step (a checkpoint was loaded, or initial weights were made):
// moves staged elements to their place, and casts the masters to the type that kernels read.
static tri_status cast_all(tri_engine *e) {
    TRI_TRY(engine_flush_staging(e));
    if (!e->is_stale) return TRI_OK;
    e->is_stale = false;
    for (int u = 0; u < e->plan->flat.unit_count; u++) {
        TRI_TRY(engine_fetch_masters(e, u));
        TRI_TRY(engine_run_range_kernels(e, &e->casts, u));
    }
    return TRI_OK;
}

// Waits until the device has done everything that was issued before a step that loads kernels. With
// a step in flight, the queues may wait for communicators or storage, and a thread that is blocked
// while kernels are loaded could not let them go on. The compute queue ends each step by waiting
// for all other lanes, so its ticket stands for their work too.
static tri_status wait_before_loading(tri_engine *e) {
    tri_ticket ticket;
    if (!loads_kernels(e)) return TRI_OK;
    TRI_TRY(e->device->backend->record(e->queue, &ticket));
    tri_ledger *ledger = e->groups.world->ledger;
    tri_ledger_mark mark = tri_ledger_enter(ledger, TRI_LEDGER_WAIT, "the steps before");
    tri_status status = tri_ticket_wait(&ticket);
    tri_ledger_end(ledger, mark);
    return status;
}

static tri_status issue(tri_engine *engine, const tri_step_input *input) {
    engine_flights *flights = &engine->flights;
    TRI_ASSERT(flights->count <= tri_engine_steps_ahead(engine));
    TRI_ASSERT(flights->count == 0 || !engine->is_stale);
    engine->run.input = input;
    engine->run.step = &engine->plan->steps[input->shape];
    TRI_ASSERT(engine->run.step->samples > 0);
    engine_flight *flight = &flights->items[engine_next_flight(engine)];
    flight->shape = input->shape;
    flight->step = input->step;
    engine_clear_times(engine, flight);
    tri_ledger_step(engine->groups.world->ledger, input->step);
    engine->run.anomaly[0] = 0;
    engine->run.is_cancelled = false;
    TRI_TRY(wait_before_loading(engine));
    TRI_TRY(cast_all(engine));
    engine->staging.unit = -1;
    TRI_TRY(engine_begin_numbers(engine));
    if (tri_step_trains(input->shape)) TRI_TRY(engine_write_seeds(engine));
    TRI_TRY(run_schedule(engine));
    TRI_TRY(engine_finish_outputs(engine));
    TRI_TRY(engine_send_results(engine, flight));
    if (!engine->run.is_cancelled) engine->was_issued[input->shape] = true;
    flights->count++;
    return TRI_OK;
}

tri_status tri_engine_issue(tri_engine *engine, const tri_step_input *input) {
    return engine_name_failure(engine, issue(engine, input));
}

tri_status tri_engine_step(tri_engine *engine, const tri_step_input *input, tri_step_output *out) {
    TRI_ASSERT(engine->flights.count == 0);
    TRI_TRY(tri_engine_issue(engine, input));
    return tri_engine_collect(engine, out);
}

void tri_engine_abandon(tri_engine *engine) {
    engine_stop_groups(engine);
    finish_queues(engine);
    engine->takes.copy_count = engine->outputs.count = 0;
    engine->flights.count = 0;
}
