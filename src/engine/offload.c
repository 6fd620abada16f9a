// The actions FETCH, LOAD and EVICT: move offloaded state between memory and storage (a file, or
// the host's memory beside a GPU). FETCH reads the parameters that ranks gather, LOAD the state
// that the optimizer changes, and EVICT writes that state back. Each works on one unit: parameters
// that are gathered and updated together. A bucket is the part of a unit that has one role, type
// and placement. Only this rank's range of a bucket is stored.
//
// First in the storage lie all optimizer states, then the F32 master weights (masters) of
// parameters that kernels read in a half type, then all other masters. This order is fixed, because
// each of the three may be offloaded without those after it. If the host's CPU runs the optimizer,
// gradients and the parameters in the half type come next. Read next: host_step.c.
#include "engine/kept.h"

bool engine_is_offloaded(const tri_engine *e, tri_bucket_kind bucket, int state) {
    return state == TRI_STATE_MASTERS ? e->plan->offload.set.masters[bucket]
                                      : e->plan->offload.set.states > 0;
}

bool engine_has_host_copy(const tri_engine *e, tri_bucket_kind bucket, int state) {
    return e->host.device && state == TRI_STATE_MASTERS && tri_bucket_has_gradients(bucket) &&
           !engine_is_offloaded(e, bucket, state);
}

int64_t engine_storage_offset(const tri_engine *e, int unit, tri_bucket_kind bucket, int what) {
    const tri_flat *flat = &e->plan->flat;
    const tri_flat_bucket *p = &flat->units[unit].buckets[bucket];
    const int64_t f32 = (int64_t)sizeof(float);
    int64_t states = e->plan->offload.set.states;
    int64_t masters = states * flat->state_elements,
            stored = masters + flat->own_elements[TRI_FLAT_HALF];
    int64_t gradients = stored + flat->own_elements[TRI_FLAT_STORED];
    switch (what) {
    case ENGINE_HOST_HALF:
        return f32 * (gradients + flat->gradient_own_elements) +
               p->own_offset * (int64_t)tri_dtype_bytes(flat->half_dtype);
    case ENGINE_HOST_GRADIENTS:
        return f32 * (gradients + p->gradient_own_offset);
    case TRI_STATE_MASTERS:
        return f32 * ((tri_bucket_is_half(bucket) ? masters : stored) + p->own_offset);
    default:
        return f32 * (states * p->state_offset + what * p->own);
    }
}

static const int64_t element_bytes = sizeof(float);

static int64_t own_bytes(const tri_engine *e, int unit, tri_bucket_kind bucket) {
    return e->plan->flat.units[unit].buckets[bucket].own * element_bytes;
}

tri_status engine_open_storage(tri_engine *e, tri_ledger *ledger) {
    int64_t bytes = e->plan->memory.offloaded;
    if (bytes == 0) return TRI_OK;
    return tri_storage_open(&(tri_storage_config){.in_host_memory = e->plan->offload.in_host_memory,
                                                  .folder = e->plan->offload.path,
                                                  .size_bytes = bytes,
                                                  .rank = e->plan->rank,
                                                  .ledger = ledger,
                                                  .device = e->device},
                            &e->storage);
}

static tri_status wait_storage(void *source, uint64_t number) {
    return tri_storage_wait(source, number);
}

static bool storage_is_done(void *source, uint64_t number) {
    return tri_storage_is_done(source, number);
}

static const tri_ticket_kind storage_ticket = {.wait = wait_storage, .is_done = storage_is_done};

static tri_status start_host_step(tri_engine *e, const tri_action *a, tri_ticket *ticket) {
    tri_storage_work work = {.run = engine_host_step,
                             .context = e,
                             .subject = a->subject,
                             .kind = tri_action_name(a->kind),
                             .label = e->plan->flat.units[a->subject].name};
    uint64_t number;
    TRI_TRY(tri_storage_call(e->storage, &work, &number));
    *ticket = (tri_ticket){&storage_ticket, e->storage, number};
    return TRI_OK;
}

tri_status engine_start_storage(tri_engine *e, const tri_action *a, tri_ticket *ticket) {
    if (a->kind == TRI_ACTION_HOST_STEP) return start_host_step(e, a, ticket);
    tri_storage_op ops[2 * TRI_BUCKET_COUNT];
    const tri_offload_set *offload_set = &e->plan->offload.set;
    int count = 0, unit = a->subject;
    bool writes = a->kind == TRI_ACTION_EVICT, on_device = !e->device->backend->host_memory;
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        tri_bucket_kind bucket = (tri_bucket_kind)k;
        int64_t bytes = own_bytes(e, unit, bucket);
        if (bytes == 0) continue;
        if (tri_offload_touches_masters(offload_set, a->kind, bucket))
            ops[count++] = (tri_storage_op){
                .writes = writes,
                .on_device = on_device,
                .memory = e->memory.slots[tri_slot_masters(unit, bucket)],
                .offset = engine_storage_offset(e, unit, bucket, TRI_STATE_MASTERS),
                .size_bytes = bytes};
        if (tri_offload_touches_states(offload_set, a->kind, bucket))
            ops[count++] =
                (tri_storage_op){.writes = writes,
                                 .on_device = on_device,
                                 .memory = e->memory.slots[tri_slot_states(unit, bucket)],
                                 .offset = engine_storage_offset(e, unit, bucket, 0),
                                 .size_bytes = bytes * offload_set->states};
    }
    if (count == 0) return TRI_OK;
    uint64_t number;
    TRI_TRY(tri_storage_start(e->storage, ops, count, e->labels.subjects[a->kind][unit], &number));
    *ticket = (tri_ticket){&storage_ticket, e->storage, number};
    return TRI_OK;
}

static tri_status move(tri_engine *e, int unit, int64_t offset, int64_t count, bool writes,
                       bool on_device, void *memory) {
    tri_storage_op op = {.writes = writes,
                         .on_device = on_device,
                         .memory = memory,
                         .offset = offset,
                         .size_bytes = count * element_bytes};
    return tri_storage_run(e->storage, &op, e->plan->flat.units[unit].name);
}

tri_status engine_fetch_masters(tri_engine *e, int unit) {
    int64_t elements = 0;
    const tri_flat_unit *u = &e->plan->flat.units[unit];
    for (int k = 0; k < TRI_BUCKET_COUNT && u->here; k++)
        if (e->plan->offload.set.masters[k] && tri_bucket_is_half((tri_bucket_kind)k))
            elements += u->buckets[k].own;
    if (elements == 0) return TRI_OK;
    float *to;
    TRI_TRY(engine_reserve_masters(e, elements, &to));
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        tri_bucket_kind bucket = (tri_bucket_kind)k;
        if (!tri_bucket_is_half(bucket) || u->buckets[k].own == 0) continue;
        int64_t offset = engine_storage_offset(e, unit, bucket, TRI_STATE_MASTERS);
        TRI_TRY(
            move(e, unit, offset, u->buckets[k].own, false, !e->device->backend->host_memory, to));
        e->memory.slots[tri_slot_masters(unit, bucket)] = (char *)to;
        to += u->buckets[k].own;
    }
    return TRI_OK;
}

// Where elements from `first` on of a range lie, as they are kept.
static char *kept_from(const tri_engine *e, int unit, tri_bucket_kind bucket, int state,
                       int64_t first, int64_t count, size_t *size_bytes) {
    int64_t element = (int64_t)tri_dtype_bytes(engine_kept_dtype(e, bucket, state));
    *size_bytes = (size_t)(count * element);
    return (char *)engine_kept(e, unit, bucket, state) + first * element;
}

tri_status engine_read_own(tri_engine *e, int unit, tri_bucket_kind bucket, int state,
                           int64_t first, int64_t count, void *to) {
    if (engine_is_offloaded(e, bucket, state))
        return move(e, unit, engine_storage_offset(e, unit, bucket, state) + first * element_bytes,
                    count, false, false, to);
    size_t size_bytes;
    const char *from = kept_from(e, unit, bucket, state, first, count, &size_bytes);
    return tri_queue_read(e->queue, to, from, size_bytes);
}

tri_status engine_write_own(tri_engine *e, int unit, tri_bucket_kind bucket, int state,
                            int64_t first, int64_t count, const void *from) {
    bool is_offloaded = engine_is_offloaded(e, bucket, state);
    if (is_offloaded || engine_has_host_copy(e, bucket, state))
        TRI_TRY(move(e, unit, engine_storage_offset(e, unit, bucket, state) + first * element_bytes,
                     count, true, false, (void *)from));
    if (is_offloaded) return TRI_OK;
    size_t size_bytes;
    char *to = kept_from(e, unit, bucket, state, first, count, &size_bytes);
    return tri_queue_write(e->queue, to, from, size_bytes);
}
