// The training state by name: what checkpoints read and write, and initial weights. Checkpoints
// contain whole tensors, row-major. In the engine, tensors lie in buckets: contiguous ranges of
// memory, each with the parameters of one unit (parameters that are gathered together) that have
// one role, type and placement, or with one optimizer state of them. A rank may have only its shard
// of a bucket, only a tensor-parallel slice of a tensor, a tensor in a blocked layout, or state
// that is offloaded to storage. Elements that the host cannot read or write in place pass through
// staging memory of the host (engine_staging), one bucket at a time.
//
// All of this happens between steps. Read next: checkpoint/manifest.c when saving; train/scale.c
// when resuming.
#include "base/parallel.h"
#include "engine/initial.h"
#include "engine/kept.h"
#include "tensor/half.h"

#include <stdlib.h>
#include <string.h>

enum { COPY_ELEMENTS = 4096 };

static tri_shape full_shape(const tri_parameter_info *parameter) {
    tri_parameter_info p = tri_parameter_stored(parameter);
    return p.slice.count ? p.slice.full : p.shape;
}

static tri_engine_tensor describe(const tri_engine *e, int parameter) {
    const tri_parameter_info *p = &e->plan->graph->parameters[parameter];
    tri_bucket_kind bucket = e->plan->flat.parameters[parameter].bucket;
    bool is_counter = p->role == TRI_ROLE_COUNTER;
    return (tri_engine_tensor){.name = p->name,
                               .dtype = p->dtype,
                               .kept = is_counter ? p->dtype
                                                  : engine_kept_dtype(e, bucket, TRI_STATE_MASTERS),
                               .shape = full_shape(p),
                               .role = p->role,
                               .parameter = parameter,
                               .state = TRI_STATE_MASTERS,
                               .alias = p->alias,
                               .is_adapter = p->adapts != 0};
}

void engine_list_tensors(tri_engine *e) {
    const tri_graph *g = e->plan->graph;
    e->tensors.model = TRI_NEW_ARRAY(e->arena, tri_engine_tensor, g->parameter_count);
    e->tensors.optimizer =
        TRI_NEW_ARRAY(e->arena, tri_engine_tensor, g->parameter_count * e->optimizer.op_states);
    for (int i = 0; i < g->parameter_count; i++)
        if (g->parameters[i].role != TRI_ROLE_CONSTANT)
            e->tensors.model[e->tensors.model_count++] = describe(e, i);
    if (tri_optimizer_averages(&e->optimizer)) {
        e->tensors.average_count = e->tensors.model_count;
        e->tensors.average = TRI_NEW_ARRAY(e->arena, tri_engine_tensor, e->tensors.model_count);
        for (int i = 0; i < e->tensors.model_count; i++) {
            e->tensors.average[i] = e->tensors.model[i];
            if (e->tensors.model[i].role == TRI_ROLE_TRAINED)
                e->tensors.average[i].state = e->optimizer.average;
        }
    }
    for (int s = 0; s < e->optimizer.op_states; s++)
        for (int i = 0; i < g->parameter_count; i++) {
            const tri_parameter_info *p = &g->parameters[i];
            if (p->role != TRI_ROLE_TRAINED) continue;
            const char *name =
                tri_arena_printf(e->arena, "%s.%s", p->name, e->optimizer.state_names[s]);
            e->tensors.optimizer[e->tensors.optimizer_count++] =
                (tri_engine_tensor){.name = name,
                                    .dtype = TRI_F32,
                                    .kept = TRI_F32,
                                    .shape = full_shape(p),
                                    .role = p->role,
                                    .parameter = i,
                                    .state = s};
        }
}

int tri_engine_model_tensors(const tri_engine *engine, const tri_engine_tensor **out) {
    *out = engine->tensors.model;
    return engine->tensors.model_count;
}

int tri_engine_optimizer_tensors(const tri_engine *engine, const tri_engine_tensor **out) {
    *out = engine->tensors.optimizer;
    return engine->tensors.optimizer_count;
}

int tri_engine_average_tensors(const tri_engine *engine, const tri_engine_tensor **out) {
    *out = engine->tensors.average;
    return engine->tensors.average_count;
}

// What one fetch brings: the whole bucket in which a tensor lies, or one of the bucket's states.
// Fetching a bucket takes one all-gather, and the next tensors of a checkpoint mostly lie in the
// same bucket.
typedef struct whole {
    int unit, bucket, state;
    tri_dtype kept;
    int64_t elements;
    int64_t own_elements; // elements in this rank's range
} whole;

static whole whole_of(const tri_engine *e, const tri_engine_tensor *tensor) {
    const tri_flat_parameter *p = &e->plan->flat.parameters[tensor->parameter];
    const tri_flat_bucket *b = &e->plan->flat.units[p->unit].buckets[p->bucket];
    return (whole){.unit = p->unit,
                   .bucket = (int)p->bucket,
                   .state = tensor->state,
                   .kept = tensor->kept,
                   .elements = b->elements,
                   .own_elements = b->own};
}

static bool is_staged(const tri_engine *e, const whole *w) {
    return e->staging.unit == w->unit && e->staging.bucket == w->bucket &&
           e->staging.state == w->state;
}

// Whether the host can read and write the elements in their final memory, without staging memory:
// this rank holds all of them, in memory that the host can use.
static bool is_direct(const tri_engine *e, const whole *w) {
    return e->plan->sharing.shards == 1 && e->device->backend->host_memory &&
           !engine_is_offloaded(e, (tri_bucket_kind)w->bucket, w->state);
}

// Where the tensor's elements lie, in their final memory or in the staging memory.
static char *address_in(const tri_engine *e, const whole *w, const tri_engine_tensor *tensor) {
    char *bucket = is_direct(e, w) ? engine_kept(e, w->unit, (tri_bucket_kind)w->bucket, w->state)
                                   : (char *)e->staging.memory;
    return bucket + e->plan->flat.parameters[tensor->parameter].offset *
                        (int64_t)tri_dtype_bytes(tensor->kept);
}

static bool holds(const tri_engine *e, const tri_engine_tensor *tensor) {
    if (tensor->role == TRI_ROLE_COUNTER) {
        int block = e->plan->graph->parameters[tensor->parameter].block;
        return e->plan->stages.blocks_here[block];
    }
    return e->plan->flat.units[e->plan->flat.parameters[tensor->parameter].unit].here;
}

// The parameter as files have it, so that its elements are numbered as there.
static tri_parameter_info parameter_of(const tri_engine *e, const tri_engine_tensor *tensor) {
    return tri_parameter_stored(&e->plan->graph->parameters[tensor->parameter]);
}

// Finds which elements of its slice of the tensor this rank holds: of a bucket that ranks share,
// those in its own range. In a layout that is not row-major, all count if one does.
static void held_range(const tri_engine *e, const tri_engine_tensor *tensor, int64_t *first,
                       int64_t *end) {
    const tri_flat_parameter *flat = &e->plan->flat.parameters[tensor->parameter];
    const tri_parameter_info p = parameter_of(e, tensor);
    int64_t own = whole_of(e, tensor).own_elements;
    int64_t start = own * e->plan->sharing.shard - flat->offset;
    bool is_held = holds(e, tensor) && start + own > 0 && start < flat->elements;
    *first = 0;
    *end = is_held ? tri_shape_count(&p.shape) : 0;
    if (e->plan->sharing.shards == 1 || !tri_layout_is_plain(&p.layout)) return;
    if (*first < start) *first = start;
    if (*end > start + own) *end = start + own;
}

int64_t tri_engine_next_held(const tri_engine *e, const tri_engine_tensor *tensor, int64_t at,
                             int64_t *count) {
    int64_t total = tri_shape_count(&tensor->shape), first, end, local;
    *count = 0;
    if (tensor->role == TRI_ROLE_COUNTER) {
        if (holds(e, tensor)) *count = total - at;
        return at;
    }
    const tri_parameter_info p = parameter_of(e, tensor);
    held_range(e, tensor, &first, &end);
    for (int64_t some; at < total; at += some) {
        bool is_mine = tri_parameter_locate(&p.slice, &p.shape, at, &local, &some) == p.slice.index;
        if (!is_mine || local + some <= first || local >= end) continue;
        int64_t before = local < first ? first - local : 0;
        *count = (local + some < end ? some : end - local) - before;
        return at + before;
    }
    return total;
}

int tri_engine_holders(const tri_engine *e, const tri_engine_tensor *tensor, int *index) {
    const tri_plan *plan = e->plan;
    int stage_ranks = plan->mesh.ranks / plan->mesh.size[TRI_AXIS_PIPELINE];
    int pipeline_rank = tri_mesh_coordinate(&plan->mesh, plan->rank, TRI_AXIS_PIPELINE), first;
    if (tensor->role == TRI_ROLE_COUNTER)
        first = plan->stages.of_block[plan->graph->parameters[tensor->parameter].block] %
                plan->mesh.size[TRI_AXIS_PIPELINE];
    else
        first = plan->units[plan->flat.parameters[tensor->parameter].unit].first_holder;
    // The ranks of a stage are consecutive, because the pipeline is the mesh's outermost axis.
    *index = pipeline_rank == first ? plan->rank - pipeline_rank * stage_ranks : -1;
    return stage_ranks;
}

static void *own_in_staging(const tri_engine *e, const whole *w) {
    return (char *)e->staging.memory +
           w->own_elements * e->plan->sharing.shard * (int64_t)tri_dtype_bytes(w->kept);
}

// Puts this rank's range of the bucket or state `w` into the staging memory, at the offset where an
// all-gather puts it. If the staging memory holds writes to another bucket, these are first copied
// to where they belong.
static tri_status stage(tri_engine *e, const whole *w) {
    TRI_TRY(engine_flush_staging(e));
    TRI_TRY(engine_reserve_staging(e, w->elements));
    TRI_TRY(engine_read_own(e, w->unit, (tri_bucket_kind)w->bucket, w->state, 0, w->own_elements,
                            own_in_staging(e, w)));
    e->staging.unit = w->unit;
    e->staging.bucket = w->bucket;
    e->staging.state = w->state;
    return TRI_OK;
}

static tri_status fetch_shards(tri_engine *e, const tri_engine_tensor *tensor) {
    whole w = whole_of(e, tensor);
    if (is_direct(e, &w)) return TRI_OK;
    TRI_ASSERT(holds(e, tensor));
    // After a write only this rank's range in the staging memory is up to date. So the range is
    // copied to where it belongs, and then all ranges are gathered.
    TRI_TRY(engine_flush_staging(e));
    if (is_staged(e, &w)) return TRI_OK;
    TRI_TRY(stage(e, &w));
    if (e->groups.shards->size == 1) return TRI_OK;
    tri_comm_op op = {.kind = TRI_COMM_ALL_GATHER,
                      .dtype = w.kept,
                      .count = w.own_elements,
                      .send = own_in_staging(e, &w),
                      .recv = e->staging.memory,
                      .label = tensor->name};
    return tri_comm_run(e->groups.shards, &op);
}

// Copies elements of this rank's slice of the tensor, in row-major order.
static void read_slice(const tri_engine *e, const tri_engine_tensor *tensor, int64_t first,
                       int64_t count, void *to) {
    const tri_parameter_info p = parameter_of(e, tensor);
    whole w = whole_of(e, tensor);
    TRI_ASSERT(is_direct(e, &w) || is_staged(e, &w));
    const char *from = engine_mapped_values(e, tensor->parameter);
    if (!from) from = address_in(e, &w, tensor);
    tri_layout_to_plain(&p.layout, &p.shape, tri_dtype_bytes(tensor->kept), from, to, first, count);
}

// Gathers the slices of all tensor-parallel ranks, one after the other, as an all-gather writes
// them. tri_engine_read finds each element in them.
static tri_status fetch_slices(tri_engine *e, const tri_engine_tensor *tensor) {
    const tri_parameter_info p = parameter_of(e, tensor);
    int64_t slice_elements = tri_shape_count(&p.shape);
    int64_t full_elements = slice_elements * p.slice.count;
    if (full_elements == 0) return TRI_OK;
    TRI_TRY(engine_reserve_joined(e, full_elements));
    char *mine = (char *)e->staging.joined +
                 slice_elements * p.slice.index * (int64_t)tri_dtype_bytes(tensor->kept);
    read_slice(e, tensor, 0, slice_elements, mine);
    tri_comm_op op = {.kind = TRI_COMM_ALL_GATHER,
                      .dtype = tensor->kept,
                      .count = slice_elements,
                      .send = mine,
                      .recv = e->staging.joined,
                      .label = tensor->name};
    return tri_comm_run(e->groups.tensor_parallel, &op);
}

tri_status tri_engine_fetch(tri_engine *e, const tri_engine_tensor *tensor) {
    TRI_ASSERT(e->flights.count == 0);
    if (tensor->role == TRI_ROLE_COUNTER) return TRI_OK;
    TRI_TRY(fetch_shards(e, tensor));
    return fetch_slices(e, tensor);
}

tri_status engine_flush_staging(tri_engine *e) {
    if (e->staging.unit < 0 || !e->staging.is_new) return TRI_OK;
    e->staging.is_new = false;
    tri_bucket_kind bucket = (tri_bucket_kind)e->staging.bucket;
    int unit = e->staging.unit;
    whole w = {.own_elements = e->plan->flat.units[unit].buckets[bucket].own,
               .kept = engine_kept_dtype(e, bucket, e->staging.state)};
    e->staging.unit = -1;
    return engine_write_own(e, unit, bucket, e->staging.state, 0, w.own_elements,
                            own_in_staging(e, &w));
}

void tri_engine_read(const tri_engine *engine, const tri_engine_tensor *tensor, int64_t first,
                     int64_t count, void *to) {
    const tri_parameter_info p = parameter_of(engine, tensor);
    int64_t width = (int64_t)tri_dtype_bytes(tensor->kept);
    if (count == 0) return;
    if (tensor->role == TRI_ROLE_COUNTER) {
        memcpy(to, &engine->tensors.counters[tensor->parameter], sizeof(int64_t));
        return;
    }
    if (p.slice.count == 0) {
        read_slice(engine, tensor, first, count, to);
        return;
    }
    int64_t slice_elements = tri_shape_count(&p.shape);
    for (int64_t at = 0, some, local; at < count; at += some) {
        int index = tri_parameter_locate(&p.slice, &p.shape, first + at, &local, &some);
        if (some > count - at) some = count - at;
        memcpy((char *)to + at * width,
               (const char *)engine->staging.joined + (index * slice_elements + local) * width,
               (size_t)(some * width));
    }
}

// Finds where to set elements of this rank's slice of the tensor, in its layout: in their final
// memory if possible, else in the staging memory.
static tri_status address_of_slice(tri_engine *engine, const tri_engine_tensor *tensor,
                                   char **out) {
    engine->is_stale = true;
    engine_unmap(engine, tensor->parameter);
    whole w = whole_of(engine, tensor);
    bool direct = is_direct(engine, &w);
    if (!direct && !is_staged(engine, &w)) TRI_TRY(stage(engine, &w));
    if (!direct) engine->staging.is_new = true;
    *out = address_in(engine, &w, tensor);
    return TRI_OK;
}

static tri_status write_slice(tri_engine *engine, const tri_engine_tensor *tensor, int64_t first,
                              int64_t count, const void *from) {
    const tri_parameter_info p = parameter_of(engine, tensor);
    char *to;
    TRI_TRY(address_of_slice(engine, tensor, &to));
    tri_layout_from_plain(&p.layout, &p.shape, tri_dtype_bytes(tensor->kept), from, to, first,
                          count);
    return TRI_OK;
}

tri_status tri_engine_write(tri_engine *engine, const tri_engine_tensor *tensor, int64_t first,
                            int64_t count, const void *from) {
    const tri_parameter_info p = parameter_of(engine, tensor);
    int64_t width = (int64_t)tri_dtype_bytes(tensor->kept);
    TRI_ASSERT(engine->flights.count == 0);
    if (count == 0 || !holds(engine, tensor)) return TRI_OK;
    if (tensor->role == TRI_ROLE_COUNTER) {
        memcpy(&engine->tensors.counters[tensor->parameter], from, sizeof(int64_t));
        return TRI_OK;
    }
    for (int64_t at = 0, some, local; at < count; at += some) {
        int index = tri_parameter_locate(&p.slice, &p.shape, first + at, &local, &some);
        if (some > count - at) some = count - at;
        if (index == p.slice.index)
            TRI_TRY(write_slice(engine, tensor, local, some, (const char *)from + at * width));
    }
    return TRI_OK;
}

// Initial weights of this rank's slice of a parameter, which threads fill together.
typedef struct initial {
    const tri_parameter_info *parameter;
    engine_initial values;
    int64_t first; // the first element that is wanted, of the slice
    tri_dtype kept;
    void *to; // the slice, in its layout and the type `kept`
} initial;

// Makes `count` elements of the slice, from element `first` on. Runs of them lie side by side in
// the full parameter.
static void make_slice(const initial *f, int64_t first, int64_t count, float *out) {
    const tri_parameter_info *p = f->parameter;
    int64_t run = tri_parameter_run(&p->slice, &p->shape);
    for (int64_t i = 0, some; i < count; i += some) {
        some = run - (first + i) % run;
        if (some > count - i) some = count - i;
        engine_initial_make(&f->values, tri_parameter_full_index(&p->slice, &p->shape, first + i),
                            some, out + i);
    }
}

static void fill_range(void *context, int64_t first, int64_t end) {
    const initial *f = context;
    const tri_parameter_info *p = f->parameter;
    float values[COPY_ELEMENTS];
    uint16_t halves[COPY_ELEMENTS];
    bool is_half = tri_dtype_is_half(f->kept);
    for (int64_t at = f->first + first, some; at < f->first + end; at += some) {
        some = f->first + end - at < COPY_ELEMENTS ? f->first + end - at : COPY_ELEMENTS;
        make_slice(f, at, some, values);
        if (is_half) tri_half_narrow(f->kept, values, halves, some);
        tri_layout_from_plain(&p->layout, &p->shape, tri_dtype_bytes(f->kept),
                              is_half ? (const void *)halves : values, f->to, at, some);
    }
}

static tri_status initialize_tensor(tri_engine *e, const tri_engine_tensor *tensor, uint64_t seed) {
    enum { GRAIN = 16384 }; // making so many elements takes longer than starting a thread
    const tri_parameter_info p = parameter_of(e, tensor);
    if (tensor->role == TRI_ROLE_COUNTER || !holds(e, tensor)) return TRI_OK;
    initial f = {.parameter = &p, .kept = tensor->kept};
    char *to;
    int64_t end;
    held_range(e, tensor, &f.first, &end);
    if (f.first >= end) return TRI_OK;
    TRI_TRY(address_of_slice(e, tensor, &to));
    f.to = to;
    TRI_TRY(engine_initial_begin(&p, seed, &f.values));
    tri_parallel_for(tri_parallel_threads(), end - f.first, GRAIN, fill_range, &f);
    engine_initial_end(&f.values);
    return TRI_OK;
}

tri_status tri_engine_initialize(tri_engine *engine, uint64_t seed) {
    engine->is_stale = true;
    for (int i = 0; i < engine->tensors.model_count; i++) {
        engine->tensors.counters[engine->tensors.model[i].parameter] = 0;
        TRI_TRY(initialize_tensor(engine, &engine->tensors.model[i], seed));
    }
    return engine_flush_staging(engine);
}

tri_status engine_make_constants(tri_engine *e) {
    const tri_graph *g = e->plan->graph;
    for (int i = 0; i < g->parameter_count; i++) {
        if (g->parameters[i].role != TRI_ROLE_CONSTANT) continue;
        tri_engine_tensor tensor = describe(e, i);
        TRI_TRY(initialize_tensor(e, &tensor, 0));
    }
    return engine_flush_staging(e);
}

enum { EXCHANGED_AT_ONCE = 1 << 18 };

static void exchange_range(void *context, int64_t first, int64_t end) {
    float *const *both = context;
    for (int64_t i = first; i < end; i++) {
        float kept = both[0][i];
        both[0][i] = both[1][i];
        both[1][i] = kept;
    }
}

static tri_status exchange_in_host(tri_engine *e, int unit, tri_bucket_kind bucket, int64_t own) {
    int64_t most = own < EXCHANGED_AT_ONCE ? own : EXCHANGED_AT_ONCE;
    int state = e->optimizer.average;
    TRI_TRY(engine_reserve_staging(e, 2 * most));
    float *masters = e->staging.memory, *averages = masters + most;
    for (int64_t first = 0, count; first < own; first += count) {
        count = own - first < most ? own - first : most;
        TRI_TRY(engine_read_own(e, unit, bucket, TRI_STATE_MASTERS, first, count, masters));
        TRI_TRY(engine_read_own(e, unit, bucket, state, first, count, averages));
        TRI_TRY(engine_write_own(e, unit, bucket, TRI_STATE_MASTERS, first, count, averages));
        TRI_TRY(engine_write_own(e, unit, bucket, state, first, count, masters));
    }
    return TRI_OK;
}

tri_status tri_engine_exchange_averages(tri_engine *e) {
    enum { GRAIN = 65536 };
    TRI_ASSERT(e->flights.count == 0 && tri_optimizer_averages(&e->optimizer));
    TRI_TRY(engine_flush_staging(e));
    e->staging.unit = -1; // what it holds is exchanged below
    e->is_stale = true;
    for (int u = 0; u < e->plan->flat.unit_count; u++)
        for (int k = 0; k < TRI_BUCKET_COUNT && e->plan->flat.units[u].here; k++) {
            tri_bucket_kind bucket = (tri_bucket_kind)k;
            int64_t own = e->plan->flat.units[u].buckets[k].own;
            if (own == 0 || !tri_bucket_is_trained(bucket)) continue;
            if (!e->device->backend->host_memory || e->plan->offload.set.states > 0) {
                TRI_TRY(exchange_in_host(e, u, bucket, own));
                continue;
            }
            float *both[] = {engine_master(e, u, bucket),
                             engine_state(e, e->optimizer.average, u, bucket)};
            tri_parallel_for(tri_parallel_threads(), own, GRAIN, exchange_range, both);
        }
    return TRI_OK;
}

void tri_engine_count_update(tri_engine *engine) {
    for (int i = 0; i < engine->plan->graph->parameter_count; i++)
        if (engine->plan->graph->parameters[i].role == TRI_ROLE_COUNTER)
            engine->tensors.counters[i]++;
}
