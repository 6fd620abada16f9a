// Checks how memory is used during a step (plan/step_memory.h): the test follows memory cell by
// cell along the schedules of many meshes. An action reads what was written for it, and nothing
// touches memory that a communicator or storage still uses. A slot is an entry of the table in
// which kernels look addresses up; a heap is memory that a step uses again and again; a bundle is
// values that are kept from one segment (the nodes of one block in one phase) to another.
#include "base/philox.h"
#include "plan/memory.h"
#include "plan/step_memory.h"
#include "support/schedule_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ALIGNMENT = 64 }; // in bytes: each buffer that the plan places begins at a multiple of it

static uint32_t draw(uint64_t stream, uint32_t *at, uint32_t below) {
    return tri_philox_at(31, stream, 0, (*at)++) % below;
}

static tri_flat make_flat(tri_arena *arena, const tri_schedule_request *r, uint64_t stream) {
    tri_flat flat = {.units = TRI_NEW_ARRAY(arena, tri_flat_unit, r->unit_count),
                     .unit_count = r->unit_count,
                     .block_count = r->block_count,
                     .shards = r->shard,
                     .half_dtype = TRI_BF16};
    uint32_t at = 0;
    for (int u = 0; u < r->unit_count; u++) {
        const tri_unit *unit = &r->units[u];
        tri_flat_bucket *buckets = flat.units[u].buckets;
        int64_t elements = (1 + (int64_t)draw(stream, &at, 20)) * TRI_FLAT_ALIGNMENT * r->shard;
        flat.units[u].here = unit->here;
        if (unit->bytes == 0) continue;
        tri_bucket_kind bucket = unit->has_gradients ? TRI_BUCKET_TRAINED : TRI_BUCKET_FROZEN;
        buckets[bucket].elements = elements;
        if (unit->has_half) buckets[TRI_BUCKET_FROZEN_HALF].elements = elements / 2;
        if (unit->has_statistics) buckets[TRI_BUCKET_STATISTIC].elements = elements;
    }
    return flat;
}

typedef struct maker {
    tri_arena *arena;
    tri_program *p;
    int capacity;
} maker;

static int add_bundle(maker *m, int64_t size_bytes, int own_block) {
    TRI_PUSH(m->arena, m->p->bundles, m->p->bundle_count, m->capacity) =
        (tri_bundle){.size_bytes = size_bytes, .own_block = own_block};
    return m->p->bundle_count - 1;
}

static void touch(maker *m, int block, tri_phase phase, int bundle, bool writes) {
    tri_segment *s = &m->p->segments[block][phase];
    if (!s->bundles) {
        s->bundles = TRI_NEW_ARRAY(m->arena, int, 64);
        s->writes = TRI_NEW_ARRAY(m->arena, bool, 64);
    }
    for (int i = 0; i < s->bundle_count; i++)
        if (s->bundles[i] == bundle) return;
    assert_true(s->bundle_count < 64);
    s->bundles[s->bundle_count] = bundle;
    s->writes[s->bundle_count++] = writes;
}

static tri_phase last_phase(const tri_schedule_request *r) {
    return r->order->splits_backward ? TRI_PHASE_WEIGHT : TRI_PHASE_BACKWARD;
}

// Returns the bundle of an earlier edge (the values that a block sends to another stage) that
// brings the same value to another stage of the same rank; -1: there is none.
static int shared_bundle(const tri_program *p, const tri_schedule_request *r, int edge) {
    const tri_edge *to = &r->edges[edge];
    for (int e = 0; e < edge; e++) {
        const tri_edge *other = &r->edges[e];
        if (other->from_block == to->from_block && other->back == to->back &&
            other->to_stage % r->pipeline == to->to_stage % r->pipeline)
            return p->locations[e + 1].index;
    }
    return -1;
}

// Makes a program in which each block keeps values for its own backward pass, and passes values to
// the next block. For each edge of the request, a block also makes one value that another stage
// reads. Some of the values that are passed on are read again in the backward pass.
static tri_program *make_program(tri_arena *arena, const tri_schedule_request *r, uint64_t stream) {
    maker m = {.arena = arena, .p = TRI_NEW(arena, tri_program)};
    uint32_t at = 1000;
    m.p->segments = tri_arena_alloc(arena, (size_t)r->block_count * sizeof *m.p->segments);
    m.p->locations = TRI_NEW_ARRAY(arena, tri_location, r->edge_count + 1);
    m.p->input_bytes = 100 + (int64_t)draw(stream, &at, 500);
    for (int b = 0; b < r->block_count; b++) {
        int own = add_bundle(&m, 1 + (int64_t)draw(stream, &at, 5000), b);
        touch(&m, b, TRI_PHASE_FORWARD, own, true);
        if (r->training) touch(&m, b, last_phase(r), own, false);
        for (int phase = 0; phase < TRI_PHASE_STEP; phase++)
            m.p->segments[b][phase].scratch_bytes = (int64_t)draw(stream, &at, 3000);
        m.p->segments[b][TRI_PHASE_FORWARD].reads_inputs = b == 0 || draw(stream, &at, 5) == 0;
        if (b == 0 || r->blocks[b - 1].stage != r->blocks[b].stage) continue;
        for (int back = 0; back <= r->training; back++) {
            int bundle = add_bundle(&m, 1 + (int64_t)draw(stream, &at, 5000), -1);
            tri_phase phase = back ? TRI_PHASE_BACKWARD : TRI_PHASE_FORWARD;
            touch(&m, back ? b : b - 1, phase, bundle, true);
            touch(&m, back ? b - 1 : b, phase, bundle, false);
            if (r->training && draw(stream, &at, 2))
                touch(&m, back ? b - 1 : b, last_phase(r), bundle, false);
        }
    }
    for (int e = 0; e < r->edge_count; e++) {
        const tri_edge *edge = &r->edges[e];
        int bundle = shared_bundle(m.p, r, e);
        if (bundle < 0 || draw(stream, &at, 2))
            bundle = add_bundle(&m, 64 * (1 + (int64_t)draw(stream, &at, 3)), -1);
        m.p->locations[e + 1] = (tri_location){TRI_LOCATION_BUNDLE, bundle, 0};
        tri_phase phase = edge->back ? TRI_PHASE_BACKWARD : TRI_PHASE_FORWARD;
        touch(&m, edge->from_block, phase, bundle, true);
        touch(&m, edge->to_block, phase, bundle, false);
        if (r->training && draw(stream, &at, 2))
            touch(&m, edge->to_block, last_phase(r), bundle, false);
    }
    return m.p;
}

// ---- following a schedule

enum { MOST_READERS = 8 };

// Which actions have used 64 bytes of a heap. Lanes (communication, storage, …) run at the same
// time. So an action that writes these bytes has to wait for all actions that used them before, and
// an action that reads these bytes has to wait for the action that wrote them.
typedef struct cell {
    uint32_t tag;                  // identifies the data that these bytes hold now
    int writer;                    // the action that wrote these data, plus 1; 0: none
    int readers[MOST_READERS];     // the actions that have read these data, plus 1; 0: none
    int earlier[MOST_READERS + 1]; // the actions that used the previous data, plus 1; 0: none
} cell;

typedef struct follower {
    const schedule_case *c;
    const tri_schedule *schedule;
    const tri_schedule_request *r;
    const tri_step_memory_request *m;
    const tri_step_memory *memory;
    cell *cells[TRI_HEAP_COUNT];
    uint64_t *before; // by action: a bit for each action that is done before it begins
    int words;        // how many words of 64 bits `before` has for each action
    // By slot of gathered parameters or gradients: how often their contents were replaced so far,
    // so that the test notices if an action reads earlier contents.
    uint32_t *version;
    int action;
    const char *rule; // the first rule that an action breaks; NULL: none
    int rule_action;  // the action that breaks `rule`
} follower;

// Notes the first rule that is broken.
static void broken(follower *f, const char *rule) {
    if (f->rule) return;
    f->rule = rule;
    f->rule_action = f->action;
}

static uint32_t tag_of(const follower *f, int slot, int round) {
    bool of_bucket = tri_slot_is_of_bucket(f->m->flat, slot);
    uint32_t instance = of_bucket                  ? f->version[slot]
                        : slot == TRI_SLOT_SCRATCH ? (uint32_t)f->action
                                                   : (uint32_t)round;
    return 1 + (uint32_t)slot * 512 + instance % 512;
}

static bool is_before(const follower *f, int action) {
    return f->before[(int64_t)f->action * f->words + action / 64] >> (action % 64) & 1;
}

static void add_before(follower *f, int action) {
    uint64_t *mine = f->before + (int64_t)f->action * f->words;
    const uint64_t *other = f->before + (int64_t)action * f->words;
    for (int i = 0; i < f->words; i++) mine[i] |= other[i];
    mine[action / 64] |= UINT64_C(1) << (action % 64);
}

static void read_cell(follower *f, cell *c, uint32_t tag) {
    if (c->tag != tag) broken(f, "reads what has gone");
    if (c->writer && c->writer - 1 != f->action && !is_before(f, c->writer - 1))
        broken(f, "reads what it does not wait for");
    for (int k = 0; k < MOST_READERS; k++) {
        bool covered =
            c->readers[k] == 0 || c->readers[k] - 1 == f->action || is_before(f, c->readers[k] - 1);
        if (!covered) continue;
        c->readers[k] = f->action + 1;
        return;
    }
    fail_msg("too many readers at once");
}

// Checks the second of two messages that bring the same value to two stages of one rank: it writes
// the bytes that the first one wrote. So it need not wait for the actions that read these bytes,
// and they need not wait for it. It only has to wait for the actions that used the memory's earlier
// contents.
static void receive_again(follower *f, const cell *c) {
    for (int k = 0; k <= MOST_READERS; k++)
        if (c->earlier[k] && !is_before(f, c->earlier[k] - 1))
            broken(f, "does not wait for who used what it overwrites");
}

static void write_cell(follower *f, cell *c, uint32_t tag) {
    if (c->tag == tag &&
        tri_action_subject(f->schedule->actions[f->action].kind) == TRI_SUBJECT_EDGE)
        return receive_again(f, c);
    if (c->tag != tag) {
        c->earlier[MOST_READERS] = c->writer;
        memcpy(c->earlier, c->readers, sizeof c->readers);
    }
    if (c->writer && c->writer - 1 != f->action && !is_before(f, c->writer - 1))
        broken(f, "does not wait for who wrote what it overwrites");
    for (int k = 0; k < MOST_READERS; k++) {
        int reader = c->readers[k] - 1;
        if (reader >= 0 && reader != f->action && !is_before(f, reader))
            broken(f, "does not wait for who reads what it overwrites");
        c->readers[k] = 0;
    }
    c->tag = tag;
    c->writer = f->action + 1;
}

static void access(follower *f, int slot, int64_t size_bytes, bool writes) {
    const tri_action *a = &f->schedule->actions[f->action];
    tri_heap heap = TRI_HEAP_COUNT;
    uint32_t tag = tag_of(f, slot, a->round);
    if (size_bytes == 0) return;
    int64_t offset = -1;
    for (int k = f->memory->first[f->action]; k < f->memory->first[f->action + 1]; k++)
        if (f->memory->settings[k].slot == slot) {
            offset = f->memory->settings[k].offset;
            heap = f->memory->buffers[f->memory->settings[k].buffer].heap;
        }
    if (offset < 0) {
        broken(f, "has no place for what it touches");
        return;
    }
    int64_t first = offset / ALIGNMENT;
    int64_t end = (offset + size_bytes + ALIGNMENT - 1) / ALIGNMENT;
    assert_true(end * ALIGNMENT <= f->memory->heap_bytes[heap]);
    for (int64_t i = first; i < end; i++) {
        if (writes)
            write_cell(f, &f->cells[heap][i], tag);
        else
            read_cell(f, &f->cells[heap][i], tag);
    }
}

static void unit_access(follower *f, int unit, bool gradients, tri_bucket_kind bucket,
                        bool writes) {
    int64_t elements = f->m->flat->units[unit].buckets[bucket].elements;
    bool is_half = tri_bucket_is_half(bucket) && !gradients;
    access(f, gradients ? tri_slot_gradients(unit, bucket) : tri_slot_parameters(unit, bucket),
           elements * (is_half ? 2 : 4), writes);
}

static void follow_segment(follower *f, const tri_action *a, tri_phase phase) {
    const tri_program *p = f->m->programs[a->round];
    const tri_segment *s = &p->segments[a->subject][phase];
    if (s->reads_inputs) access(f, TRI_SLOT_INPUTS, p->input_bytes, false);
    for (int i = 0; i < s->bundle_count; i++) {
        int bundle = s->bundles[i];
        access(f, tri_slot_bundle(f->m->flat, bundle), p->bundles[bundle].size_bytes, s->writes[i]);
    }
}

static bool places_gradients(const follower *f) {
    return f->r->training && (f->m->scatters_rounds || f->m->packs_gradients);
}

static bool runs_phase(const tri_action *a, tri_phase phase) {
    bool whole = a->kind == TRI_ACTION_BACKWARD;
    if (phase == TRI_PHASE_BACKWARD) return whole || a->kind == TRI_ACTION_BACKWARD_INPUT;
    if (phase == TRI_PHASE_WEIGHT) return whole || a->kind == TRI_ACTION_BACKWARD_WEIGHT;
    return phase == TRI_PHASE_FORWARD &&
           (a->kind == TRI_ACTION_FORWARD || a->kind == TRI_ACTION_RECOMPUTE);
}

// In this simulation an action writes its scratch memory before it accesses anything else, and
// reads it at the end. So an error is found if other memory that the action uses overlaps its
// scratch memory.
static void follow_scratch(follower *f, const tri_action *a, bool writes) {
    const tri_segment *segments = f->m->programs[a->round]->segments[a->subject];
    for (int phase = 0; phase < TRI_PHASE_STEP && f->m->packs_scratch; phase++)
        if (runs_phase(a, (tri_phase)phase))
            access(f, TRI_SLOT_SCRATCH, segments[phase].scratch_bytes, writes);
}

static void follow_compute(follower *f, const tri_action *a) {
    const tri_schedule_block *b = &f->r->blocks[a->subject];
    bool forward = a->kind == TRI_ACTION_FORWARD, again = a->kind == TRI_ACTION_RECOMPUTE;
    follow_scratch(f, a, true);
    for (int phase = 0; phase < TRI_PHASE_STEP; phase++)
        if (runs_phase(a, (tri_phase)phase)) follow_segment(f, a, (tri_phase)phase);
    for (int k = 0; k < b->unit_count; k++)
        for (int i = 0; i < TRI_BUCKET_COUNT; i++) {
            tri_bucket_kind bucket = (tri_bucket_kind)i;
            if (f->m->releases) unit_access(f, b->units[k], false, bucket, false);
            if (!places_gradients(f) || !tri_bucket_has_gradients(bucket) || again) continue;
            if (forward != (bucket == TRI_BUCKET_STATISTIC) || a->kind == TRI_ACTION_BACKWARD_INPUT)
                continue;
            if (a->adds >> k & 1) unit_access(f, b->units[k], true, bucket, false);
            unit_access(f, b->units[k], true, bucket, true);
        }
    follow_scratch(f, a, false);
}

static void follow_unit(follower *f, const tri_action *a) {
    for (int i = 0; i < TRI_BUCKET_COUNT; i++) {
        tri_bucket_kind bucket = (tri_bucket_kind)i;
        if (a->kind == TRI_ACTION_GATHER && f->m->releases) {
            f->version[tri_slot_parameters(a->subject, bucket)]++;
            unit_access(f, a->subject, false, bucket, true);
        }
        if (!places_gradients(f) || !tri_bucket_has_gradients(bucket)) continue;
        if (a->kind == TRI_ACTION_CLEAR) unit_access(f, a->subject, true, bucket, true);
        if (a->kind == TRI_ACTION_STEP && f->m->packs_gradients)
            unit_access(f, a->subject, true, bucket, false);
        if (a->kind != TRI_ACTION_SCATTER) continue;
        unit_access(f, a->subject, true, bucket, false);
        f->version[tri_slot_gradients(a->subject, bucket)]++;
    }
}

// NORM reads the gradients of all units (parameters that are reduced together).
static void follow_norm(follower *f) {
    for (int u = 0; u < f->r->unit_count; u++)
        for (int i = 0; i < TRI_BUCKET_COUNT && f->r->units[u].here; i++)
            if (tri_bucket_has_gradients((tri_bucket_kind)i))
                unit_access(f, u, true, (tri_bucket_kind)i, false);
}

// Records which actions are done before this action begins: those on which it depends and, in a
// lane that runs its actions in order, the one before it. The two lanes of messages between stages
// keep no order.
static void begin(follower *f, const tri_action *a) {
    tri_lane lane = tri_action_lane(a->kind);
    for (int d = 0; d < a->dependency_count; d++)
        add_before(f, f->schedule->dependencies[a->first_dependency + d]);
    if (lane == TRI_LANE_ALONG || lane == TRI_LANE_BACK) return;
    for (int i = f->action - 1; i >= 0; i--)
        if (tri_action_lane(f->schedule->actions[i].kind) == lane) {
            add_before(f, i);
            return;
        }
}

static void forget(follower *f) {
    memset(f->version, 0, (size_t)tri_slot_bundle(f->m->flat, 0) * sizeof *f->version);
    memset(f->before, 0, (size_t)f->schedule->count * (size_t)f->words * sizeof *f->before);
    for (int k = 0; k < TRI_HEAP_COUNT; k++)
        memset(f->cells[k], 0, (size_t)(f->memory->heap_bytes[k] / ALIGNMENT + 1) * sizeof(cell));
    f->rule = NULL;
}

static void follow(follower *f) {
    forget(f);
    for (f->action = 0; f->action < f->schedule->count; f->action++) {
        const tri_action *a = &f->schedule->actions[f->action];
        begin(f, a);
        tri_subject subject = tri_action_subject(a->kind);
        if (subject == TRI_SUBJECT_BLOCK) follow_compute(f, a);
        if (subject == TRI_SUBJECT_UNIT) follow_unit(f, a);
        if (a->kind == TRI_ACTION_NORM && f->m->packs_gradients) follow_norm(f);
        if (a->kind == TRI_ACTION_TAKE)
            access(f, TRI_SLOT_INPUTS, f->m->programs[a->round]->input_bytes, true);
        if (subject != TRI_SUBJECT_EDGE) continue;
        const tri_program *p = f->m->programs[a->round];
        int bundle = p->locations[a->subject + 1].index;
        bool receives = a->kind == TRI_ACTION_RECV_ALONG || a->kind == TRI_ACTION_RECV_BACK;
        access(f, tri_slot_bundle(f->m->flat, bundle), p->bundles[bundle].size_bytes, receives);
    }
}

// Leaves out one dependency at a time. The verification then has to refuse the schedule if some
// action could find another's data in its memory. If it does not refuse the schedule, other
// dependencies must give the same order.
static void check_each_dependency(follower *f) {
    tri_schedule *s = (tri_schedule *)(uintptr_t)f->schedule;
    for (int i = 0; i < s->count; i++) {
        tri_action *a = &s->actions[i];
        for (int d = 0; d < a->dependency_count; d++) {
            int *kept = &s->dependencies[a->first_dependency], last = a->dependency_count - 1;
            int dropped = kept[d];
            kept[d] = kept[last];
            a->dependency_count--;
            bool refused = tri_schedule_verify(s, f->r) != TRI_OK ||
                           tri_step_memory_verify(f->memory, s) != TRI_OK;
            follow(f);
            if (f->rule && !refused)
                fail_msg("%s: the verification misses that action %d %s", schedule_case_text(f->c),
                         f->rule_action, f->rule);
            f->action = i;
            if (!refused && !f->rule && !is_before(f, dropped))
                fail_msg("%s: action %d does not need to wait for %d", schedule_case_text(f->c), i,
                         dropped);
            a->dependency_count++;
            kept[last] = kept[d];
            kept[d] = dropped;
        }
    }
}

static void check_rank(const schedule_case *c, schedule_set *set, int rank, uint64_t stream,
                       bool drops) {
    tri_arena *arena = set->arena;
    tri_schedule_request *r = &set->requests[rank];
    tri_flat flat = make_flat(arena, r, stream);
    int rounds = r->rounds;
    tri_program *full = make_program(arena, r, stream), *tail = make_program(arena, r, stream + 1);
    tri_program **programs = TRI_NEW_ARRAY(arena, tri_program *, rounds);
    const tri_edge_value **edge_values = TRI_NEW_ARRAY(arena, const tri_edge_value *, rounds);
    const int **edges = TRI_NEW_ARRAY(arena, const int *, rounds);
    int *counts = TRI_NEW_ARRAY(arena, int, rounds);
    tri_edge_value *all = TRI_NEW_ARRAY(arena, tri_edge_value, r->edge_count);
    int *numbers = TRI_NEW_ARRAY(arena, int, r->edge_count);
    for (int e = 0; e < r->edge_count; e++) {
        all[e].value.id = (uint32_t)e + 1;
        numbers[e] = e;
    }
    for (int i = 0; i < rounds; i++) {
        if (r->round_sizes[i] == 0) continue;
        programs[i] = r->round_sizes[i] == 4 ? full : tail;
        edge_values[i] = all;
        edges[i] = numbers;
        counts[i] = r->edge_count;
    }
    bool sharded = r->shard > 1;
    tri_step_memory_request m = {.schedule = &set->schedules[rank],
                                 .schedule_request = r,
                                 .flat = &flat,
                                 .programs = programs,
                                 .edge_values = edge_values,
                                 .edge_of_value = edges,
                                 .edge_value_count = counts,
                                 .alignment = ALIGNMENT,
                                 .releases = r->strategy->shards_parameters && sharded,
                                 .scatters_rounds =
                                     r->deterministic || (r->strategy->shards_gradients && sharded),
                                 .packs_scratch = stream % 2};
    m.packs_gradients =
        !m.scatters_rounds && r->pipeline == 1 && r->replicate == 1 && r->shard == 1;
    tri_step_memory memory;
    tri_step_memory_plan(arena, &m, &memory);
    tri_schedule_find_dependencies(&set->schedules[rank], r, memory.waits, memory.wait_count);
    if (tri_schedule_verify(&set->schedules[rank], r) != TRI_OK ||
        tri_step_memory_verify(&memory, &set->schedules[rank]) != TRI_OK)
        fail_msg("%s: %s", schedule_case_text(c), tri_error_message());
    follower *f = TRI_NEW(arena, follower);
    *f = (follower){.c = c, .schedule = &set->schedules[rank], .r = r, .m = &m, .memory = &memory};
    f->version = TRI_NEW_ARRAY(arena, uint32_t, tri_slot_bundle(&flat, 0));
    for (int k = 0; k < TRI_HEAP_COUNT; k++)
        f->cells[k] = TRI_NEW_ARRAY(arena, cell, memory.heap_bytes[k] / ALIGNMENT + 1);
    f->words = f->schedule->count / 64 + 1;
    f->before = TRI_NEW_ARRAY(arena, uint64_t, (int64_t)f->schedule->count * f->words);
    follow(f);
    const tri_action *a = &f->schedule->actions[f->rule_action];
    if (f->rule)
        fail_msg("%s: rank %d: action %d (%s %d, round %d): %s", schedule_case_text(c),
                 r->pipeline_rank, f->rule_action, tri_action_name(a->kind), a->subject, a->round,
                 f->rule);
    if (drops && f->schedule->dependency_count < 200) check_each_dependency(f);
}

static void check(const schedule_case *c, uint64_t stream, bool drops) {
    schedule_set set;
    schedule_set_make(c, &set);
    for (int rank = 0; rank < set.mesh.ranks; rank++) check_rank(c, &set, rank, stream, drops);
    // Actions also wait until memory is free. These waits must not cause a deadlock between ranks.
    if (tri_schedule_verify_ranks(&set.mesh, set.schedules, set.requests) != TRI_OK)
        fail_msg("%s: %s", schedule_case_text(c), tri_error_message());
    schedule_set_destroy(&set);
}

static void test_random_schedules(void **state) {
    (void)state;
    static const char *const strategies[] = {"ddp", "zero1", "zero2", "fsdp"};
    for (uint64_t i = 0; i < 1500; i++) {
        uint32_t at = 0;
        int orders = 0;
        while (tri_orders[orders]) orders++;
        const tri_order *order = tri_orders[draw(i, &at, (uint32_t)orders)];
        schedule_case c = {.strategy = strategies[draw(i, &at, 4)],
                           .order = order->name,
                           .pipeline = 1 + (int)draw(i, &at, 4),
                           .replicate = 1 + (int)draw(i, &at, 2),
                           .shard = 1 + (int)draw(i, &at, 2),
                           .blocks_per_stage = 1 + (int)draw(i, &at, 4),
                           .micro_batches = 1 + (int)draw(i, &at, 24),
                           .deterministic = draw(i, &at, 4) == 0,
                           .reshards = draw(i, &at, 2),
                           .evaluates = draw(i, &at, 4) == 0,
                           .skips = draw(i, &at, 2),
                           .recompute = draw(i, &at, 2),
                           .prefetch = (int)draw(i, &at, 3),
                           .takes_ahead = draw(i, &at, 2)};
        if (order->loops_over_stages && c.pipeline > 1)
            c.stages_per_rank = 1 + (int)draw(i, &at, 3);
        if (!strcmp(c.strategy, "ddp")) c.shard = 1;
        check(&c, i, i % 5 == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
