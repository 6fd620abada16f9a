// The action NORM: the numbers of a step that all ranks have to know before parameters change.
// Loss, metrics, the squares of the gradients and the numbers that the engine's caller adds
// (tri_step_input.caller_numbers) are summed over all ranks, in the device's memory. From the sums
// follow the step scalars, numbers that updates read, such as the factor of the gradients. The
// carried numbers, which one step hands to the next (loss scale, count of updates), stay in the
// device's memory too. Read next: update.c.
//
// Each micro-batch has a row, into which kernels write (sum, count) of each loss, and the sums of
// metrics; their counts, which may be many, are in metric_counts.c. In a deterministic run the rows
// of all replicas, and one sum of squares for each chunk of the gradients (TRI_FLAT_CHUNK
// elements), travel to all ranks. They lie in the order of the micro-batches in the step, and of
// the chunks in the parameters. Every rank adds them in this order, so that the results have the
// same bits on any number of ranks:
//
//   row of replica 0's first micro-batch | replica 1's | … | caller's numbers | squares by chunk
//
// Each row and each sum of squares is computed by one rank and is zero on all others, so that the
// all-reduce does not change its bits. In a run that is not deterministic, each rank first adds its
// own rows and squares, and only their sums travel.
//
// Gradients lie in buckets. A bucket is the part of a unit (parameters that are reduced together)
// that has one role, type and placement, and it is contiguous. A rank's own gradients are its range
// of each bucket: its shard, or the whole bucket if ranks do not shard gradients.
#include "engine/engine_internal.h"
#include "graph/metric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Counts the chunks (TRI_FLAT_CHUNK elements each) of all trained parameters, including those that
// only other ranks hold, because the sums of squares of all chunks travel to all ranks.
static int64_t count_chunks(const tri_engine *e) {
    int64_t elements = 0;
    for (int u = 0; u < e->plan->flat.unit_count; u++)
        for (int k = 0; k < TRI_BUCKET_COUNT; k++)
            if (tri_bucket_is_trained((tri_bucket_kind)k))
                elements += e->plan->flat.units[u].buckets[k].elements;
    return elements / TRI_FLAT_CHUNK;
}

// Whether this rank counts a unit (parameters that are reduced together) in the norm. Several
// stages hold the unit if it is a tied parameter, which blocks of all these stages read; only the
// first of these stages counts it.
static bool counts_unit(const tri_engine *e, int unit) {
    const tri_plan *plan = e->plan;
    return plan->flat.units[unit].here &&
           plan->units[unit].first_holder ==
               tri_mesh_coordinate(&plan->mesh, plan->rank, TRI_AXIS_PIPELINE);
}

// Whether this rank counts a bucket in the norm. If all tensor-parallel ranks have the same bucket,
// only the first of them counts it.
static bool counts_bucket(const tri_engine *e, tri_bucket_kind bucket) {
    return e->groups.tensor_parallel->rank == 0 ||
           tri_bucket_placement(bucket) == TRI_PLACEMENT_SLICED;
}

// Calls `visit` for the ranges of own gradients whose squares this rank sums. `first` is counted
// from the beginning of this rank's range of the bucket. Ranks that hold copies of the same
// gradients divide them among themselves, so that each square is computed once. In a deterministic
// run `chunk` is the number of the range's first chunk (of TRI_FLAT_CHUNK elements) among the
// chunks of all ranks.
static tri_status visit_ranges(tri_engine *e,
                               tri_status (*visit)(tri_engine *e, int unit, tri_bucket_kind bucket,
                                                   int64_t first, int64_t count, int64_t chunk)) {
    const tri_plan *plan = e->plan;
    int64_t chunk = 0;
    for (int u = 0; u < plan->flat.unit_count; u++)
        for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
            tri_bucket_kind bucket = (tri_bucket_kind)k;
            const tri_flat_bucket *p = &plan->flat.units[u].buckets[bucket];
            if (!tri_bucket_is_trained(bucket) || p->own == 0) continue;
            int64_t grain = plan->deterministic ? TRI_FLAT_CHUNK : TRI_FLAT_ALIGNMENT;
            int64_t grains = p->own / grain;
            int64_t first =
                grains * plan->sharing.replicate_rank / plan->sharing.replicate_size * grain;
            int64_t end =
                grains * (plan->sharing.replicate_rank + 1) / plan->sharing.replicate_size * grain;
            if (counts_unit(e, u) && counts_bucket(e, bucket) && end > first)
                TRI_TRY(visit(e, u, bucket, first, end - first,
                              chunk + (p->own * plan->sharing.shard + first) / TRI_FLAT_CHUNK));
            chunk += p->elements / TRI_FLAT_CHUNK;
        }
    return TRI_OK;
}

static tri_status add_range(tri_engine *e, int unit, tri_bucket_kind bucket, int64_t first,
                            int64_t count, int64_t chunk) {
    engine_numbers *n = &e->numbers;
    bool by_chunk = e->plan->deterministic;
    int64_t at = by_chunk ? chunk : n->square_count++;
    tri_sum_of_squares_attr attr = {.chunk = by_chunk ? TRI_FLAT_CHUNK : 0};
    return engine_add_squares(
        e, &attr, (engine_range_kernel){.unit = unit, .bucket = bucket, .first = first, .at = at},
        count);
}

// A device makes kernels only for nodes of a graph. So this adds a node to numbers.graph, a small
// graph that exists only for this purpose.
tri_status engine_make_number_kernel(tri_engine *e, const tri_op *op, const void *attr,
                                     const tri_shape *shapes, int count, tri_kernel *out) {
    tri_graph *g = e->numbers.graph;
    tri_value in[TRI_MAX_INPUTS];
    for (int i = 0; i < count; i++) {
        const char *name = tri_arena_printf(e->arena, "%s.%d.%d", op->name, g->node_count, i);
        in[i] = tri_input(g, name, TRI_F64, shapes[i]);
    }
    tri_node_add(g, op, in, count, attr, "");
    if (g->status != TRI_OK) return TRI_FAIL(g->status, "%s", g->message);
    const tri_node *node = &g->nodes[g->node_count - 1];
    TRI_TRY(tri_kernel_make(e->device, g, node, out));
    TRI_ASSERT(out->workspace_bytes == 0);
    return TRI_OK;
}

static int64_t row_count(const tri_engine *e, const tri_step_plan *step) {
    return (int64_t)step->rounds * (e->plan->deterministic ? e->plan->replicas : 1);
}

static tri_status make_step_kernels(tri_engine *e) {
    const tri_graph *g = e->plan->graph;
    const engine_numbers *n = &e->numbers;
    bool has_terms = g->term_count > 0;
    int first = has_terms ? g->first_term : 0;
    tri_step_numbers_attr attr = {.loss = tri_metric_offset(g, first),
                                  .losses = has_terms ? g->term_count : 1,
                                  .stride = TRI_METRIC_STRIDE,
                                  .count = tri_metric_offset(g, first) + 1,
                                  .loss_scale = e->loss_scale};
    if (has_terms && g->counting != TRI_COUNT_BEHIND) attr.count = -1;
    tri_shape step[] = {tri_shape_of(TRI_CARRIED_COUNT), tri_shape_of(TRI_STEP_CONTROL_COUNT),
                        tri_shape_of(n->width), tri_shape_of(1)};
    tri_shape seeds[] = {step[0], tri_shape_of(1 + g->term_count, 2)};
    TRI_TRY(
        engine_make_number_kernel(e, &tri_op_loss_seeds, NULL, seeds, 2, &e->numbers.make_seeds));
    return engine_make_number_kernel(e, &tri_op_step_numbers, &attr, step, 4,
                                     &e->numbers.make_step);
}

static tri_status allocate(tri_engine *e, int64_t count, double **out) {
    void *memory;
    TRI_TRY(e->device->backend->alloc(e->device, (size_t)count * sizeof(double), &memory));
    *out = memory;
    return TRI_OK;
}

static tri_status allocate_all(tri_engine *e) {
    engine_numbers *n = &e->numbers;
    int terms = e->plan->graph->term_count;
    double *seeds;
    TRI_TRY(allocate(e, n->capacity, &n->result_rows));
    n->total_at = n->width + TRI_MAX_CALLER_NUMBERS;
    n->scalars_at = n->total_at + 1;
    n->carried_at = n->scalars_at + TRI_STEP_SCALAR_COUNT;
    n->found_at = n->carried_at + TRI_CARRIED_COUNT;
    n->result_count = n->found_at + e->finders.count;
    TRI_TRY(allocate(e, n->result_count, &n->sums));
    TRI_TRY(allocate(e, TRI_STEP_CONTROL_COUNT, &n->control));
    TRI_TRY(allocate(e, 2 * (1 + terms), &n->losses));
    TRI_TRY(allocate(e, 1 + terms, &seeds));
    n->carried = n->sums + n->carried_at;
    n->seeds = (float *)seeds;
    e->memory.scalars[TRI_SCALAR_STEP] = n->sums + n->scalars_at;
    e->memory.scalars[TRI_SCALAR_SEED] = n->seeds;
    for (int i = 0; i < terms; i++) e->memory.scalars[TRI_SCALAR_TERM + i] = n->seeds + 1 + i;
    return TRI_OK;
}

tri_status engine_make_numbers(tri_engine *e) {
    engine_numbers *n = &e->numbers;
    const tri_plan *plan = e->plan;
    int64_t most_rows = 0;
    bool trains = false;
    n->graph = tri_graph_create(e->arena, &(tri_graph_options){.training = true});
    // A program without a loss has no metrics; its sums have the caller's numbers only.
    n->width = tri_metric_numbers(plan->graph, false);
    if (n->width == 0) n->width = TRI_METRIC_STRIDE;
    for (int i = 0; i < TRI_STEP_SHAPE_COUNT; i++) {
        int64_t rows = row_count(e, &plan->steps[i]);
        if (plan->steps[i].samples == 0) continue;
        if (rows > most_rows) most_rows = rows;
        trains = trains || tri_step_trains((tri_step_shape)i);
        TRI_TRY(engine_make_number_kernel(e, &tri_op_sum_rows, NULL,
                                          &(tri_shape){2, {rows, n->width}}, 1, &n->sum_rows[i]));
    }
    if (trains) {
        TRI_TRY(engine_make_finders(e));
        TRI_TRY(visit_ranges(e, add_range));
        if (plan->deterministic) n->square_count = count_chunks(e);
        TRI_TRY(engine_make_number_kernel(
            e, &tri_op_sum_rows, NULL, &(tri_shape){2, {n->square_count, 1}}, 1, &n->sum_squares));
        TRI_TRY(make_step_kernels(e));
    }
    // One more row of losses and metrics, which is not summed: tensor-parallel ranks after the
    // first write there, because their results equal those of the first, which must count only
    // once.
    n->capacity = (most_rows + 1) * n->width + TRI_MAX_CALLER_NUMBERS + n->square_count;
    TRI_TRY(engine_make_counts(e));
    return allocate_all(e);
}

void engine_release_numbers(tri_engine *e) {
    engine_numbers *n = &e->numbers;
    void *const memory[] = {n->result_rows, n->sums, n->control, n->losses, n->seeds, n->ranges};
    for (int i = 0; i < TRI_STEP_SHAPE_COUNT; i++) tri_kernel_release(&n->sum_rows[i]);
    tri_kernel_release(&n->sum_squares);
    tri_kernel_release(&n->make_step);
    tri_kernel_release(&n->make_seeds);
    engine_release_counts(e);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i]) e->device->backend->free(e->device, memory[i]);
}

char *engine_results(const tri_engine *e, int round) {
    const engine_numbers *n = &e->numbers;
    int64_t row = round;
    if (e->plan->deterministic)
        row = row * e->plan->replicas + tri_mesh_replica(&e->plan->mesh, e->plan->rank);
    // All tensor-parallel ranks have the same results, so only those of the first rank are summed.
    if (e->groups.tensor_parallel->rank > 0)
        return (char *)(n->result_rows + n->capacity - n->width);
    return (char *)(n->result_rows + row * n->width);
}

tri_status engine_begin_numbers(tri_engine *e) {
    engine_numbers *n = &e->numbers;
    const tri_step_input *in = e->run.input;
    const tri_device_backend *device = e->device->backend;
    int64_t rows = row_count(e, e->run.step);
    double *end = n->result_rows + rows * n->width;
    bool in_order = e->plan->deterministic;
    n->caller_numbers = in_order ? end : n->sums + n->width;
    n->squares = in_order ? end + TRI_MAX_CALLER_NUMBERS : end;
    int64_t used = rows * n->width + (in_order ? TRI_MAX_CALLER_NUMBERS + n->square_count : 0);
    TRI_TRY(device->zero(e->queue, n->result_rows, (size_t)used * sizeof(double)));
    TRI_TRY(engine_begin_counts(e));
    TRI_TRY(device->copy_in(e->queue, n->caller_numbers, in->caller_numbers,
                            sizeof in->caller_numbers));
    if (!tri_step_trains(in->shape)) return TRI_OK;
    double control[TRI_STEP_CONTROL_COUNT] = {
        [TRI_CONTROL_CLIP] = in->clip,
        [TRI_CONTROL_SAMPLES] = (double)e->run.step->samples,
        [TRI_CONTROL_NOMINAL] = engine_nominal_count(e),
        [TRI_CONTROL_UPDATES] = (double)e->carried.updates,
        [TRI_CONTROL_AVERAGE] = in->average_weight,
    };
    memcpy(control + TRI_CONTROL_RATES, in->lr, sizeof in->lr);
    return device->copy_in(e->queue, n->control, control, sizeof control);
}

static tri_comm_op sum_of(tri_dtype dtype, void *values, int64_t count, const char *label) {
    return (tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                         .reduction = TRI_REDUCE_SUM,
                         .dtype = dtype,
                         .count = count,
                         .send = values,
                         .recv = values,
                         .label = label};
}

tri_status engine_sum_over_ranks(tri_engine *e, const char *label, double *values, int64_t count) {
    if (e->groups.world->size == 1) return TRI_OK;
    tri_comm_op op = sum_of(TRI_F64, values, count, label);
    return tri_comm_run(e->groups.world, &op);
}

tri_status engine_reduce_numbers(tri_engine *e, double *values, int64_t count) {
    if (e->groups.world->size == 1) return TRI_OK;
    tri_comm_op op = sum_of(TRI_F64, values, count, "NORM");
    return engine_run_between(e, e->data.world, &op);
}

tri_status engine_run_numbers(tri_engine *e, const tri_kernel *kernel, void *const *in,
                              void *const *out) {
    return tri_kernel_run(kernel, &(tri_kernel_args){.queue = e->queue, .in = in, .out = out});
}

tri_status engine_sum_over_step(tri_engine *e, bool squared) {
    engine_numbers *n = &e->numbers;
    void *rows = n->result_rows, *sums = n->sums, *squares = n->squares;
    void *total = n->sums + n->total_at;
    const tri_kernel *sum_rows = &n->sum_rows[e->run.input->shape];
    for (int u = 0; squared && u < e->plan->flat.unit_count; u++)
        TRI_TRY(engine_run_range_kernels(e, &e->squares, u));
    if (e->plan->deterministic)
        TRI_TRY(engine_reduce_numbers(
            e, n->result_rows, n->squares - n->result_rows + (squared ? n->square_count : 0)));
    TRI_TRY(engine_run_numbers(e, sum_rows, &rows, &sums));
    if (squared) TRI_TRY(engine_run_numbers(e, &n->sum_squares, &squares, &total));
    if (e->plan->deterministic) return TRI_OK;
    return engine_reduce_numbers(e, n->sums, n->width + TRI_MAX_CALLER_NUMBERS + squared);
}

// Sums the gradients of which each tensor-parallel rank has only one term, because it was computed
// with that rank's slice of the layer. These are gradients of parameters that all of these ranks
// hold.
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
        tri_comm_op op = sum_of(TRI_F32, engine_own_gradients(e, unit, bucket),
                                flat->units[unit].buckets[bucket].own, flat->units[unit].name);
        TRI_TRY(engine_run_between(e, e->data.tensor_parallel, &op));
    }
    return TRI_OK;
}

tri_status engine_norm(tri_engine *e) {
    engine_numbers *n = &e->numbers;
    if (e->detects_anomaly) TRI_TRY(engine_agree_on_anomaly(e));
    TRI_TRY(sum_partial(e));
    TRI_TRY(engine_sum_over_step(e, true));
    void *in[] = {n->carried, n->control, n->sums, n->sums + n->total_at};
    void *out[] = {n->carried, n->sums + n->scalars_at};
    TRI_TRY(engine_run_numbers(e, &n->make_step, in, out));
    TRI_TRY(engine_send_scalars(e));
    return tri_engine_steps_ahead(e) > 0 ? engine_find_not_finite(e) : TRI_OK;
}
