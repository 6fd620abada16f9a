// NORM: what all ranks have to know of a step before parameters change. Loss, metrics, the caller's
// numbers and the squares of the gradients are summed over all ranks. In a deterministic run each
// term has an index of its own, and the terms are added in the order of the step, so that the sum
// has the same bits on any number of ranks. Next: update.c.
#include "engine/engine_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PLAIN_VALUES = 2 * TRI_MAX_METRICS + TRI_MAX_SHARED + 1 };

// Chunks of the trained buckets of all units, of those on other ranks too.
static int64_t count_chunks(const tri_engine *e) {
    int64_t elements = 0;
    for (int u = 0; u < e->plan->flat.unit_count; u++)
        for (int k = 0; k < TRI_BUCKET_COUNT; k++)
            if (tri_bucket_is_trained((tri_bucket_kind)k))
                elements += e->plan->flat.units[u].buckets[k].elements;
    return elements / TRI_FLAT_CHUNK;
}

static int64_t count_sums(const tri_engine *e) {
    return 2 * (int64_t)e->run.step->rounds * e->plan->graph->metric_count;
}

// Whether this rank's stage counts in the norm of a unit: of the stages that hold it, the first.
static bool counts_unit(const tri_engine *e, int unit) {
    const tri_plan *plan = e->plan;
    return plan->flat.units[unit].here &&
           plan->units[unit].first_holder ==
               tri_mesh_coordinate(&plan->mesh, plan->rank, TRI_AXIS_PIPELINE);
}

// Of the tensor-parallel ranks, only the first counts a bucket that all of them have.
static bool counts_bucket(const tri_engine *e, tri_bucket_kind bucket) {
    return e->groups.tensor_parallel->rank == 0 ||
           tri_bucket_placement(bucket) == TRI_PLACEMENT_SLICED;
}

// Entries of the buffer of squares: one for each chunk of a deterministic run, else one for each
// bucket.
static int64_t count_squares(const tri_engine *e) {
    return e->plan->deterministic ? count_chunks(e)
                                  : (int64_t)e->plan->flat.unit_count * TRI_BUCKET_COUNT;
}

tri_status engine_allocate_squares(tri_engine *e) {
    int64_t count = count_squares(e) + 1;
    e->run.squares = TRI_NEW_ARRAY(e->arena, double, count);
    void *memory;
    TRI_TRY(e->device->backend->alloc(e->device, (size_t)count * sizeof(double), &memory));
    e->memory.squares = memory;
    return TRI_OK;
}

// Calls `visit` for the ranges of gradients whose squares this rank sums: its own ones, which the
// ranks that hold copies divide among them.
static tri_status visit_ranges(const tri_engine *e,
                               tri_status (*visit)(const tri_engine *e, const float *values,
                                                   int64_t count, int64_t chunk, int64_t *used),
                               int64_t *used) {
    const tri_plan *plan = e->plan;
    int64_t chunk = 0;
    for (int u = 0; u < plan->flat.unit_count; u++)
        for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
            tri_bucket_kind bucket = (tri_bucket_kind)k;
            const tri_flat_bucket *p = &plan->flat.units[u].buckets[bucket];
            if (!tri_bucket_is_trained(bucket) || p->own == 0) continue;
            int64_t grain = plan->deterministic ? TRI_FLAT_CHUNK : TRI_FLAT_ALIGNMENT;
            int64_t grains = p->own / grain;
            int64_t first = grains * plan->sharing.copy / plan->sharing.copies * grain;
            int64_t end = grains * (plan->sharing.copy + 1) / plan->sharing.copies * grain;
            if (counts_unit(e, u) && counts_bucket(e, bucket) && end > first)
                TRI_TRY(visit(e, engine_own_gradients(e, u, bucket) + first, end - first,
                              chunk + (p->own * plan->sharing.shard + first) / TRI_FLAT_CHUNK,
                              used));
            chunk += p->elements / TRI_FLAT_CHUNK;
        }
    return TRI_OK;
}

static tri_status sum_range(const tri_engine *e, const float *values, int64_t count, int64_t chunk,
                            int64_t *used) {
    (void)chunk;
    return e->device->backend->sum_of_squares(e->queue, e->memory.squares + (*used)++, values,
                                              count);
}

static tri_status sum_chunks(const tri_engine *e, const float *values, int64_t count, int64_t chunk,
                             int64_t *used) {
    (void)used;
    for (int64_t i = 0; i < count; i += TRI_FLAT_CHUNK)
        TRI_TRY(e->device->backend->sum_of_squares(e->queue, e->memory.squares + chunk++,
                                                   values + i, TRI_FLAT_CHUNK));
    return TRI_OK;
}

static tri_status sum_ranges(const tri_engine *e, double *out) {
    int64_t used = 0;
    *out = 0;
    TRI_TRY(visit_ranges(e, sum_range, &used));
    TRI_TRY(
        tri_queue_read(e->queue, e->run.squares, e->memory.squares, (size_t)used * sizeof(double)));
    for (int64_t i = 0; i < used; i++) *out += e->run.squares[i];
    return TRI_OK;
}

tri_status engine_sum_over_ranks(tri_engine *e, const char *label, double *values, int64_t count) {
    if (e->groups.world->size == 1) return TRI_OK;
    tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE,
                      .reduction = TRI_REDUCE_SUM,
                      .dtype = TRI_F64,
                      .count = count,
                      .send = values,
                      .recv = values,
                      .label = label,
                      .waits_at_once = true};
    return tri_comm_run(e->groups.world, &op);
}

// Adds the sums of one round and replica to the step's.
static void add_round(tri_engine *e, const double *sums) {
    for (int i = 0; i < e->plan->graph->metric_count; i++) {
        e->run.output->sum[i] += sums[2 * i];
        e->run.output->count[i] += sums[2 * i + 1];
    }
}

static tri_status sum_plainly(tri_engine *e, double *squares) {
    int metrics = e->plan->graph->metric_count;
    double values[PLAIN_VALUES];
    double *counts = values + metrics, *shared = counts + metrics, *last = shared + TRI_MAX_SHARED;
    for (int r = 0; r < e->run.step->rounds; r++) add_round(e, e->run.round_sums + 2 * r * metrics);
    memcpy(values, e->run.output->sum, (size_t)metrics * sizeof *values);
    memcpy(counts, e->run.output->count, (size_t)metrics * sizeof *values);
    memcpy(shared, e->run.input->shared, TRI_MAX_SHARED * sizeof *values);
    *last = *squares;
    TRI_TRY(engine_sum_over_ranks(e, "NORM", values, last + 1 - values));
    memcpy(e->run.output->sum, values, (size_t)metrics * sizeof *values);
    memcpy(e->run.output->count, counts, (size_t)metrics * sizeof *values);
    memcpy(e->run.output->shared, shared, TRI_MAX_SHARED * sizeof *values);
    *squares = *last;
    engine_sum_terms(e);
    return TRI_OK;
}

// The terms, in this order: those of each micro-batch of the step (round by round, in each the
// replicas in order), the caller's numbers, the squares chunk by chunk. Of each term all ranks but
// one have a zero, so that the all-reduce changes no bits.
static tri_status sum_in_order(tri_engine *e, bool squared, double *squares) {
    int metrics = e->plan->graph->metric_count, replicas = e->plan->replicas;
    int64_t sums = count_sums(e) * replicas, chunks = squared ? count_chunks(e) : 0;
    int64_t total = sums + TRI_MAX_SHARED + chunks;
    if (total > e->run.fold_count) {
        free(e->run.fold);
        e->run.fold = malloc((size_t)total * sizeof *e->run.fold);
        e->run.fold_count = e->run.fold ? total : 0;
        if (!e->run.fold)
            return TRI_FAIL(TRI_NO_MEMORY, "no memory for %lld numbers of NORM", (long long)total);
    }
    memset(e->run.fold, 0, (size_t)total * sizeof *e->run.fold);
    int64_t replica = tri_mesh_replica(&e->plan->mesh, e->plan->rank);
    for (int r = 0; r < e->run.step->rounds; r++)
        memcpy(e->run.fold + 2 * metrics * (r * replicas + replica),
               e->run.round_sums + 2 * metrics * r, (size_t)(2 * metrics) * sizeof *e->run.fold);
    memcpy(e->run.fold + sums, e->run.input->shared, TRI_MAX_SHARED * sizeof *e->run.fold);
    if (squared) { // chunks of other ranks have been zero since the start
        TRI_TRY(visit_ranges(e, sum_chunks, NULL));
        TRI_TRY(tri_queue_read(e->queue, e->run.fold + sums + TRI_MAX_SHARED, e->memory.squares,
                               (size_t)chunks * sizeof(double)));
    }
    TRI_TRY(engine_sum_over_ranks(e, "NORM", e->run.fold, total));
    for (int64_t j = 0; j < (int64_t)e->run.step->rounds * replicas; j++)
        add_round(e, e->run.fold + 2 * metrics * j);
    memcpy(e->run.output->shared, e->run.fold + sums, TRI_MAX_SHARED * sizeof *e->run.fold);
    *squares = 0;
    for (int64_t i = 0; i < chunks; i++) *squares += e->run.fold[sums + TRI_MAX_SHARED + i];
    engine_sum_terms(e);
    return TRI_OK;
}

tri_status engine_sum_metrics(tri_engine *e) {
    TRI_TRY(engine_agree_on_anomaly(e));
    double nothing = 0;
    return e->plan->deterministic ? sum_in_order(e, false, &nothing) : sum_plainly(e, &nothing);
}

static tri_status name_not_finite(const tri_engine *e) {
    const tri_graph *g = e->plan->graph;
    const tri_flat *flat = &e->plan->flat;
    long long step = (long long)e->run.input->update;
    bool is_narrow = e->plan->sharing.reduce_dtype == TRI_F16 && e->plan->replicas > 1;
    const char *wider = is_narrow ? ", or strategy.reduce_dtype: bfloat16" : "";
    if (!isfinite(e->run.output->sum[0]))
        return TRI_FAIL(TRI_NOT_FINITE,
                        "step %lld: the loss is %g; trainer.detect_anomaly=true names where it "
                        "begins; try a smaller optimizer.lr or trainer.gradient_clip_val",
                        step,
                        isnan(e->run.output->sum[0]) ? NAN
                                                     : e->run.output->sum[0]); // without a sign
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_flat_parameter *p = &flat->parameters[i];
        if (g->parameters[i].role != TRI_ROLE_TRAINED || !flat->units[p->unit].here) continue;
        int64_t own = flat->units[p->unit].buckets[p->bucket].own,
                start = own * e->plan->sharing.shard;
        int64_t from = p->offset > start ? p->offset : start, to = p->offset + p->elements;
        if (to > start + own) to = start + own;
        if (to <= from) continue;
        double sum;
        TRI_TRY(e->device->backend->sum_of_squares(
            e->queue, e->memory.squares, engine_own_gradients(e, p->unit, p->bucket) + from - start,
            to - from));
        TRI_TRY(tri_queue_read(e->queue, &sum, e->memory.squares, sizeof sum));
        if (!isfinite(sum))
            return TRI_FAIL(TRI_NOT_FINITE,
                            "step %lld: the gradient of %s is not finite; try a smaller "
                            "optimizer.lr or trainer.gradient_clip_val%s",
                            step, g->parameters[i].name, wider);
    }
    return TRI_FAIL(TRI_NOT_FINITE, "step %lld: the norm of the gradients is not finite%s", step,
                    is_narrow ? "; try strategy.reduce_dtype: bfloat16" : "");
}

// Sums the gradients of which each tensor-parallel rank has one term.
static tri_status sum_partial(tri_engine *e) {
    const tri_flat *flat = &e->plan->flat;
    for (int i = 0; i < flat->unit_count * TRI_BUCKET_COUNT && e->groups.tensor_parallel->size > 1;
         i++) {
        int unit = i / TRI_BUCKET_COUNT;
        tri_bucket_kind bucket = (tri_bucket_kind)(i % TRI_BUCKET_COUNT);
        if (!flat->units[unit].here ||
            tri_bucket_placement(bucket) != TRI_PLACEMENT_PARTIAL_GRADIENT)
            continue;
        if (flat->units[unit].buckets[bucket].own == 0) continue;
        float *own_gradients = engine_own_gradients(e, unit, bucket);
        tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE,
                          .reduction = TRI_REDUCE_SUM,
                          .dtype = TRI_F32,
                          .count = flat->units[unit].buckets[bucket].own,
                          .send = own_gradients,
                          .recv = own_gradients,
                          .label = flat->units[unit].name};
        TRI_TRY(engine_run_between(e, e->data.tensor_parallel, &op));
    }
    return TRI_OK;
}

// Learns the true counts and the norm, and writes the step scalars.
tri_status engine_norm(tri_engine *e) {
    double sum = 0;
    TRI_TRY(tri_queue_finish(e->queue)); // gradients, and the metrics of all rounds
    TRI_TRY(engine_agree_on_anomaly(e));
    TRI_TRY(sum_partial(e));
    if (e->plan->deterministic) {
        TRI_TRY(sum_in_order(e, true, &sum));
    } else {
        TRI_TRY(sum_ranges(e, &sum));
        TRI_TRY(sum_plainly(e, &sum));
    }
    bool scaled = e->run.input->loss_scale > 0;
    bool finite = isfinite(sum) && isfinite(e->run.output->sum[0]);
    if (!finite && !scaled) return name_not_finite(e);
    e->run.output->overflowed = !finite;
    double nominal = (double)e->run.step->samples, scale = engine_gradient_scale(e);
    if (scaled) scale /= e->run.input->loss_scale;
    double norm = sqrt(sum) * scale;
    e->run.output->gradient_norm = norm;
    // The formula of torch.nn.utils.clip_grad_norm_.
    if (e->run.input->clip > 0 && norm > 0) {
        double factor = e->run.input->clip / (norm + 1e-6);
        if (factor < 1) scale *= factor;
    }
    double scalars[TRI_STEP_SCALAR_COUNT] = {
        [TRI_STEP_LR] = e->run.input->lr,
        [TRI_STEP_GRADIENT_SCALE] = scale,
        [TRI_STEP_STATISTIC_SCALE] = 1 / nominal,
        [TRI_STEP_SKIP] = e->run.output->overflowed,
        [TRI_STEP_UPDATE] = (double)e->run.input->update,
    };
    return e->device->backend->copy_in(e->queue, e->memory.scalars[TRI_SCALAR_STEP], scalars,
                                       sizeof scalars);
}
