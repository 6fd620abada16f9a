// Follows a schedule action by action, records from when to when each buffer is in use, and packs
// the buffers. step_memory.h has a picture. A slot is an entry of the table in which kernels look
// addresses up. A unit is parameters that are gathered, reduced and updated together; a bucket is a
// contiguous range of a unit's parameters; masters are the F32 weights that the optimizer updates.
// A bundle is values that are kept from one segment (the nodes of one block in one phase) to
// another. Read next: dependencies.c.
#include "plan/step_memory.h"

#include "base/search.h"
#include "plan/memory.h"

#include <stdlib.h>
#include <string.h>

// The four slots of each bucket; they follow each other in the table of slots in this order.
enum { PARAMETERS, GRADIENTS, MASTERS, STATES, SLOTS_OF_BUCKET };

static int slot_of(int unit, tri_bucket_kind bucket, int data) {
    return TRI_SLOT_FIRST_BUCKET + SLOTS_OF_BUCKET * (unit * TRI_BUCKET_COUNT + (int)bucket) + data;
}
// For which of a bucket's data the slot stands: PARAMETERS, GRADIENTS, MASTERS or STATES.
static int data_of_slot(int slot) { return (slot - TRI_SLOT_FIRST_BUCKET) % SLOTS_OF_BUCKET; }
int tri_slot_parameters(int unit, tri_bucket_kind bucket) {
    return slot_of(unit, bucket, PARAMETERS);
}
int tri_slot_gradients(int unit, tri_bucket_kind bucket) {
    return slot_of(unit, bucket, GRADIENTS);
}
int tri_slot_masters(int unit, tri_bucket_kind bucket) { return slot_of(unit, bucket, MASTERS); }
int tri_slot_states(int unit, tri_bucket_kind bucket) { return slot_of(unit, bucket, STATES); }
int tri_slot_bundle(const tri_flat *flat, int bundle) {
    return slot_of(flat->unit_count, (tri_bucket_kind)0, 0) + bundle;
}
bool tri_slot_is_of_bucket(const tri_flat *flat, int slot) {
    return slot >= TRI_SLOT_FIRST_BUCKET && slot < tri_slot_bundle(flat, 0);
}

// The actions that use offloaded state. FETCH reads F32 parameters from storage, and GATHER sends
// them as they are. LOAD reads what an update needs, STEP changes it, PREPARE casts the new masters
// to the type that GATHER sends, and EVICT writes the changed state back.
static bool is_fetched(tri_action_kind kind) {
    return kind == TRI_ACTION_FETCH || kind == TRI_ACTION_GATHER;
}
static bool is_loaded(tri_action_kind kind) {
    return kind == TRI_ACTION_LOAD || kind == TRI_ACTION_STEP || kind == TRI_ACTION_PREPARE ||
           kind == TRI_ACTION_EVICT;
}

bool tri_offload_touches_states(const tri_offload_set *offload_set, tri_action_kind kind,
                                tri_bucket_kind bucket) {
    return offload_set->states > 0 && is_loaded(kind) && tri_bucket_is_trained(bucket);
}

bool tri_offload_touches_masters(const tri_offload_set *offload_set, tri_action_kind kind,
                                 tri_bucket_kind bucket) {
    if (!offload_set->masters[bucket]) return false;
    return is_fetched(kind) ? !tri_bucket_is_half(bucket)
                            : is_loaded(kind) && tri_bucket_has_gradients(bucket);
}

int64_t tri_offload_bytes(const tri_offload_set *offload_set, const tri_flat *flat,
                          const tri_action *action) {
    int64_t sum = 0;
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        tri_bucket_kind bucket = (tri_bucket_kind)k;
        int64_t bytes = flat->units[action->subject].buckets[k].own * (int64_t)sizeof(float);
        if (tri_offload_touches_masters(offload_set, action->kind, bucket)) sum += bytes;
        if (tri_offload_touches_states(offload_set, action->kind, bucket))
            sum += bytes * offload_set->states;
    }
    return sum;
}

// A buffer of one step: its memory is in use from a first to a last action of the schedule.
typedef struct buffer {
    int slot;
    tri_heap heap;
    int64_t size_bytes, offset;
    int first, last;
    int last_compute; // the last action of the compute lane that uses the buffer; -1: none
    // The actions of other lanes (communicators, storage) that use the buffer, as a linked list in
    // step.asyncs: the index of its first entry; -1: there are none.
    int first_async;
} buffer;

// An entry of the list that begins with buffer.first_async: an action, and the index of the next
// entry; -1: there is none.
typedef struct async_touch {
    int action, next;
} async_touch;

typedef struct step {
    const tri_step_memory_request *r;
    tri_arena *scratch, *arena;
    buffer *buffers;
    int buffer_count, buffer_capacity;
    async_touch *asyncs;
    int async_count, async_capacity;
    // The buffer for which each slot stands now, or -1. open_buckets has the slots of buckets.
    // open_rounds[round] has the slots of inputs and bundles of one micro-batch, because each
    // micro-batch in flight has its own; it is allocated when the micro-batch first needs it.
    int *open_buckets, **open_rounds;
    int bucket_slots, round_slots;
    // By slot of a bucket: the last action that used its buffer is GATHER, which sends from there.
    bool *is_sent;
    // Buffers that SCATTER sends. They stay in use until the next compute action has ended: see
    // close_scattered.
    int *scattered;
    int scattered_count, scattered_capacity;
    int *touched; // all buffers that actions touch, listed action by action
    int touched_count, touched_capacity;
    int *first; // by action: its first entry in `touched`
    int action;
} step;

static int *make_open(step *s, int slots) {
    int *open = TRI_NEW_ARRAY(s->scratch, int, slots);
    memset(open, -1, (size_t)slots * sizeof *open);
    return open;
}

static int *open_of(step *s, int slot, int round) {
    if (round < 0) return &s->open_buckets[slot];
    if (!s->open_rounds[round]) s->open_rounds[round] = make_open(s, s->round_slots);
    return &s->open_rounds[round][slot == TRI_SLOT_INPUTS ? 0 : 1 + slot - s->bucket_slots];
}

static bool is_compute(const step *s, int action) {
    return tri_action_lane(s->r->schedule->actions[action].kind) == TRI_LANE_COMPUTE;
}

// Finds the heap (range of memory) for the buffer of a slot. The first inputs of a step have a heap
// of their own, because they arrive while the previous step runs (see TRI_HEAP_INPUTS).
static tri_heap heap_of(const step *s, int slot, int round) {
    bool is_first = slot == TRI_SLOT_INPUTS && s->r->schedule_request->takes_ahead;
    for (int i = 0; i < round && is_first; i++)
        is_first = s->r->schedule_request->round_sizes[i] == 0;
    if (is_first) return TRI_HEAP_INPUTS;
    if (!tri_slot_is_of_bucket(s->r->flat, slot)) return TRI_HEAP_ACTIVATIONS;
    int data = data_of_slot(slot);
    bool packed = data == STATES || (data == GRADIENTS && s->r->packs_gradients);
    return !packed ? TRI_HEAP_STATE : TRI_HEAP_ACTIVATIONS;
}

// Whether gradients lie on the step's heaps. The actions that use gradients are then recorded.
// Otherwise gradients have memory of their own during the whole run.
static bool places_gradients(const step *s) {
    return s->r->schedule_request->training && (s->r->scatters_rounds || s->r->packs_gradients);
}

static void touch(step *s, int slot, int round, int64_t size_bytes) {
    int *open = open_of(s, slot, round);
    if (size_bytes == 0) return;
    if (*open < 0) {
        *open = s->buffer_count;
        TRI_PUSH(s->scratch, s->buffers, s->buffer_count, s->buffer_capacity) =
            (buffer){.slot = slot,
                     .heap = heap_of(s, slot, round),
                     .size_bytes = size_bytes,
                     .first = s->action,
                     .last_compute = -1,
                     .first_async = -1};
    }
    buffer *c = &s->buffers[*open];
    c->last = s->action;
    if (is_compute(s, s->action)) {
        c->last_compute = s->action;
    } else {
        TRI_PUSH(s->scratch, s->asyncs, s->async_count, s->async_capacity) =
            (async_touch){s->action, c->first_async};
        c->first_async = s->async_count - 1;
    }
    TRI_PUSH(s->scratch, s->touched, s->touched_count, s->touched_capacity) = *open;
}

// Bits that tell which buffers of a unit an action touches.
enum { UNIT_PARAMETERS = 1, UNIT_TRAINED_GRADIENTS = 2, UNIT_STATISTICS = 4 };
enum { UNIT_GRADIENTS = UNIT_TRAINED_GRADIENTS | UNIT_STATISTICS };

static int64_t parameter_bytes(const tri_flat *flat, int unit, tri_bucket_kind bucket) {
    tri_dtype type = tri_bucket_is_half(bucket) ? flat->half_dtype : TRI_F32;
    return flat->units[unit].buckets[bucket].elements * (int64_t)tri_dtype_bytes(type);
}

static bool has_gradients_of(tri_bucket_kind bucket, unsigned which) {
    unsigned source = bucket == TRI_BUCKET_STATISTIC ? UNIT_STATISTICS : UNIT_TRAINED_GRADIENTS;
    return tri_bucket_has_gradients(bucket) && (which & source);
}

static void touch_unit(step *s, int unit, unsigned which) {
    const tri_flat *flat = s->r->flat;
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        tri_bucket_kind bucket = (tri_bucket_kind)k;
        int64_t elements = flat->units[unit].buckets[k].elements;
        if (which & UNIT_PARAMETERS)
            touch(s, tri_slot_parameters(unit, bucket), -1, parameter_bytes(flat, unit, bucket));
        if (has_gradients_of(bucket, which))
            touch(s, tri_slot_gradients(unit, bucket), -1, elements * (int64_t)sizeof(float));
    }
}

static void close_parameters(step *s, int unit) {
    for (int k = 0; k < TRI_BUCKET_COUNT; k++)
        *open_of(s, tri_slot_parameters(unit, (tri_bucket_kind)k), -1) = -1;
}

// Ends the use of gradients that SCATTER has sent. Nothing reads them any more, but their memory
// stays reserved until the next compute action has ended: if that action wrote its own gradients
// there, it would have to wait for SCATTER instead of running beside it.
static void close_scattered(step *s, int unit) {
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        int *open = open_of(s, tri_slot_gradients(unit, (tri_bucket_kind)k), -1);
        if (*open < 0) continue;
        TRI_PUSH(s->scratch, s->scattered, s->scattered_count, s->scattered_capacity) = *open;
        *open = -1;
    }
}
static void keep_scattered(step *s) {
    for (int i = 0; i < s->scattered_count; i++) s->buffers[s->scattered[i]].last = s->action;
    s->scattered_count = 0;
}

// Records that the action uses the buffer for which the slot stands. FETCH and LOAD begin a new
// buffer, because the state that they read was not in memory; for every other action there is a
// buffer already.
static void touch_slot(step *s, const tri_action *a, int slot, int64_t size_bytes) {
    int *open = open_of(s, slot, -1);
    if (a->kind == TRI_ACTION_FETCH || a->kind == TRI_ACTION_LOAD)
        *open = -1;
    else
        TRI_ASSERT(*open >= 0 || size_bytes == 0);
    touch(s, slot, -1, size_bytes);
    s->is_sent[slot] = a->kind == TRI_ACTION_GATHER;
    if (a->kind == TRI_ACTION_EVICT) *open = -1;
}

static void touch_offloaded(step *s, const tri_action *a) {
    const tri_offload_set *offload_set = &s->r->offload_set;
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        tri_bucket_kind bucket = (tri_bucket_kind)k;
        int64_t bytes = s->r->flat->units[a->subject].buckets[k].own * (int64_t)sizeof(float);
        if (tri_offload_touches_masters(offload_set, a->kind, bucket))
            touch_slot(s, a, tri_slot_masters(a->subject, bucket), bytes);
        if (tri_offload_touches_states(offload_set, a->kind, bucket))
            touch_slot(s, a, tri_slot_states(a->subject, bucket), bytes * offload_set->states);
    }
}

// Records what the segment uses, and raises *scratch_bytes to the scratch that it needs.
static void touch_segment(step *s, const tri_action *a, tri_phase phase, int64_t *scratch_bytes) {
    const tri_program *p = s->r->programs[a->round];
    const tri_segment *segment = &p->segments[a->subject][phase];
    if (segment->reads_inputs) touch(s, TRI_SLOT_INPUTS, a->round, p->input_bytes);
    for (int i = 0; i < segment->bundle_count; i++)
        touch(s, tri_slot_bundle(s->r->flat, segment->bundles[i]), a->round,
              p->bundles[segment->bundles[i]].size_bytes);
    if (segment->scratch_bytes > *scratch_bytes) *scratch_bytes = segment->scratch_bytes;
}

// Keeps the buffer from which GATHER sends a unit's parameters until the unit's first compute
// action, which waits for GATHER anyway. If the buffer were released sooner, the next user of its
// memory would have to wait for GATHER too.
static void close_sent(step *s, int unit) {
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        int slot = tri_slot_masters(unit, (tri_bucket_kind)k), *open = open_of(s, slot, -1);
        if (*open < 0 || !s->is_sent[slot])
            // There is no buffer of masters, or FETCH has brought one that GATHER has yet to send.
            continue;
        touch(s, slot, -1, s->buffers[*open].size_bytes);
        *open = -1;
    }
}

// Releases the activations that FORWARD made only for its own block's backward pass, because
// RECOMPUTE makes them again: this is the memory that recomputation saves.
static void forget(step *s, const tri_action *a) {
    const tri_program *p = s->r->programs[a->round];
    const tri_segment *segment = &p->segments[a->subject][TRI_PHASE_FORWARD];
    for (int i = 0; i < segment->bundle_count; i++)
        if (p->bundles[segment->bundles[i]].own_block == a->subject)
            *open_of(s, tri_slot_bundle(s->r->flat, segment->bundles[i]), a->round) = -1;
}

// Gives the action scratch memory for the nodes that it runs. When the action has ended, the
// contents are of no use, so each action has a scratch buffer of its own.
static void touch_scratch(step *s, int64_t size_bytes) {
    if (!s->r->packs_scratch) return;
    touch(s, TRI_SLOT_SCRATCH, -1, size_bytes);
    *open_of(s, TRI_SLOT_SCRATCH, -1) = -1;
}

static void touch_compute(step *s, const tri_action *a) {
    const tri_schedule_block *block = &s->r->schedule_request->blocks[a->subject];
    bool forward = a->kind == TRI_ACTION_FORWARD, recompute = a->kind == TRI_ACTION_RECOMPUTE;
    bool weight = a->kind == TRI_ACTION_BACKWARD_WEIGHT;
    // If the backward pass is split (tri_pass_split_backward), BACKWARD_INPUT makes only gradients
    // of activations, and BACKWARD_WEIGHT makes those of parameters.
    bool has_gradients = !recompute && a->kind != TRI_ACTION_BACKWARD_INPUT;
    int64_t scratch = 0;
    if (forward || recompute)
        touch_segment(s, a, TRI_PHASE_FORWARD, &scratch);
    else if (!weight)
        touch_segment(s, a, TRI_PHASE_BACKWARD, &scratch);
    if (weight || a->kind == TRI_ACTION_BACKWARD) touch_segment(s, a, TRI_PHASE_WEIGHT, &scratch);
    touch_scratch(s, scratch);
    for (int k = 0; k < block->unit_count; k++) {
        close_sent(s, block->units[k]);
        if (s->r->releases) touch_unit(s, block->units[k], UNIT_PARAMETERS);
        if (places_gradients(s) && has_gradients)
            touch_unit(s, block->units[k], forward ? UNIT_STATISTICS : UNIT_TRAINED_GRADIENTS);
    }
    if (a->forgets) forget(s, a);
    keep_scattered(s);
}

static void touch_edge(step *s, const tri_action *a) {
    const tri_program *p = s->r->programs[a->round];
    for (int i = 0; i < s->r->edge_value_count[a->round]; i++) {
        if (s->r->edge_of_value[a->round][i] != a->subject) continue;
        tri_location location = p->locations[s->r->edge_values[a->round][i].value.id];
        if (location.kind != TRI_LOCATION_BUNDLE) continue;
        touch(s, tri_slot_bundle(s->r->flat, location.index), a->round,
              p->bundles[location.index].size_bytes);
    }
}

// Records that an action on a unit uses its gradients, if these lie on a heap.
static void touch_gradients(step *s, const tri_action *a) {
    bool touches = a->kind == TRI_ACTION_CLEAR || a->kind == TRI_ACTION_SCATTER ||
                   (a->kind == TRI_ACTION_STEP && s->r->packs_gradients);
    if (!places_gradients(s)) return;
    if (touches) touch_unit(s, a->subject, UNIT_GRADIENTS);
    if (a->kind == TRI_ACTION_SCATTER) close_scattered(s, a->subject);
}

static void touch_action(step *s, const tri_action *a) {
    int units = s->r->flat->unit_count;
    switch (tri_action_subject(a->kind)) {
    case TRI_SUBJECT_BLOCK:
        touch_compute(s, a);
        break;
    case TRI_SUBJECT_EDGE:
        touch_edge(s, a);
        break;
    case TRI_SUBJECT_UNIT:
        touch_offloaded(s, a);
        if (a->kind == TRI_ACTION_GATHER && s->r->releases)
            touch_unit(s, a->subject, UNIT_PARAMETERS);
        if (a->kind == TRI_ACTION_RELEASE) close_parameters(s, a->subject);
        touch_gradients(s, a);
        break;
    case TRI_SUBJECT_NONE:
        if (a->kind == TRI_ACTION_TAKE)
            touch(s, TRI_SLOT_INPUTS, a->round, s->r->programs[a->round]->input_bytes);
        for (int u = 0; a->kind == TRI_ACTION_NORM && s->r->packs_gradients && u < units; u++)
            if (s->r->schedule_request->units[u].here) touch_unit(s, u, UNIT_GRADIENTS);
        break;
    }
}

// Keeps packed gradients (those on the activations' heap) until the step's last action, because the
// search for gradients that are not finite may read them when the step has ended.
static void keep_packed(step *s) {
    for (int i = 0; i < s->buffer_count && s->r->packs_gradients; i++) {
        int slot = s->buffers[i].slot;
        if (tri_slot_is_of_bucket(s->r->flat, slot) && data_of_slot(slot) == GRADIENTS)
            s->buffers[i].last = s->r->schedule->count - 1;
    }
}

static void pack_buffers(step *s, tri_step_memory *out) {
    tri_interval *intervals = TRI_NEW_ARRAY(s->scratch, tri_interval, s->buffer_count);
    for (int heap = 0; heap < TRI_HEAP_COUNT; heap++) {
        int count = 0;
        for (int i = 0; i < s->buffer_count; i++) {
            const buffer *c = &s->buffers[i];
            if (c->heap != (tri_heap)heap) continue;
            intervals[count++] =
                (tri_interval){.size_bytes = c->size_bytes, .first = c->first, .last = c->last};
        }
        out->heap_bytes[heap] = tri_memory_pack(s->scratch, intervals, count, s->r->alignment);
        count = 0;
        for (int i = 0; i < s->buffer_count; i++)
            if (s->buffers[i].heap == (tri_heap)heap)
                s->buffers[i].offset = intervals[count++].offset;
    }
}

static bool overlap(const step *s, const buffer *a, const buffer *b) {
    return a->offset < b->offset + b->size_bytes && b->offset < a->offset + a->size_bytes &&
           a->heap == b->heap;
}

static bool begins_by(const void *context, int index, int64_t action) {
    const step *s = context;
    return s->buffers[index].first <= action;
}

// Finds the first buffer that begins after the action, by bisection: buffers are in the order of
// their first action.
static int first_after(const step *s, int action) {
    return tri_lower_bound(s->buffer_count, begins_by, s, action);
}

// Makes the action wait for all actions that used `earlier`, a buffer that had the same memory
// before. The actions of the compute lane (kernels) finish in order, so it is enough to wait for
// the last of them, or for none if this action is in the compute lane too.
static void add_waits(step *s, tri_step_memory *out, int *capacity, int action,
                      const buffer *earlier) {
    if (earlier->last_compute >= 0 && !is_compute(s, action))
        TRI_PUSH(s->arena, out->waits, out->wait_count, *capacity) =
            (tri_wait){action, earlier->last_compute};
    for (int t = earlier->first_async; t >= 0; t = s->asyncs[t].next)
        TRI_PUSH(s->arena, out->waits, out->wait_count, *capacity) =
            (tri_wait){action, s->asyncs[t].action};
}

static bool receives(const step *s, int action) {
    tri_action_kind kind = s->r->schedule->actions[action].kind;
    return kind == TRI_ACTION_RECV_ALONG || kind == TRI_ACTION_RECV_BACK;
}

// Adds waits, so that an action that uses a buffer comes after all actions that used the same
// memory before. Usually it is enough that the buffer's first action waits, because the others come
// after it. RECVs are an exception: the lanes ALONG and BACK finish them in any order, so each of
// them has to wait.
static void find_waits(step *s, tri_step_memory *out) {
    int capacity = 0;
    for (int i = 0; i < s->buffer_count; i++) {
        const buffer *a = &s->buffers[i];
        for (int k = first_after(s, a->last); k < s->buffer_count; k++) {
            const buffer *b = &s->buffers[k];
            if (!overlap(s, a, b)) continue;
            add_waits(s, out, &capacity, b->first, a);
            for (int t = b->first_async; t >= 0; t = s->asyncs[t].next)
                if (s->asyncs[t].action != b->first && receives(s, s->asyncs[t].action))
                    add_waits(s, out, &capacity, s->asyncs[t].action, a);
            if (b->offset <= a->offset && b->offset + b->size_bytes >= a->offset + a->size_bytes)
                break; // b covers all of a: buffers after b wait for b, and b waits for a
        }
    }
}

static void keep_settings(step *s, tri_step_memory *out) {
    int actions = s->r->schedule->count;
    out->settings = TRI_NEW_ARRAY(s->arena, tri_setting, s->touched_count);
    out->first = TRI_NEW_ARRAY(s->arena, int, actions + 1);
    memcpy(out->first, s->first, (size_t)(actions + 1) * sizeof *out->first);
    for (int i = 0; i < s->touched_count; i++) {
        const buffer *c = &s->buffers[s->touched[i]];
        out->settings[i] = (tri_setting){c->slot, s->touched[i], c->offset};
    }
    out->buffers = TRI_NEW_ARRAY(s->arena, tri_step_buffer, s->buffer_count);
    out->buffer_count = s->buffer_count;
    for (int i = 0; i < s->buffer_count; i++) {
        const buffer *c = &s->buffers[i];
        out->buffers[i] = (tri_step_buffer){c->heap, c->offset, c->size_bytes};
    }
}

static void keep_live(step *s, tri_step_memory *out) {
    int actions = s->r->schedule->count;
    for (int k = 0; k < TRI_HEAP_COUNT; k++)
        out->live_bytes[k] = TRI_NEW_ARRAY(s->arena, int64_t, actions + 1);
    for (int i = 0; i < s->buffer_count; i++) {
        const buffer *c = &s->buffers[i];
        int64_t *live = out->live_bytes[c->heap];
        live[c->first] += c->size_bytes;
        live[c->last + 1] -= c->size_bytes;
    }
    for (int k = 0; k < TRI_HEAP_COUNT; k++)
        for (int i = 1; i <= actions; i++) out->live_bytes[k][i] += out->live_bytes[k][i - 1];
}

void tri_step_memory_plan(tri_arena *arena, const tri_step_memory_request *request,
                          tri_step_memory *out) {
    *out = (tri_step_memory){0};
    const tri_schedule *schedule = request->schedule;
    step s = {.r = request, .arena = arena, .scratch = tri_arena_create(NULL, "step memory")};
    int bundles = 0, rounds = request->schedule_request->rounds;
    for (int i = 0; i < rounds; i++)
        if (request->programs[i] && request->programs[i]->bundle_count > bundles)
            bundles = request->programs[i]->bundle_count;
    s.bucket_slots = tri_slot_bundle(request->flat, 0);
    s.round_slots = 1 + bundles;
    s.open_buckets = make_open(&s, s.bucket_slots);
    s.is_sent = TRI_NEW_ARRAY(s.scratch, bool, s.bucket_slots);
    s.open_rounds = TRI_NEW_ARRAY(s.scratch, int *, rounds);
    s.first = TRI_NEW_ARRAY(s.scratch, int, schedule->count + 1);
    for (s.action = 0; s.action < schedule->count; s.action++) {
        s.first[s.action] = s.touched_count;
        touch_action(&s, &schedule->actions[s.action]);
    }
    s.first[schedule->count] = s.touched_count;
    keep_packed(&s);
    pack_buffers(&s, out);
    find_waits(&s, out);
    keep_settings(&s, out);
    keep_live(&s, out);
    tri_arena_destroy(s.scratch);
}
