// The results of a step that the host reads: sums of metrics, step scalars (numbers that the update
// reads, such as the learning rate), and carried numbers, which one step hands to the next on the
// device (tri_carried). They are copied to the host's memory after the step. There is room for
// several steps there, so that a step can be issued before the results of the previous one are
// read. A step in flight is one that was issued and whose results were not read yet; its room is a
// flight. Read next: train/scale.c, which takes over the carried numbers.
//
// A step halts if its loss is not finite, or if its gradients are not and there is no loss scale or
// it is already the smallest allowed one. The device then leaves the training state as it is, in
// this step and in those issued after it. These steps still overwrite the gradients, before the
// host learns of the halt. So kernels of the halted step itself, the finders, look for the first
// parameter whose gradient is not finite.
//
// This file also writes the carried numbers to the device: before the first step, and after a halt.
#include "engine/engine_internal.h"
#include "graph/metric.h"

#include <math.h>
#include <string.h>

tri_status engine_make_flights(tri_engine *e) {
    const tri_device_backend *device = e->device->backend;
    int64_t count = e->numbers.result_count + TRI_MAX_CALLER_NUMBERS;
    for (int i = 0; i <= TRI_MAX_STEPS_AHEAD; i++) {
        void *memory = device->alloc_host ? NULL : TRI_NEW_ARRAY(e->arena, double, count);
        if (device->alloc_host)
            TRI_TRY(device->alloc_host(e->device, (size_t)count * sizeof(double), &memory));
        e->flights.items[i].results = memory;
        e->flights.items[i].caller_numbers = (double *)memory + e->numbers.result_count;
    }
    return TRI_OK;
}

void engine_release_flights(tri_engine *e) {
    const tri_device_backend *device = e->device->backend;
    for (int i = 0; i <= TRI_MAX_STEPS_AHEAD && device->alloc_host; i++)
        if (e->flights.items[i].results) device->free_host(e->device, e->flights.items[i].results);
}

int engine_next_flight(const tri_engine *e) {
    return (e->flights.first + e->flights.count) % (1 + TRI_MAX_STEPS_AHEAD);
}

int tri_engine_steps_ahead(const tri_engine *e) {
    return e->device->backend->is_asynchronous && !e->detects_anomaly ? TRI_MAX_STEPS_AHEAD : 0;
}

// Finds which elements of a parameter's gradient this rank has: *first to *end - 1, counted from
// the beginning of this rank's range of the bucket. The range may begin or end inside the
// parameter. False: this rank has none of them.
static bool own_elements(const tri_engine *e, int parameter, int64_t *first, int64_t *end) {
    const tri_flat_parameter *p = &e->plan->flat.parameters[parameter];
    int64_t own = e->plan->flat.units[p->unit].buckets[p->bucket].own;
    int64_t start = own * e->plan->sharing.shard;
    *first = p->offset > start ? p->offset - start : 0;
    *end = p->offset + p->elements - start;
    if (*end > own) *end = own;
    return *end > *first;
}

// Adds a finder for a bucket (parameters of one unit, role, type and placement): a kernel that
// looks for gradients that are not finite. It gets one range for each parameter of the bucket, in
// the graph's order, so that what it finds can be reported with the parameter's name.
static tri_status add_finder(tri_engine *e, int unit, tri_bucket_kind bucket, int64_t *ranges,
                             int64_t *count) {
    const tri_graph *g = e->plan->graph;
    int64_t at = *count, own = e->plan->flat.units[unit].buckets[bucket].own;
    for (int i = 0; i < g->parameter_count && own > 0; i++) {
        const tri_flat_parameter *p = &e->plan->flat.parameters[i];
        if (g->parameters[i].role != TRI_ROLE_TRAINED || p->unit != unit || p->bucket != bucket ||
            !own_elements(e, i, &ranges[2 * *count], &ranges[2 * *count + 1]))
            continue;
        e->numbers.parameters[(*count)++] = i;
    }
    if (*count == at) return TRI_OK;
    engine_range_kernel range = {.unit = unit, .bucket = bucket, .at = at};
    return engine_add_finder(e, range, own, *count - at);
}

tri_status engine_make_finders(tri_engine *e) {
    const tri_flat *flat = &e->plan->flat;
    const tri_device_backend *device = e->device->backend;
    int parameters = e->plan->graph->parameter_count;
    int64_t *ranges = TRI_NEW_ARRAY(e->arena, int64_t, 2 * parameters), count = 0;
    e->numbers.parameters = TRI_NEW_ARRAY(e->arena, int, parameters);
    for (int u = 0; u < flat->unit_count; u++)
        for (int k = 0; k < TRI_BUCKET_COUNT && flat->units[u].here; k++)
            if (tri_bucket_is_trained((tri_bucket_kind)k))
                TRI_TRY(add_finder(e, u, (tri_bucket_kind)k, ranges, &count));
    void *memory;
    size_t bytes = 2 * (size_t)count * sizeof *ranges;
    TRI_TRY(device->alloc(e->device, bytes, &memory));
    e->numbers.ranges = memory;
    return tri_queue_write(e->queue, memory, ranges, bytes);
}

tri_status engine_find_not_finite(tri_engine *e) {
    for (int u = 0; u < e->plan->flat.unit_count; u++)
        TRI_TRY(engine_run_range_kernels(e, &e->finders, u));
    return TRI_OK;
}

tri_status engine_send_results(tri_engine *e, engine_flight *flight) {
    const engine_numbers *n = &e->numbers;
    const tri_device_backend *device = e->device->backend;
    if (!tri_step_trains(flight->shape)) {
        if (e->detects_anomaly) TRI_TRY(engine_agree_on_anomaly(e));
        if (e->run.is_cancelled)
            TRI_TRY(device->copy_in(e->queue, n->caller_numbers, e->run.cancel_numbers,
                                    sizeof e->run.cancel_numbers));
        TRI_TRY(engine_sum_over_step(e, false));
        TRI_TRY(engine_send_counts(e));
    }
    TRI_TRY(device->copy_out(e->queue, flight->results, n->sums,
                             (size_t)n->result_count * sizeof(double)));
    TRI_TRY(device->copy_out(e->queue, flight->caller_numbers, n->caller_numbers,
                             sizeof e->run.input->caller_numbers));
    return device->record(e->queue, &flight->done);
}

static tri_status write_carried(tri_engine *e) {
    const tri_carried *c = &e->carried;
    double carried[TRI_CARRIED_COUNT] = {
        [TRI_CARRIED_SCALE] = c->scale.scale,
        [TRI_CARRIED_GOOD_STEPS] = (double)c->scale.good_steps,
        [TRI_CARRIED_HYSTERESIS_LEFT] = (double)c->scale.hysteresis_left,
        [TRI_CARRIED_UPDATES] = (double)c->updates,
    };
    return tri_queue_write(e->queue, e->numbers.carried, carried, sizeof carried);
}

tri_status tri_engine_carry(tri_engine *e, const tri_carried *carried) {
    TRI_ASSERT(e->flights.count == 0);
    e->carried = *carried;
    return write_carried(e);
}

// The first parameter, in the graph's order, whose gradient has a number that is not finite; -1:
// this rank has no such gradient. The graph's order makes the message the same in every run.
// found[i] is what finder i (a kernel that looks for such numbers) has written: 1 + the index of
// the first of its ranges that has such a number, or 0 if none has.
static int first_found(const tri_engine *e, const double *found) {
    int first = -1;
    for (int i = 0; i < e->finders.count; i++) {
        if (found[i] == 0) continue;
        int parameter = e->numbers.parameters[e->finders.items[i].at + (int64_t)found[i] - 1];
        if (first < 0 || parameter < first) first = parameter;
    }
    return first;
}

static tri_status name_not_finite(const tri_engine *e, const engine_flight *flight, double loss) {
    const double *found = flight->results + e->numbers.found_at;
    long long step = (long long)flight->step + 1;
    bool is_narrow = e->plan->sharing.reduce_dtype == TRI_F16 && e->plan->replicas > 1;
    const char *wider = is_narrow ? ", or strategy.reduce_dtype: bfloat16" : "";
    int parameter = first_found(e, found);
    if (!isfinite(loss))
        return TRI_FAIL(TRI_NOT_FINITE,
                        "step %lld: the loss is %g; try a smaller optimizer.lr or "
                        "trainer.gradient_clip_val",
                        // `loss` may be a NaN with a sign, and would be printed as -nan
                        step, isnan(loss) ? NAN : loss);
    if (parameter >= 0)
        return TRI_FAIL(TRI_NOT_FINITE,
                        "step %lld: the gradient of %s is not finite; try a smaller optimizer.lr "
                        "or trainer.gradient_clip_val%s",
                        step, e->plan->graph->parameters[parameter].name, wider);
    return TRI_FAIL(TRI_NOT_FINITE, "step %lld: the norm of the gradients is not finite%s", step,
                    is_narrow ? "; try strategy.reduce_dtype: bfloat16" : "");
}

// Called after a step that halts. Forgets the steps that were issued after it, which have changed
// nothing, and clears the halt on the device, so that the caller may use the engine again. Normally
// the caller ends the run.
static tri_status resume_after_halt(tri_engine *e, engine_flight *flight) {
    const engine_numbers *n = &e->numbers;
    size_t bytes = (size_t)e->finders.count * sizeof(double);
    e->flights.count = 0;
    // If no step was issued ahead, nothing has overwritten the gradients yet, and they are searched
    // only now.
    if (tri_engine_steps_ahead(e) == 0) {
        TRI_TRY(engine_find_not_finite(e));
        TRI_TRY(
            tri_queue_read(e->queue, flight->results + n->found_at, n->sums + n->found_at, bytes));
    }
    return write_carried(e);
}

static tri_status take_training(tri_engine *e, engine_flight *flight, tri_step_output *out) {
    const double *scalars = flight->results + e->numbers.scalars_at;
    const double *carried = flight->results + e->numbers.carried_at;
    bool halts = scalars[TRI_STEP_HALTS] != 0;
    e->carried.scale.scale = carried[TRI_CARRIED_SCALE];
    e->carried.scale.good_steps = (int64_t)carried[TRI_CARRIED_GOOD_STEPS];
    e->carried.scale.hysteresis_left = (int64_t)carried[TRI_CARRIED_HYSTERESIS_LEFT];
    e->carried.updates = (int64_t)carried[TRI_CARRIED_UPDATES];
    if (halts) TRI_TRY(resume_after_halt(e, flight));
    bool skips = scalars[TRI_STEP_SKIP] != 0;
    out->gradient_norm = scalars[TRI_STEP_NORM];
    out->lr = scalars[TRI_STEP_LR];
    out->carried = e->carried;
    if (halts && (e->carried.scale.scale == 0 || !isfinite(out->sum[0])))
        return name_not_finite(e, flight, out->sum[0]);
    out->is_empty = scalars[TRI_STEP_EMPTY] != 0 && isfinite(out->gradient_norm);
    out->overflowed = skips && !out->is_empty;
    out->exhausted = halts;
    if (!skips) tri_engine_count_update(e);
    return TRI_OK;
}

static tri_status wait_for(tri_engine *e, const engine_flight *flight) {
    if (tri_ticket_is_done(&flight->done)) return tri_ticket_wait(&flight->done);
    tri_ledger *ledger = e->groups.world->ledger;
    tri_ledger_mark mark = tri_ledger_enter(ledger, TRI_LEDGER_WAIT, "results");
    tri_status status = tri_ticket_wait(&flight->done);
    tri_ledger_end(ledger, mark);
    return status;
}

// The graph of the first program that trains, or of the first that does not.
static const tri_graph *graph_of(const tri_plan *plan, bool training) {
    for (int i = 0; i < plan->program_count; i++)
        if (plan->programs[i]->training == training) return plan->programs[i]->graph;
    return plan->graph;
}

static tri_status collect(tri_engine *e, tri_step_output *out) {
    engine_flights *flights = &e->flights;
    TRI_ASSERT(flights->count > 0);
    engine_flight *flight = &flights->items[flights->first];
    *out = (tri_step_output){.gradient_norm = 0};
    flights->first = (flights->first + 1) % (1 + TRI_MAX_STEPS_AHEAD);
    flights->count--;
    TRI_TRY(wait_for(e, flight));
    engine_note_times(e, flight);
    memcpy(out->caller_sums, flight->caller_numbers, sizeof out->caller_sums);
    const tri_graph *g = graph_of(e->plan, tri_step_trains(flight->shape));
    for (int i = 0; i < g->metric_count; i++) {
        int source = g->metrics[i].source;
        bool counts = tri_tally_counts((tri_tally)g->metrics[source].tally);
        const double *result =
            (counts ? e->counts.host : flight->results) + tri_metric_offset(g, source);
        out->sum[i] = result[0];
        out->count[i] = result[1];
        out->numbers[i] = result;
    }
    engine_sum_terms(e, out);
    return tri_step_trains(flight->shape) ? take_training(e, flight, out) : TRI_OK;
}

tri_status tri_engine_collect(tri_engine *e, tri_step_output *out) {
    return engine_name_failure(e, collect(e, out));
}
