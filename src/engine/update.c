// The actions STEP and PREPARE of a unit (parameters that are updated together). STEP runs the
// optimizer's op, PREPARE casts the new parameters to the half type that kernels read. Both work
// bucket by bucket: a bucket is a contiguous range with those parameters of the unit that have one
// role, type and placement. Of each bucket a rank updates its own range: its shard, or the whole
// bucket if ranks do not shard. This file also makes other kernels that run over the same ranges:
// for sums of squares, and the finders, which look for gradients that are not finite.
// Read next: offload.c.
#include "engine/kept.h"

static engine_args step_args(const tri_engine *e, const engine_range_kernel *r) {
    engine_args args = {.in = {engine_master(e, r->unit, r->bucket) + r->first,
                               engine_own_gradients(e, r->unit, r->bucket) + r->first,
                               e->memory.scalars[TRI_SCALAR_STEP]}};
    for (int i = 0; i < r->states; i++)
        args.in[3 + i] = engine_state(e, i, r->unit, r->bucket) + r->first;
    if (r->averages) {
        args.in[1] = args.in[0];
        args.in[0] = engine_state(e, e->optimizer.average, r->unit, r->bucket);
    }
    return args;
}

static engine_args cast_args(const tri_engine *e, const engine_range_kernel *r) {
    return (engine_args){.in = {engine_master(e, r->unit, r->bucket)},
                         .out = {engine_own(e, r->unit, r->bucket)}};
}

static engine_args squares_args(const tri_engine *e, const engine_range_kernel *r) {
    return (engine_args){.in = {engine_own_gradients(e, r->unit, r->bucket) + r->first},
                         .out = {e->numbers.squares + r->at}};
}

// Collects a finder's inputs: this rank's gradients of a bucket, the ranges in which it looks (one
// for each parameter), and the step scalars, which NORM computes once a step. These tell whether
// something in this step is not finite and ends the training; if not, the finder does nothing.
static engine_args finder_args(const tri_engine *e, const engine_range_kernel *r) {
    const engine_numbers *n = &e->numbers;
    int64_t index = r - e->finders.items;
    return (engine_args){.in = {engine_own_gradients(e, r->unit, r->bucket), n->ranges + 2 * r->at,
                                e->memory.scalars[TRI_SCALAR_STEP]},
                         .out = {n->sums + n->found_at + index}};
}

// Adds to the list a kernel for the last node of the list's graph, which the caller has just added.
static tri_status add(tri_engine *e, engine_range_kernels *list, engine_range_kernel range) {
    tri_graph *g = list->graph;
    engine_range_kernel *r = &list->items[list->count++];
    *r = range;
    if (g->status != TRI_OK) return TRI_FAIL(g->status, "%s", g->message);
    const tri_node *node = &g->nodes[g->node_count - 1];
    TRI_TRY(tri_kernel_make(list->queue->device, g, node, &r->kernel));
    // The plan has sized a workspace for the engine's device only. Kernels that run on the host's
    // CPU instead must need none.
    bool is_here = list->queue->device == e->device;
    TRI_ASSERT((int64_t)r->kernel.workspace_bytes <=
               (is_here ? e->plan->sizes.workspace_bytes : 0));
    return TRI_OK;
}

static tri_value input(tri_graph *g, int index, tri_dtype type, int64_t elements) {
    const char *name = tri_arena_printf(g->arena, "%d.%d", g->node_count, index);
    return tri_input(g, name, type, tri_shape_of(elements));
}

// Adds a kernel of STEP for `elements` elements of this rank's range of a bucket, from `first` on.
static tri_status add_step_kernel(tri_engine *e, const tri_op *op, const void *attr, int states,
                                  int unit, tri_bucket_kind bucket, int64_t first,
                                  int64_t elements) {
    if (elements <= 0) return TRI_OK;
    engine_range_kernels *list = &e->step_kernels;
    tri_graph *g = list->graph;
    tri_value in[TRI_MAX_INPUTS] = {{0}};
    for (int i = 0; i < 3 + states; i++)
        in[i] = i == 2 ? tri_scalar(g, TRI_SCALAR_STEP) : input(g, i, TRI_F32, elements);
    tri_node_add(g, op, in, 3 + states, attr, e->plan->flat.units[unit].name);
    return add(
        e, list,
        (engine_range_kernel){.unit = unit, .bucket = bucket, .first = first, .states = states});
}

// Adds the kernels for the statistics (running averages of batch norm) of a unit (parameters that
// are updated together). Each statistic has its own momentum, which is an attribute of the op, so
// each needs a kernel of its own.
static tri_status add_statistics(tri_engine *e, int unit) {
    const tri_graph *g = e->plan->graph;
    const tri_flat *flat = &e->plan->flat;
    int64_t own = flat->units[unit].buckets[TRI_BUCKET_STATISTIC].own;
    if (own == 0) return TRI_OK;
    int64_t start = own * e->plan->sharing.shard;
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_flat_parameter *p = &flat->parameters[i];
        if (p->unit != unit || p->bucket != TRI_BUCKET_STATISTIC) continue;
        int64_t from = p->offset > start ? p->offset : start, to = p->offset + p->elements;
        if (to > start + own) to = start + own;
        tri_moving_average_attr attr = {.momentum = g->parameters[i].momentum};
        TRI_TRY(add_step_kernel(e, &tri_op_moving_average, &attr, 0, unit, TRI_BUCKET_STATISTIC,
                                from - start, to - from));
    }
    return TRI_OK;
}

// Adds the kernels that update a bucket: one for each group of parameters in it, whose attributes
// differ, and behind them one that averages the new parameters.
static tri_status add_updates(tri_engine *e, int unit, tri_bucket_kind bucket) {
    const tri_graph *g = e->plan->graph;
    const tri_flat *flat = &e->plan->flat;
    const tri_optimizer *o = &e->optimizer;
    const tri_flat_bucket *b = &flat->units[unit].buckets[bucket];
    int64_t start = b->own * e->plan->sharing.shard, end = start + b->own;
    for (int group = 0; group <= o->group_count && b->own > 0; group++) {
        // The group's parameters are followed by those of a later group, or by padding.
        int64_t from = b->elements, to = b->elements;
        for (int i = 0; i < g->parameter_count; i++) {
            const tri_flat_parameter *p = &flat->parameters[i];
            if (p->unit != unit || p->bucket != bucket) continue;
            int of = g->parameters[i].group;
            if (of == group && p->offset < from) from = p->offset;
            if (of > group && p->offset < to) to = p->offset;
        }
        if (from < start) from = start;
        if (to > end) to = end;
        TRI_TRY(add_step_kernel(e, o->op, &o->attrs[group], o->op_states, unit, bucket,
                                from - start, to - from));
    }
    if (b->own == 0 || !tri_optimizer_averages(o)) return TRI_OK;
    TRI_TRY(add_step_kernel(e, &tri_op_average_weights, NULL, 0, unit, bucket, 0, b->own));
    e->step_kernels.items[e->step_kernels.count - 1].averages = true;
    return TRI_OK;
}

static tri_status add_cast(tri_engine *e, engine_range_kernels *list, int unit,
                           tri_bucket_kind bucket) {
    int64_t own = e->plan->flat.units[unit].buckets[bucket].own;
    if (own == 0 || !tri_bucket_is_half(bucket) || !engine_has_masters(e, bucket)) return TRI_OK;
    tri_graph *g = list->graph;
    tri_value x = input(g, 0, TRI_F32, own);
    tri_cast_attr attr = {.dtype = e->plan->flat.half_dtype};
    tri_node_add(g, &tri_op_cast, &x, 1, &attr, e->plan->flat.units[unit].name);
    return add(e, list, (engine_range_kernel){.unit = unit, .bucket = bucket});
}

// Makes an empty list, with room for all kernels that can be added. They will run on `queue`, whose
// device may be the host's CPU instead of the engine's device.
static void start_list(tri_engine *e, engine_range_kernels *list, tri_queue *queue,
                       engine_args (*args)(const tri_engine *engine,
                                           const engine_range_kernel *range)) {
    const tri_flat *flat = &e->plan->flat;
    tri_graph_options options = {.training = true};
    int most = 2 * flat->unit_count * TRI_BUCKET_COUNT + flat->parameter_count;
    list->queue = queue;
    list->args = args;
    list->graph = tri_graph_create(e->arena, &options);
    list->items = TRI_NEW_ARRAY(e->arena, engine_range_kernel, most);
    list->first = TRI_NEW_ARRAY(e->arena, int, flat->unit_count + 1);
}

tri_status engine_make_range_kernels(tri_engine *e) {
    const tri_flat *flat = &e->plan->flat;
    bool on_host = e->host.device;
    start_list(e, &e->step_kernels, on_host ? e->host.queue : e->queue,
               on_host ? engine_host_step_args : step_args);
    start_list(e, &e->casts, e->queue, cast_args);
    start_list(e, &e->host.casts, e->host.queue, engine_host_cast_args);
    start_list(e, &e->squares, e->queue, squares_args);
    start_list(e, &e->finders, e->queue, finder_args);
    engine_range_kernels *const lists[] = {&e->step_kernels, &e->casts, &e->host.casts};
    for (int u = 0; u < flat->unit_count; u++) {
        for (int i = 0; i < 3; i++) lists[i]->first[u] = lists[i]->count;
        if (!flat->units[u].here) continue;
        for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
            tri_bucket_kind bucket = (tri_bucket_kind)k;
            TRI_TRY(add_cast(e, &e->casts, u, bucket));
            if (on_host && tri_bucket_is_trained(bucket))
                TRI_TRY(add_cast(e, &e->host.casts, u, bucket));
            if (tri_bucket_is_trained(bucket)) TRI_TRY(add_updates(e, u, bucket));
        }
        TRI_TRY(add_statistics(e, u));
    }
    for (int i = 0; i < 3; i++) lists[i]->first[flat->unit_count] = lists[i]->count;
    return TRI_OK;
}

// Sets where in the list the kernels of the units after `unit` begin. Called after a kernel of
// `unit` (parameters that are updated together) was added. Kernels are added unit by unit, so those
// of every later unit begin behind this one. `first` of all later units is set at once, because for
// a unit without kernels this is not called.
static void end_unit(const tri_engine *e, engine_range_kernels *list, int unit) {
    for (int u = unit; u < e->plan->flat.unit_count; u++) list->first[u + 1] = list->count;
}

tri_status engine_add_finder(tri_engine *e, engine_range_kernel range, int64_t elements,
                             int64_t ranges) {
    tri_graph *g = e->finders.graph;
    tri_value in[] = {input(g, 0, TRI_F32, elements),
                      tri_input(g, tri_arena_printf(g->arena, "%d.ranges", g->node_count), TRI_I64,
                                tri_shape_of(ranges, 2)),
                      tri_scalar(g, TRI_SCALAR_STEP)};
    tri_node_add(g, &tri_op_first_not_finite, in, 3, NULL, e->plan->flat.units[range.unit].name);
    TRI_TRY(add(e, &e->finders, range));
    end_unit(e, &e->finders, range.unit);
    return TRI_OK;
}

tri_status engine_add_squares(tri_engine *e, const tri_sum_of_squares_attr *attr,
                              engine_range_kernel range, int64_t elements) {
    tri_graph *g = e->squares.graph;
    tri_value x = input(g, 0, TRI_F32, elements);
    tri_node_add(g, &tri_op_sum_of_squares, &x, 1, attr, e->plan->flat.units[range.unit].name);
    TRI_TRY(add(e, &e->squares, range));
    end_unit(e, &e->squares, range.unit);
    return TRI_OK;
}

tri_status engine_run_range_kernels(tri_engine *e, const engine_range_kernels *list, int unit) {
    for (int i = list->first[unit]; i < list->first[unit + 1]; i++) {
        engine_range_kernel *r = &list->items[i];
        engine_args args = list->args(e, r);
        TRI_TRY(tri_kernel_run(&r->kernel, &(tri_kernel_args){.queue = list->queue,
                                                              .in = args.in,
                                                              .out = args.out,
                                                              .workspace = e->memory.workspace}));
    }
    return TRI_OK;
}

void engine_release_range_kernels(engine_range_kernels *list) {
    for (int i = 0; i < list->count; i++) tri_kernel_release(&list->items[i].kernel);
}
