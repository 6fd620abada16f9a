// Tests schedules with an imitation of the engine that needs no model: all ranks of a mesh follow
// their schedules, the output of a block is a hash of what the block reads, and memory without
// valid content holds random numbers. If every rank then steps with the same sum of gradients as a
// run of one rank, no value was missing, outdated, added twice or mixed up with another. A block is
// a layer or a group of layers, a unit is parameters that are reduced together, and an edge is the
// values that a block sends to another stage of the pipeline.
#include "support/schedule_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u)) * 0xff51afd7ed558ccdu;
    x ^= x >> 32;
    x *= 0xc4ceb9fe1a85ec53u;
    return x ^ (x >> 29);
}

static uint64_t parameters_of(int unit) { return mix(3, (uint64_t)unit); }

typedef struct sums {
    // Sums of gradients, by the actions that make them (tri_gradient_source): FORWARD,
    // BACKWARD_INPUT, or BACKWARD and BACKWARD_WEIGHT.
    uint64_t statistics, input, rest;
} sums;

// One rank's memory.
typedef struct rank_memory {
    int next;
    uint64_t *parameters; // by unit
    // By unit. `gradients`: the sums that compute actions have made. `own_sums`, if the schedule
    // has SCATTER: the sums over ranks that SCATTER has made for this rank's shard.
    sums *gradients, *own_sums;
    // By block and micro-batch. `outputs`: what other blocks read of the block's results.
    // `internal`: what its BACKWARD reads.
    uint64_t *outputs, *internal;
    uint64_t *back;  // by block and micro-batch: the gradient of the block's input
    bool *receiving; // by edge and micro-batch: this rank has begun to receive
    int stepped;
} rank_memory;

typedef struct machine {
    const schedule_case *described;
    const schedule_set *set;
    rank_memory *ranks;
    // By pipeline (numbered by its lowest rank), edge and micro-batch: the value that was sent; 0:
    // none yet.
    uint64_t *mail;
    sums *wanted; // by unit: the sums of gradients that STEP must find
    uint64_t noise;
} machine;

static uint64_t noise(machine *m) { return m->noise = mix(m->noise, 1); }

static sums noisy(machine *m) { return (sums){noise(m), noise(m), noise(m)}; }

static size_t at(const tri_schedule_request *r, int which, int round) {
    return (size_t)which * (size_t)r->rounds + (size_t)round;
}

static uint64_t *mail_at(const machine *m, int rank, int edge, int round) {
    const tri_schedule_request *r = &m->set->requests[rank];
    int pipelines = m->set->mesh.ranks / r->pipeline;
    return &m->mail[(size_t)(rank % pipelines) * at(r, r->edge_count, 0) + at(r, edge, round)];
}

// Returns the number of a rank's micro-batch among those of all replicas in the step.
static uint64_t number_of(const machine *m, int rank, int round) {
    return (uint64_t)(round * tri_mesh_replicas(&m->set->mesh) +
                      tri_mesh_replica(&m->set->mesh, rank));
}

// Returns a hash of all that a block reads. In the forward pass these are the block's number, the
// micro-batch's number, the parameters, the output of the block before it, and values of other
// stages. In the backward pass they are what the block kept, the parameters, the gradient of the
// block after it, and gradients of other stages.
static uint64_t compute(const machine *m, int rank, int block, int round, bool back,
                        const uint64_t *parameters) {
    const tri_schedule_request *r = &m->set->requests[rank];
    const rank_memory *memory = &m->ranks[rank];
    const tri_schedule_block *b = &r->blocks[block];
    const uint64_t *values = back ? memory->back : memory->outputs;
    uint64_t value = mix((uint64_t)block, number_of(m, rank, round));
    if (back) value = memory->internal[at(r, block, round)];
    for (int k = 0; k < b->unit_count; k++)
        if (r->units[b->units[k]].bytes) value = mix(value, parameters[b->units[k]]);
    int other = back ? block + 1 : block - 1;
    if (other >= 0 && other < r->block_count && r->blocks[other].stage == b->stage)
        value = mix(value, values[at(r, other, round)]);
    for (int e = 0; e < r->edge_count; e++) {
        const tri_edge *edge = &r->edges[e];
        if (edge->to_block != block || edge->back != back) continue;
        bool local = edge->from_stage % r->pipeline == r->pipeline_rank;
        uint64_t read =
            local ? values[at(r, edge->from_block, round)] : *mail_at(m, rank, e, round);
        value = mix(value, read);
    }
    return value;
}

// Whether all values that the block reads from other pipeline ranks have arrived: this rank has
// begun to receive them, and the other rank has sent them.
static bool has_received(const machine *m, int rank, int block, int round, bool back) {
    const tri_schedule_request *r = &m->set->requests[rank];
    for (int e = 0; e < r->edge_count; e++) {
        const tri_edge *edge = &r->edges[e];
        if (edge->to_block != block || edge->back != back) continue;
        if (edge->from_stage % r->pipeline == r->pipeline_rank) continue;
        if (!m->ranks[rank].receiving[at(r, e, round)])
            fail_msg("edge %d is read before its RECV", e);
        if (!*mail_at(m, rank, e, round)) return false;
    }
    return true;
}

static bool is_shared(const tri_schedule_request *r, int unit) { return unit == r->unit_count - 1; }

// Whether one half of BACKWARD (BACKWARD_INPUT if `input`, else BACKWARD_WEIGHT) makes a gradient
// of the unit. A unit that blocks share has one parameter: block 0 makes its gradient in the first
// half, the other blocks in the second.
static bool makes_gradient(const tri_schedule_request *r, int block, int unit, bool input) {
    return !is_shared(r, unit) || input == (block == 0);
}

static uint64_t *half_of(const tri_schedule_request *r, sums *s, int unit, bool input) {
    return input && !is_shared(r, unit) ? &s->input : &s->rest;
}

static uint64_t gradient_of(uint64_t back, int unit, bool input) {
    return mix(back, (uint64_t)(2 * unit + input));
}

static void add(uint64_t *sum, uint64_t value, bool adds) { *sum = adds ? *sum + value : value; }

// Runs the action. False: it has to wait.
static bool run_compute(machine *m, int rank, const tri_action *a) {
    const tri_schedule_request *r = &m->set->requests[rank];
    rank_memory *memory = &m->ranks[rank];
    const tri_schedule_block *b = &r->blocks[a->subject];
    size_t here = at(r, a->subject, a->round);
    bool back = a->kind == TRI_ACTION_BACKWARD || a->kind == TRI_ACTION_BACKWARD_INPUT;
    if (!has_received(m, rank, a->subject, a->round, back)) return false;
    if (a->kind == TRI_ACTION_FORWARD || a->kind == TRI_ACTION_RECOMPUTE) {
        uint64_t value = compute(m, rank, a->subject, a->round, false, memory->parameters);
        memory->internal[here] = a->forgets ? noise(m) : value;
        if (a->kind == TRI_ACTION_RECOMPUTE) return true;
        memory->outputs[here] = value;
        for (int k = 0; k < b->unit_count; k++)
            if (r->training && r->units[b->units[k]].has_statistics)
                add(&memory->gradients[b->units[k]].statistics, mix(value, 5), (a->adds >> k) & 1);
        return true;
    }
    if (back) memory->back[here] = compute(m, rank, a->subject, a->round, true, memory->parameters);
    for (int half = 0; half < 2; half++) {
        bool input = half == 0, whole = a->kind == TRI_ACTION_BACKWARD;
        if (!whole && input != (a->kind == TRI_ACTION_BACKWARD_INPUT)) continue;
        for (int k = 0; k < b->unit_count; k++) {
            int u = b->units[k];
            if (r->units[u].has_gradients && makes_gradient(r, a->subject, u, input))
                add(half_of(r, &memory->gradients[u], u, input),
                    gradient_of(memory->back[here], u, input), a->adds >> k & 1);
        }
    }
    return true;
}

static sums *reduced(const machine *m, int rank, int unit) {
    rank_memory *memory = &m->ranks[rank];
    bool scatters = tri_schedule_scatters(&m->set->requests[rank]);
    return scatters ? &memory->own_sums[unit] : &memory->gradients[unit];
}

// Finds the ranks that take part in a collective. Returns how many they are; 0: not all of them
// have reached it yet.
static int find_members(const machine *m, int rank, const tri_action *a, int *members) {
    const tri_mesh *mesh = &m->set->mesh;
    static const int axes[TRI_ACTION_KIND_COUNT] = {[TRI_ACTION_GATHER] = TRI_AXIS_SHARD,
                                                    [TRI_ACTION_SCATTER] = TRI_AXIS_SHARD,
                                                    [TRI_ACTION_REDUCE] = TRI_AXIS_REPLICATE,
                                                    [TRI_ACTION_TIE] = TRI_AXIS_PIPELINE};
    int count = 0;
    for (int other = 0; other < mesh->ranks; other++) {
        bool member = true;
        for (int i = 0; i < TRI_AXIS_COUNT; i++)
            member =
                member && (i == axes[a->kind] || tri_mesh_coordinate(mesh, rank, (tri_axis)i) ==
                                                     tri_mesh_coordinate(mesh, other, (tri_axis)i));
        if (a->kind == TRI_ACTION_TIE && !m->set->requests[other].units[a->subject].here)
            member = false;
        if (!member && a->kind != TRI_ACTION_NORM) continue;
        const tri_schedule *s = &m->set->schedules[other];
        const tri_action *b = &s->actions[m->ranks[other].next];
        bool there = m->ranks[other].next < s->count && b->kind == a->kind &&
                     b->subject == a->subject && b->accumulate == a->accumulate;
        if (!there) return 0;
        members[count++] = other;
    }
    return count;
}

static bool run_collective(machine *m, int rank, const tri_action *a) {
    int members[64], u = a->subject;
    int count = find_members(m, rank, a, members);
    if (count == 0) return false;
    sums sum = {0};
    for (int i = 0; i < count; i++) {
        rank_memory *memory = &m->ranks[members[i]];
        if (a->kind == TRI_ACTION_NORM || a->kind == TRI_ACTION_GATHER) continue;
        sums *part =
            a->kind == TRI_ACTION_SCATTER ? &memory->gradients[u] : reduced(m, members[i], u);
        sum.statistics += part->statistics;
        sum.input += part->input;
        sum.rest += part->rest;
    }
    for (int i = 0; i < count; i++) {
        rank_memory *memory = &m->ranks[members[i]];
        memory->next++;
        if (a->kind == TRI_ACTION_GATHER) memory->parameters[u] = parameters_of(u);
        if (a->kind == TRI_ACTION_REDUCE || a->kind == TRI_ACTION_TIE)
            *reduced(m, members[i], u) = sum;
        if (a->kind != TRI_ACTION_SCATTER) continue;
        add(&memory->own_sums[u].input, sum.input, a->accumulate);
        add(&memory->own_sums[u].rest, sum.rest, a->accumulate);
        add(&memory->own_sums[u].statistics, sum.statistics, a->accumulate);
        if (tri_schedule_scatters_rounds(&m->set->requests[members[i]]))
            memory->gradients[u] = noisy(m);
    }
    return true;
}

static void step(machine *m, int rank, int u) {
    const tri_schedule_request *r = &m->set->requests[rank];
    rank_memory *memory = &m->ranks[rank];
    const sums *got = reduced(m, rank, u);
    if (got->rest != m->wanted[u].rest || (!is_shared(r, u) && got->input != m->wanted[u].input) ||
        (r->units[u].has_statistics && got->statistics != m->wanted[u].statistics))
        fail_msg("%s: rank %d steps unit %d with a wrong sum", schedule_case_text(m->described),
                 rank, u);
    memory->stepped++;
}

static bool run_next(machine *m, int rank) {
    rank_memory *memory = &m->ranks[rank];
    const tri_schedule_request *r = &m->set->requests[rank];
    if (memory->next == m->set->schedules[rank].count) return false;
    const tri_action *a = &m->set->schedules[rank].actions[memory->next];
    switch (a->kind) {
    case TRI_ACTION_GATHER:
    case TRI_ACTION_SCATTER:
    case TRI_ACTION_REDUCE:
    case TRI_ACTION_TIE:
    case TRI_ACTION_NORM:
        return run_collective(m, rank, a);
    case TRI_ACTION_RELEASE:
        memory->parameters[a->subject] = noise(m);
        break;
    case TRI_ACTION_CLEAR:
        memory->gradients[a->subject] = (sums){0};
        break;
    case TRI_ACTION_SEND_ALONG:
    case TRI_ACTION_SEND_BACK: {
        const uint64_t *values = r->edges[a->subject].back ? memory->back : memory->outputs;
        *mail_at(m, rank, a->subject, a->round) =
            values[at(r, r->edges[a->subject].from_block, a->round)];
        break;
    }
    case TRI_ACTION_RECV_ALONG:
    case TRI_ACTION_RECV_BACK:
        memory->receiving[at(r, a->subject, a->round)] = true;
        break;
    case TRI_ACTION_STEP:
    case TRI_ACTION_HOST_STEP:
        step(m, rank, a->subject);
        break;
    case TRI_ACTION_TAKE:
    case TRI_ACTION_FETCH:
    case TRI_ACTION_LOAD:
    case TRI_ACTION_PREPARE:
    case TRI_ACTION_EVICT:
    case TRI_ACTION_DOWNLOAD:
    case TRI_ACTION_UPLOAD:
        break;
    default:
        if (!run_compute(m, rank, a)) return false;
    }
    memory->next++;
    return true;
}

static void start_rank(machine *m, int rank, bool gathered) {
    tri_arena *arena = m->set->arena;
    const tri_schedule_request *r = &m->set->requests[rank];
    rank_memory *memory = &m->ranks[rank];
    memory->parameters = TRI_NEW_ARRAY(arena, uint64_t, r->unit_count);
    memory->gradients = TRI_NEW_ARRAY(arena, sums, r->unit_count);
    memory->own_sums = TRI_NEW_ARRAY(arena, sums, r->unit_count);
    memory->outputs = TRI_NEW_ARRAY(arena, uint64_t, at(r, r->block_count, 0));
    memory->internal = TRI_NEW_ARRAY(arena, uint64_t, at(r, r->block_count, 0));
    memory->back = TRI_NEW_ARRAY(arena, uint64_t, at(r, r->block_count, 0));
    memory->receiving = TRI_NEW_ARRAY(arena, bool, at(r, r->edge_count, 0));
    for (int u = 0; u < r->unit_count; u++) {
        memory->parameters[u] = gathered ? parameters_of(u) : noise(m);
        memory->gradients[u] = noisy(m);
        memory->own_sums[u] = noisy(m);
    }
}

// Finds the wanted sums of gradients: one rank that holds all blocks goes through all micro-batches
// of all replicas.
static void find_wanted(machine *m, const tri_schedule_request *like) {
    schedule_set alone = *m->set;
    tri_schedule_request request = *like;
    request.pipeline = 1;
    request.pipeline_rank = 0;
    machine one = {.set = &alone, .ranks = TRI_NEW(m->set->arena, rank_memory)};
    alone.requests = &request;
    m->wanted = TRI_NEW_ARRAY(m->set->arena, sums, request.unit_count);
    // One replica, which computes all micro-batches of the step.
    alone.mesh = (tri_mesh){.size = {1, 1, 1, 1}, .ranks = 1};
    request.rounds = m->described->micro_batches;
    int last = request.block_count - 1;
    start_rank(&one, 0, true);
    for (int j = 0; j < m->described->micro_batches; j++) {
        rank_memory *memory = one.ranks;
        for (int b = 0; b <= last; b++) {
            uint64_t value = compute(&one, 0, b, j, false, memory->parameters);
            memory->outputs[at(&request, b, j)] = memory->internal[at(&request, b, j)] = value;
            for (int k = 0; k < request.blocks[b].unit_count; k++)
                m->wanted[request.blocks[b].units[k]].statistics += mix(value, 5);
        }
        for (int b = last; b >= 0; b--) {
            uint64_t value = compute(&one, 0, b, j, true, memory->parameters);
            memory->back[at(&request, b, j)] = value;
            for (int k = 0; k < request.blocks[b].unit_count; k++) {
                int u = request.blocks[b].units[k];
                for (int input = 0; input < 2; input++)
                    if (makes_gradient(&request, b, u, input))
                        *half_of(&request, &m->wanted[u], u, input) += gradient_of(value, u, input);
            }
        }
    }
}

static void check(const schedule_case *c) {
    schedule_set set;
    schedule_set_make(c, &set);
    machine m = {.described = c, .set = &set, .noise = 77};
    const tri_schedule_request *r = &set.requests[0];
    m.ranks = TRI_NEW_ARRAY(set.arena, rank_memory, set.mesh.ranks);
    int pipelines = set.mesh.ranks / r->pipeline;
    m.mail = TRI_NEW_ARRAY(set.arena, uint64_t, (size_t)pipelines * at(r, r->edge_count, 0));
    find_wanted(&m, r);
    for (int rank = 0; rank < set.mesh.ranks; rank++)
        start_rank(&m, rank, !tri_schedule_gathers(&set.requests[rank]));
    bool any = true;
    while (any) {
        any = false;
        for (int rank = 0; rank < set.mesh.ranks; rank++)
            while (run_next(&m, rank)) any = true;
    }
    for (int rank = 0; rank < set.mesh.ranks; rank++) {
        if (m.ranks[rank].next < set.schedules[rank].count)
            fail_msg("%s: rank %d stops at action %d", schedule_case_text(c), rank,
                     m.ranks[rank].next);
        int held = 0;
        for (int u = 0; u < r->unit_count; u++)
            held += set.requests[rank].units[u].here && r->units[u].has_gradients;
        assert_int_equal(m.ranks[rank].stepped, held);
    }
    schedule_set_destroy(&set);
}

static void test_sums(void **state) {
    (void)state;
    static const char *const strategies[] = {"ddp", "zero1", "zero2", "fsdp"};
    // The numbers of ranks along the axes pipeline, replicate, shard and tensor.
    static const int meshes[][4] = {{1, 1, 1, 1}, {1, 3, 1, 1}, {1, 1, 2, 1}, {1, 2, 2, 1},
                                    {2, 1, 1, 1}, {3, 1, 2, 1}, {4, 2, 1, 2}, {2, 2, 2, 1}};
    for (int s = 0; s < 4; s++)
        for (int o = 0; tri_orders[o]; o++)
            for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
                for (int flags = 0; flags < 32; flags++) {
                    bool looped = tri_orders[o]->loops_over_stages;
                    schedule_case c = {.strategy = strategies[s],
                                       .order = tri_orders[o]->name,
                                       .pipeline = meshes[i][0],
                                       .replicate = meshes[i][1],
                                       .shard = meshes[i][2],
                                       .tensor = meshes[i][3],
                                       .stages_per_rank = looped ? 1 + flags % 3 : 1,
                                       .blocks_per_stage = 1 + flags % 5,
                                       .micro_batches = 1 + flags * 7 % 13,
                                       .deterministic = flags & 1,
                                       .reshards = flags & 2,
                                       .skips = flags & 4,
                                       .recompute = flags & 8,
                                       .offloads = flags & 16 && flags % 7,
                                       .steps_on_host = flags & 16 && flags % 7 == 0,
                                       .offloads_masters = flags & 16 && s == 3,
                                       .prefetch = flags % 4};
                    if (s == 0 && c.shard > 1 && !c.deterministic) {
                        c.replicate *= c.shard;
                        c.shard = 1;
                    }
                    check(&c);
                }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
