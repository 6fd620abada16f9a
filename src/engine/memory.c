// The engine's memory: allocates everything whose size the plan has computed, once, when the engine
// is made, so that steps allocate nothing. It also tells where in this memory a bucket lies.
//
// A unit is parameters that are gathered, reduced and updated together. A bucket is the part of a
// unit that has one role, type and placement: a contiguous range, padded so that each shard of it
// has the same number of elements. This rank's range of a bucket is its shard, or all of it if
// ranks do not shard. A heap is memory in which buffers lie only during a part of the step. A slot
// is the entry of a table that says where a buffer lies now.
#include "engine/kept.h"

#include <stdlib.h>

static tri_status allocate(tri_engine *e, int64_t size_bytes, void *out) {
    void **slot = out;
    if (size_bytes == 0) return TRI_OK;
    return e->device->backend->alloc(e->device, (size_t)size_bytes, slot);
}

// Returns the communicator that allocates the memory from which ranks send and to which they
// receive, because operations are fastest in memory that a communicator allocated. If the host can
// use the device's memory, this is a control communicator (one for the host's memory): the ranks of
// a host share the memory that it allocates.
static tri_comm *memory_of(const tri_engine *e) {
    return e->device->backend->host_memory ? e->groups.memory : e->data.world;
}

static tri_status allocate_shared(tri_engine *e, int64_t size_bytes, void *out) {
    void **slot = out;
    tri_comm *comm = memory_of(e);
    return size_bytes ? comm->backend->alloc(comm, (size_t)size_bytes, slot) : TRI_OK;
}

static void release(tri_engine *e, void *memory) {
    if (memory) e->device->backend->free(e->device, memory);
}

static void release_shared(tri_engine *e, void *memory) {
    if (memory) memory_of(e)->backend->free(memory_of(e), memory);
}

// Whether steps gather parameters. If so, GATHER sends from the memory of the parameters, and a
// communicator allocates it: on the CPU as memory that the ranks of a host share. If not, it is
// memory of this process alone, which kernels read faster, because systems seldom have huge pages
// for shared memory.
static bool sends_parameters(const tri_engine *e) {
    return e->plan->effective_strategy->shards_optimizer && e->plan->sharing.shards > 1;
}

static tri_status allocate_parameters(tri_engine *e, int64_t size_bytes, void *out) {
    return sends_parameters(e) ? allocate_shared(e, size_bytes, out) : allocate(e, size_bytes, out);
}

static void release_parameters(tri_engine *e, void *memory) {
    if (sends_parameters(e))
        release_shared(e, memory);
    else
        release(e, memory);
}

// Whether a communicator allocates the memory of activations. It does if ranks send each other
// activations and the host cannot use the device's memory. If the host can use the device's memory,
// sending activations from memory of a communicator is no faster.
static bool sends_activations(const tri_engine *e) {
    const int *size = e->plan->mesh.size;
    return !e->device->backend->host_memory &&
           (size[TRI_AXIS_PIPELINE] > 1 || size[TRI_AXIS_TENSOR_PARALLEL] > 1);
}

static tri_status allocate_activations(tri_engine *e, int64_t size_bytes, void *out) {
    return sends_activations(e) ? allocate_shared(e, size_bytes, out)
                                : allocate(e, size_bytes, out);
}

static void release_activations(tri_engine *e, void *memory) {
    if (sends_activations(e))
        release_shared(e, memory);
    else
        release(e, memory);
}

tri_dtype engine_bucket_dtype(const tri_engine *e, tri_bucket_kind bucket) {
    return tri_bucket_is_half(bucket) ? e->plan->flat.half_dtype : TRI_F32;
}

static const tri_flat_bucket *bucket_of(const tri_engine *e, int unit, tri_bucket_kind bucket) {
    return &e->plan->flat.units[unit].buckets[bucket];
}

// The first element of this rank's range of a bucket. The ranges of all shards have the same length
// and lie in the order of the shards.
static int64_t own_start(const tri_engine *e, const tri_flat_bucket *p) {
    return p->own * e->plan->sharing.shard;
}

// The first element of this rank's range of a bucket, in the buffer of parameters. If whole
// parameters are released after use, that buffer contains only this rank's ranges, one after the
// other.
static int64_t own_offset(const tri_engine *e, const tri_flat_bucket *p) {
    return e->plan->sharing.releases ? p->own_offset : p->offset + own_start(e, p);
}

void *engine_own(const tri_engine *e, int unit, tri_bucket_kind bucket) {
    if (!tri_bucket_is_half(bucket)) return engine_master(e, unit, bucket);
    return e->memory.half_parameters + own_offset(e, bucket_of(e, unit, bucket)) *
                                           (int64_t)tri_dtype_bytes(e->plan->flat.half_dtype);
}

float *engine_master(const tri_engine *e, int unit, tri_bucket_kind bucket) {
    return (float *)e->memory.slots[tri_slot_masters(unit, bucket)];
}

bool engine_has_masters(const tri_engine *e, tri_bucket_kind bucket) {
    return e->plan->trains || !tri_bucket_is_half(bucket);
}

tri_dtype engine_kept_dtype(const tri_engine *e, tri_bucket_kind bucket, int state) {
    bool is_half = state == TRI_STATE_MASTERS && !engine_has_masters(e, bucket);
    return is_half ? e->plan->flat.half_dtype : TRI_F32;
}

void *engine_kept(const tri_engine *e, int unit, tri_bucket_kind bucket, int state) {
    if (state != TRI_STATE_MASTERS) return engine_state(e, state, unit, bucket);
    return engine_has_masters(e, bucket) ? engine_master(e, unit, bucket)
                                         : engine_own(e, unit, bucket);
}

float *engine_own_gradients(const tri_engine *e, int unit, tri_bucket_kind bucket) {
    const tri_flat_bucket *p = bucket_of(e, unit, bucket);
    if (e->plan->sharing.scatters_rounds) return e->memory.own_gradients + p->gradient_own_offset;
    return (float *)e->memory.slots[tri_slot_gradients(unit, bucket)] + own_start(e, p);
}

float *engine_state(const tri_engine *e, int state, int unit, tri_bucket_kind bucket) {
    return (float *)e->memory.slots[tri_slot_states(unit, bucket)] +
           state * bucket_of(e, unit, bucket)->own;
}

// Makes the table `slots`, which says where each buffer lies during the running step: of
// parameters, of gradients, or of values that one action makes and a later one reads. Sets the
// entries that do not change. The others change from action to action.
static void fill_slots(tri_engine *e) {
    const tri_plan *plan = e->plan;
    int bundles = 0;
    for (int i = 0; i < plan->program_count; i++)
        if (plan->programs[i]->bundle_count > bundles) bundles = plan->programs[i]->bundle_count;
    e->memory.slots = TRI_NEW_ARRAY(e->arena, char *, tri_slot_bundle(&plan->flat, bundles));
    e->memory.slots[TRI_SLOT_SCRATCH] = e->memory.scratch;
    for (int u = 0; u < plan->flat.unit_count; u++)
        for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
            tri_bucket_kind bucket = (tri_bucket_kind)k;
            const tri_flat_bucket *p = bucket_of(e, u, bucket);
            if (!plan->flat.units[u].here || p->elements == 0) continue;
            int64_t width = (int64_t)tri_dtype_bytes(engine_bucket_dtype(e, bucket));
            char *base =
                tri_bucket_is_half(bucket) ? e->memory.half_parameters : (char *)e->memory.stored;
            if (!plan->sharing.releases)
                e->memory.slots[tri_slot_parameters(u, bucket)] = base + p->offset * width;
            if (!plan->offload.set.masters[k] && engine_has_masters(e, bucket))
                e->memory.slots[tri_slot_masters(u, bucket)] =
                    (char *)(tri_bucket_is_half(bucket) ? e->memory.masters + p->own_offset
                                                        : e->memory.stored + own_offset(e, p));
            if (plan->offload.set.states == 0 && tri_bucket_is_trained(bucket))
                e->memory.slots[tri_slot_states(u, bucket)] =
                    (char *)(e->memory.states + plan->optimizer_states * p->state_offset);
            if (e->memory.gradients && tri_bucket_has_gradients(bucket))
                e->memory.slots[tri_slot_gradients(u, bucket)] =
                    (char *)(e->memory.gradients + p->gradient_offset);
        }
}

// Replaces the size of the state heap (for gathered parameters and for gradients) by the largest
// that any rank needs. The memory that a communicator allocates must have the same size on all
// ranks, but a rank with fewer micro-batches may need less.
static tri_status agree_on_size(tri_engine *e, int64_t *size_bytes) {
    tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE,
                      .reduction = TRI_REDUCE_MAX,
                      .dtype = TRI_I64,
                      .count = 1,
                      .send = size_bytes,
                      .recv = size_bytes,
                      .label = "size of the memory for gathered parameters"};
    return tri_comm_run(e->groups.memory, &op);
}

tri_status engine_allocate(tri_engine *e) {
    const tri_plan *plan = e->plan;
    int64_t state_bytes = plan->sizes.heap_bytes[TRI_HEAP_STATE];
    TRI_TRY(agree_on_size(e, &state_bytes));
    const tri_flat *flat = &plan->flat;
    const int64_t f32 = sizeof(float), half = (int64_t)tri_dtype_bytes(flat->half_dtype);
    int64_t stored = plan->sharing.releases ? flat->own_elements[TRI_FLAT_STORED]
                                            : flat->elements[TRI_FLAT_STORED];
    bool has_masters = plan->trains && !plan->offload.set.masters[TRI_BUCKET_TRAINED_HALF];
    int64_t masters = has_masters ? flat->own_elements[TRI_FLAT_HALF] : 0;
    if (plan->offload.set.masters[TRI_BUCKET_TRAINED]) stored = 0;
    int64_t half_elements =
        plan->sharing.releases ? flat->own_elements[TRI_FLAT_HALF] : flat->elements[TRI_FLAT_HALF];
    TRI_TRY(allocate_parameters(e, stored * f32, &e->memory.stored));
    TRI_TRY(allocate_parameters(e, half_elements * half, &e->memory.half_parameters));
    TRI_TRY(allocate(e, masters * f32, &e->memory.masters));
    if (plan->sharing.scatters_rounds)
        TRI_TRY(allocate_shared(e, flat->gradient_own_elements * f32, &e->memory.own_gradients));
    else if (!plan->sharing.packs_gradients)
        TRI_TRY(allocate_shared(e, flat->gradient_elements * f32, &e->memory.gradients));
    TRI_TRY(allocate_shared(e, state_bytes, &e->memory.heaps[TRI_HEAP_STATE]));
    TRI_TRY(allocate_activations(e, plan->sizes.heap_bytes[TRI_HEAP_ACTIVATIONS],
                                 &e->memory.heaps[TRI_HEAP_ACTIVATIONS]));
    for (int i = 0; i < 2; i++)
        TRI_TRY(allocate(e, plan->sizes.heap_bytes[TRI_HEAP_INPUTS], &e->memory.inputs[i]));
    TRI_TRY(allocate(e, plan->sizes.round_elements * f32, &e->memory.round_gradients));
    if (plan->offload.set.states == 0)
        TRI_TRY(
            allocate(e, plan->optimizer_states * flat->state_elements * f32, &e->memory.states));
    TRI_TRY(allocate(e, plan->sizes.scratch_bytes, &e->memory.scratch));
    TRI_TRY(allocate(e, plan->sizes.workspace_bytes, &e->memory.workspace));
    TRI_TRY(allocate(e, plan->caches.bytes, &e->memory.caches));
    e->memory.mapped = TRI_NEW_ARRAY(e->arena, engine_mapped, flat->parameter_count);
    fill_slots(e);
    return TRI_OK;
}

void engine_release(tri_engine *e) {
    void *const owned[] = {e->memory.masters,   e->memory.round_gradients, e->memory.states,
                           e->memory.scratch,   e->memory.workspace,       e->memory.inputs[0],
                           e->memory.inputs[1], e->memory.caches};
    void *const shared[] = {e->memory.own_gradients, e->memory.gradients,
                            e->memory.heaps[TRI_HEAP_STATE]};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) release(e, owned[i]);
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) release_shared(e, shared[i]);
    release_activations(e, e->memory.heaps[TRI_HEAP_ACTIVATIONS]);
    release_parameters(e, e->memory.stored);
    release_parameters(e, e->memory.half_parameters);
    if (e->staging.masters) e->device->backend->free(e->device, e->staging.masters);
    free(e->staging.own);
    free(e->staging.joined);
    for (int i = 0; i < e->plan->flat.parameter_count && e->memory.mapped; i++) engine_unmap(e, i);
}

static tri_status reserve(float **memory, int64_t *elements, int64_t wanted) {
    if (wanted <= *elements) return TRI_OK;
    free(*memory);
    *memory = malloc((size_t)wanted * sizeof **memory);
    *elements = *memory ? wanted : 0;
    if (*memory) return TRI_OK;
    return TRI_FAIL(TRI_NO_MEMORY, "no memory for %lld elements of parameters on their way",
                    (long long)wanted);
}

tri_status engine_reserve_staging(tri_engine *e, int64_t elements) {
    e->staging.unit = -1;
    // Between steps the heaps contain nothing, so the staging memory, through which checkpoints and
    // initial weights pass, can lie there and needs no memory of its own.
    static const tri_heap heaps[] = {TRI_HEAP_STATE, TRI_HEAP_ACTIVATIONS};
    for (int i = 0; i < 2 && e->device->backend->host_memory; i++) {
        if (elements * (int64_t)sizeof(float) > e->plan->sizes.heap_bytes[heaps[i]]) continue;
        e->staging.memory = (float *)e->memory.heaps[heaps[i]];
        return TRI_OK;
    }
    tri_status status = reserve(&e->staging.own, &e->staging.own_elements, elements);
    e->staging.memory = e->staging.own;
    return status;
}

tri_status engine_reserve_masters(tri_engine *e, int64_t elements, float **out) {
    if (e->device->backend->host_memory) {
        TRI_TRY(engine_reserve_staging(e, elements));
        *out = e->staging.memory;
        return TRI_OK;
    }
    // Waits, because a kernel of the queue may still read the masters (parameters in F32) that an
    // earlier call has left there.
    TRI_TRY(tri_queue_finish(e->queue));
    if (elements > e->staging.masters_elements) {
        e->device->backend->free(e->device, e->staging.masters);
        e->staging.masters = NULL;
        e->staging.masters_elements = 0;
        TRI_TRY(e->device->backend->alloc(e->device, (size_t)elements * sizeof(float),
                                          (void **)&e->staging.masters));
        e->staging.masters_elements = elements;
    }
    *out = e->staging.masters;
    return TRI_OK;
}

tri_status engine_reserve_joined(tri_engine *e, int64_t elements) {
    return reserve(&e->staging.joined, &e->staging.joined_elements, elements);
}

static int by_position(const void *left, const void *right) {
    const engine_gap *a = left, *b = right;
    if (a->unit != b->unit) return a->unit - b->unit;
    if (a->bucket != b->bucket) return (int)a->bucket - (int)b->bucket;
    return a->first < b->first ? -1 : a->first > b->first;
}

static void index_gaps(tri_engine *e) {
    int locations = e->plan->flat.unit_count * TRI_BUCKET_COUNT, next = 0;
    e->gaps.first = TRI_NEW_ARRAY(e->arena, int, locations + 1);
    for (int i = 0; i < locations; i++) {
        e->gaps.first[i] = next;
        while (next < e->gaps.count &&
               e->gaps.items[next].unit * TRI_BUCKET_COUNT + (int)e->gaps.items[next].bucket == i)
            next++;
    }
    TRI_ASSERT(next == e->gaps.count);
    e->gaps.first[locations] = next;
}

void engine_find_gaps(tri_engine *e) {
    const tri_flat *flat = &e->plan->flat;
    engine_gap *used = TRI_NEW_ARRAY(e->arena, engine_gap, flat->parameter_count);
    int count = 0, capacity = 0;
    for (int i = 0; i < flat->parameter_count; i++) {
        const tri_flat_parameter *p = &flat->parameters[i];
        if (p->unit < 0 || !flat->units[p->unit].here || !tri_bucket_has_gradients(p->bucket))
            continue;
        used[count++] = (engine_gap){p->unit, p->bucket, p->offset, p->elements};
    }
    if (count) qsort(used, (size_t)count, sizeof *used, by_position);
    for (int i = 0; i < count; i++) {
        const engine_gap *u = &used[i];
        bool is_last =
            i + 1 == count || used[i + 1].unit != u->unit || used[i + 1].bucket != u->bucket;
        int64_t end = is_last ? bucket_of(e, u->unit, u->bucket)->elements : used[i + 1].first;
        int64_t from = u->first + u->count;
        if (end > from)
            TRI_PUSH(e->arena, e->gaps.items, e->gaps.count, capacity) =
                (engine_gap){u->unit, u->bucket, from, end - from};
    }
    index_gaps(e);
}
