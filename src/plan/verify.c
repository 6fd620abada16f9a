// Verifies one rank's schedule: goes through it action by action and checks that each action is
// allowed where it stands. A wrong schedule would train to wrong numbers or hang; this check finds
// it before anything runs. A unit is parameters that are gathered, reduced and updated together; an
// edge is the values that one stage of a pipeline sends another. verify_memory.c checks the
// schedule's memory. Read next: engine/engine.c, which runs the schedule.
#include "plan/dependencies.h"

#include <string.h>

// What has been done, as bits: to a block for a micro-batch, or (MESSAGE) to an edge for a
// micro-batch, whose values were sent or received. INPUT and WEIGHT are the two halves of BACKWARD.
enum { FORWARD = 1, RECOMPUTED = 2, INPUT = 4, WEIGHT = 8, MESSAGE = 16 };

typedef struct unit_state {
    bool gathered, was_gathered;
    // By gradient source (kind of compute action): whether the unit's memory holds gradients that
    // actions of this source have made, so that the next such action has to add to them.
    bool holds[TRI_GRADIENT_SOURCE_COUNT];
    int round; // the micro-batch whose gradients the unit's memory holds; -1: none
    // How often blocks added to the gradients so far, over all micro-batches of the step.
    int contributions;
    bool scattered, reduced, tied, fetched, loaded, stepped, prepared, evicted, downloaded,
        uploaded;
} unit_state;

typedef struct check {
    const tri_schedule_request *request;
    int index;
    const tri_action *action;
    unit_state *units;
    uint8_t *blocks, *edges; // bits of what was done to each block, or edge, for each micro-batch
    // By block: the latest micro-batch for which FORWARD has run, and the latest for BACKWARD.
    int *forwards, *backwards;
    int *expected; // by unit: how often blocks have to add to its gradients in the step
    // By unit: whether BACKWARD_INPUT and BACKWARD_WEIGHT may write the same gradient
    // (tri_schedule_mixes_halves).
    bool *mixes_halves;
    // Linked lists of the edges that a block reads ([0]) and makes ([1]): edge_lists[k][b] is the
    // first edge of block b, next_edges[k][e] the one after edge e; -1: no more.
    int *edge_lists[2], *next_edges[2];
    // The latest micro-batch that TAKE has got from the loader, and the latest whose first FORWARD
    // has run.
    int last_taken, last_begun;
    // By micro-batch: whether TAKE has got it, and whether its first FORWARD has run.
    bool *taken, *has_begun;
    bool normed;
} check;

static tri_status broken(const check *c, const char *rule) {
    const tri_order *order = c->request->training ? c->request->order : NULL;
    return TRI_FAIL(TRI_INTERNAL, "schedule: order %s: action %d (%s %d, round %d): %s",
                    order ? order->name : "of evaluation", c->index,
                    tri_action_name(c->action->kind), c->action->subject, c->action->round, rule);
}

#define REQUIRE(condition, rule)                                                                   \
    do {                                                                                           \
        if (!(condition)) return broken(c, (rule));                                                \
    } while (0)

static bool is_here(const tri_schedule_request *r, int stage) {
    return stage % r->pipeline == r->pipeline_rank;
}

static uint8_t *block_at(const check *c, int block, int round) {
    return &c->blocks[(size_t)block * (size_t)c->request->rounds + (size_t)round];
}

static uint8_t *edge_at(const check *c, int edge, int round) {
    return &c->edges[(size_t)edge * (size_t)c->request->rounds + (size_t)round];
}

// Whether the values of all edges that the block reads have arrived, or were made by this rank. If
// not, the block may not run.
static bool has_edges(const check *c, bool back) {
    const tri_schedule_request *r = c->request;
    int block = c->action->subject, round = c->action->round;
    for (int e = c->edge_lists[0][block]; e >= 0; e = c->next_edges[0][e]) {
        const tri_edge *edge = &r->edges[e];
        if (edge->back != back) continue;
        bool came = is_here(r, edge->from_stage)
                        ? *block_at(c, edge->from_block, round) & (back ? INPUT : FORWARD)
                        : *edge_at(c, e, round) & MESSAGE;
        if (!came) return false;
    }
    return true;
}

// Whether none of the edges whose values the block makes has been sent: an edge may not be sent
// before its values are made.
static bool is_unsent(const check *c, bool back) {
    const tri_schedule_request *r = c->request;
    for (int e = c->edge_lists[1][c->action->subject]; e >= 0; e = c->next_edges[1][e])
        if (r->edges[e].back == back && *edge_at(c, e, c->action->round)) return false;
    return true;
}

// Whether every edge along the pipeline that the block makes for another rank has been sent. If
// not, RECOMPUTE may not run, because it writes the values of these edges a second time.
static bool is_sent(const check *c) {
    const tri_schedule_request *r = c->request;
    for (int e = c->edge_lists[1][c->action->subject]; e >= 0; e = c->next_edges[1][e]) {
        const tri_edge *edge = &r->edges[e];
        if (!edge->back && !is_here(r, edge->to_stage) && !*edge_at(c, e, c->action->round))
            return false;
    }
    return true;
}

static bool is_same_stage(const tri_schedule_request *r, int block, int other) {
    return other >= 0 && other < r->block_count && r->blocks[other].stage == r->blocks[block].stage;
}

// Checks that `adds` is right for each of the block's units. The unit's bit must be set exactly if
// its memory already holds gradients of the action's source (tri_gradient_source), because a wrong
// bit would lose or double gradients. Then records that the memory of all of these units holds
// gradients.
static tri_status add_to_gradients(check *c) {
    const tri_schedule_request *r = c->request;
    const tri_schedule_block *b = &r->blocks[c->action->subject];
    tri_gradient_source source = tri_action_gradient_source(c->action->kind);
    uint64_t adds = 0;
    for (int k = 0; k < b->unit_count; k++) {
        unit_state *u = &c->units[b->units[k]];
        if (!r->units[b->units[k]].has_gradients ||
            !tri_schedule_has_gradient_source(r, b->units[k], source))
            continue;
        REQUIRE(u->holds[source] || !c->mixes_halves[b->units[k]],
                "starts gradients that the other half of BACKWARD adds to");
        adds |= u->holds[source] ? UINT64_C(1) << k : 0;
        u->holds[source] = true;
        if (source != TRI_GRADIENT_REST) continue;
        REQUIRE(!u->reduced && !u->tied && !u->downloaded, "comes after the unit was reduced");
        REQUIRE(!tri_schedule_scatters_rounds_of(r, b->units[k]) || u->round < 0 ||
                    u->round == c->action->round,
                "mixes two rounds in gradients that every round scatters");
        u->round = c->action->round;
        u->contributions++;
    }
    REQUIRE(adds == c->action->adds && c->action->accumulate == (adds != 0),
            "adds to gradients that are not there, or loses some");
    return TRI_OK;
}

static tri_status follow_forward(check *c) {
    const tri_schedule_request *r = c->request;
    const tri_action *a = c->action;
    REQUIRE(!(*block_at(c, a->subject, a->round) & FORWARD), "comes twice");
    REQUIRE(!is_same_stage(r, a->subject, a->subject - 1) ||
                (*block_at(c, a->subject - 1, a->round) & FORWARD),
            "an earlier block did not go forward in this round");
    REQUIRE(has_edges(c, false) && is_unsent(c, false), "reads what has not come, or was sent");
    REQUIRE(a->round > c->forwards[a->subject], "comes after a later round");
    REQUIRE(c->taken[a->round], "comes before the round's batch was taken");
    REQUIRE(a->begins_round == !c->has_begun[a->round], "begins the round twice, or not at all");
    REQUIRE(!a->begins_round || a->round > c->last_begun, "begins rounds out of order");
    REQUIRE(a->forgets == (r->training && r->blocks[a->subject].recompute),
            "forgets what BACKWARD needs, or keeps what it does not");
    c->forwards[a->subject] = a->round;
    c->last_begun = a->begins_round ? a->round : c->last_begun;
    c->has_begun[a->round] = true;
    *block_at(c, a->subject, a->round) |= FORWARD;
    return r->training ? add_to_gradients(c) : TRI_OK;
}

static tri_status follow_compute(check *c) {
    const tri_schedule_request *r = c->request;
    const tri_action *a = c->action;
    const tri_schedule_block *b = &r->blocks[a->subject];
    uint8_t *done = block_at(c, a->subject, a->round);
    REQUIRE(is_here(r, b->stage), "names a block of another rank");
    REQUIRE(r->round_sizes[a->round] > 0, "has no samples");
    REQUIRE(!c->normed, "comes after NORM");
    for (int k = 0; k < b->unit_count; k++)
        REQUIRE(!tri_schedule_gathers(r) || c->units[b->units[k]].gathered ||
                    r->units[b->units[k]].bytes == 0,
                "reads parameters that are not gathered");
    if (a->kind == TRI_ACTION_FORWARD) return follow_forward(c);
    REQUIRE(r->training && (*done & FORWARD), "has not gone forward");
    if (a->kind == TRI_ACTION_RECOMPUTE) {
        REQUIRE(b->recompute && !(*done & (RECOMPUTED | INPUT)),
                "recomputes twice, or for nothing");
        REQUIRE(is_sent(c), "writes again what has not been sent");
        *done |= RECOMPUTED;
        return TRI_OK;
    }
    if (a->kind != TRI_ACTION_BACKWARD_WEIGHT) {
        REQUIRE(!(*done & INPUT), "comes twice");
        REQUIRE(!b->recompute || (*done & RECOMPUTED), "needs what FORWARD forgot");
        REQUIRE(!is_same_stage(r, a->subject, a->subject + 1) ||
                    (*block_at(c, a->subject + 1, a->round) & INPUT),
                "a later block did not go backward in this round");
        REQUIRE(has_edges(c, true) && is_unsent(c, true), "reads what has not come, or was sent");
        *done |= INPUT;
    }
    if (a->kind == TRI_ACTION_BACKWARD_INPUT) return add_to_gradients(c);
    REQUIRE((*done & INPUT) && !(*done & WEIGHT), "comes twice, or before BACKWARD_INPUT");
    REQUIRE(a->round > c->backwards[a->subject], "comes after a later round");
    c->backwards[a->subject] = a->round;
    *done |= WEIGHT;
    return add_to_gradients(c);
}

static tri_status follow_edge_action(check *c) {
    const tri_schedule_request *r = c->request;
    const tri_action *a = c->action;
    const tri_edge *e = &r->edges[a->subject];
    bool sends = a->kind == TRI_ACTION_SEND_ALONG || a->kind == TRI_ACTION_SEND_BACK;
    bool back = a->kind == TRI_ACTION_SEND_BACK || a->kind == TRI_ACTION_RECV_BACK;
    REQUIRE(r->round_sizes[a->round] > 0, "has no samples");
    REQUIRE(e->back == back && is_here(r, sends ? e->from_stage : e->to_stage) &&
                !is_here(r, sends ? e->to_stage : e->from_stage),
            "is not between this rank and another in this direction");
    REQUIRE(e->from_stage == a->from_stage && e->to_stage == a->to_stage, "names other stages");
    REQUIRE(!*edge_at(c, a->subject, a->round), "comes twice");
    REQUIRE(!sends || (*block_at(c, e->from_block, a->round) & (back ? INPUT : FORWARD)),
            "sends what is not made");
    *edge_at(c, a->subject, a->round) = MESSAGE;
    return TRI_OK;
}

static bool holds_all(const check *c, int unit) {
    for (int source = 0; source < TRI_GRADIENT_SOURCE_COUNT; source++)
        if (tri_schedule_has_gradient_source(c->request, unit, (tri_gradient_source)source) &&
            !c->units[unit].holds[source])
            return false;
    return true;
}

static bool holds_any(const check *c, int unit) {
    bool any = false;
    for (int source = 0; source < TRI_GRADIENT_SOURCE_COUNT; source++)
        any = any || c->units[unit].holds[source];
    return any;
}

static void hold(check *c, int unit, bool all) {
    for (int source = 0; source < TRI_GRADIENT_SOURCE_COUNT; source++)
        c->units[unit].holds[source] = all;
}

// Whether the unit's gradients on this rank are complete, so that they may be reduced: every block
// has added its gradients for every micro-batch and, if gradients are scattered, SCATTER has taken
// all of them.
static bool is_complete(const check *c, int unit) {
    const unit_state *u = &c->units[unit];
    bool whole = u->contributions == c->expected[unit];
    if (tri_schedule_scatters(c->request)) return whole && u->scattered && !holds_any(c, unit);
    return whole && holds_all(c, unit);
}

static bool is_reduced(const check *c, int unit) {
    return is_complete(c, unit) && (c->request->replicate == 1 || c->units[unit].reduced);
}

static bool is_tied(const check *c, int unit) {
    return is_reduced(c, unit) && (c->request->units[unit].holder_count < 2 || c->units[unit].tied);
}

static tri_status follow_gradients(check *c) {
    const tri_schedule_request *r = c->request;
    const tri_action *a = c->action;
    unit_state *u = &c->units[a->subject];
    bool closed = u->reduced || u->tied || u->downloaded || c->normed;
    REQUIRE(r->training && r->units[a->subject].has_gradients, "has no gradients");
    switch (a->kind) {
    case TRI_ACTION_CLEAR:
        REQUIRE(!closed && !holds_any(c, a->subject), "loses gradients");
        hold(c, a->subject, true);
        break;
    case TRI_ACTION_SCATTER:
        REQUIRE(tri_schedule_scatters(r) && !closed, "is not wanted, or too late");
        REQUIRE(holds_all(c, a->subject), "scatters gradients that are not there");
        REQUIRE(tri_schedule_scatters_rounds_of(r, a->subject) ||
                    u->contributions == c->expected[a->subject],
                "scatters gradients that are not complete");
        REQUIRE(a->accumulate == u->scattered, "adds to what is not there, or loses some");
        u->scattered = true;
        hold(c, a->subject, false);
        u->round = -1;
        break;
    case TRI_ACTION_REDUCE:
        REQUIRE(r->replicate > 1 && !closed, "is not wanted, or comes twice");
        REQUIRE(is_complete(c, a->subject), "reduces gradients that are not complete");
        u->reduced = true;
        break;
    case TRI_ACTION_TIE:
        REQUIRE(r->units[a->subject].holder_count > 1 && !u->tied && !u->downloaded && !c->normed,
                "is not wanted, or comes twice");
        REQUIRE(is_reduced(c, a->subject), "sums gradients that are not complete");
        u->tied = true;
        break;
    default:
        TRI_ASSERT(false);
    }
    return TRI_OK;
}

static tri_status follow_state(check *c) {
    const tri_schedule_request *r = c->request;
    const tri_unit *unit = &r->units[c->action->subject];
    unit_state *u = &c->units[c->action->subject];
    if (c->action->kind == TRI_ACTION_GATHER) {
        REQUIRE(tri_schedule_gathers(r) && !u->gathered && !c->normed, "is gathered already");
        bool may_return = tri_schedule_releases(r) && !unit->persistent;
        REQUIRE(!u->was_gathered || may_return, "gathers twice what stays");
        REQUIRE(!tri_schedule_fetches(r, c->action->subject) || u->fetched,
                "sends what is not fetched");
        u->gathered = u->was_gathered = true;
        u->fetched = false;
        return TRI_OK;
    }
    if (c->action->kind == TRI_ACTION_FETCH) {
        REQUIRE(tri_schedule_fetches(r, c->action->subject) && !u->fetched && !u->loaded,
                "is not wanted, or comes twice");
        u->fetched = true;
        return TRI_OK;
    }
    if (c->action->kind == TRI_ACTION_RELEASE) {
        REQUIRE(tri_schedule_releases(r) && !unit->persistent && u->gathered, "is not gathered");
        u->gathered = false;
        return TRI_OK;
    }
    REQUIRE(r->training && unit->has_gradients, "has no gradients to step with");
    switch (c->action->kind) {
    case TRI_ACTION_LOAD:
        REQUIRE(r->offloads && !u->loaded && !u->fetched, "is not wanted, or comes twice");
        u->loaded = true;
        break;
    case TRI_ACTION_STEP:
        REQUIRE(c->normed && !u->stepped, "comes before NORM, or twice");
        REQUIRE(!u->gathered || !tri_schedule_releases(r) || unit->persistent,
                "steps what is still gathered");
        REQUIRE(!r->steps_on_host, "runs where the host steps");
        REQUIRE(!r->offloads || u->loaded, "needs states that are not loaded");
        u->stepped = true;
        break;
    case TRI_ACTION_PREPARE:
        REQUIRE(unit->has_half && u->stepped && !u->prepared && !u->evicted,
                "comes before STEP, after EVICT or twice");
        u->prepared = true;
        break;
    case TRI_ACTION_DOWNLOAD:
        REQUIRE(r->steps_on_host && !u->downloaded && is_tied(c, c->action->subject),
                "is not wanted, comes twice, or before gradients are complete");
        REQUIRE(!unit->has_partial || c->normed, "comes before NORM has summed the gradients");
        u->downloaded = true;
        break;
    case TRI_ACTION_HOST_STEP:
        REQUIRE(c->normed && u->downloaded && !u->stepped, "comes before NORM, or twice");
        u->stepped = true;
        break;
    case TRI_ACTION_UPLOAD:
        REQUIRE(u->stepped && !u->uploaded, "comes before HOST_STEP, or twice");
        REQUIRE(!u->gathered || !tri_schedule_releases(r) || unit->persistent,
                "changes what is still gathered");
        u->uploaded = true;
        break;
    default:
        REQUIRE(r->offloads && u->stepped && !u->evicted, "comes before STEP, or twice");
        u->evicted = true;
    }
    return TRI_OK;
}

static tri_status follow_norm(check *c) {
    const tri_schedule_request *r = c->request;
    REQUIRE(r->training && !c->normed, "comes twice");
    for (int u = 0; u < r->unit_count; u++)
        REQUIRE(!r->units[u].here || !r->units[u].has_gradients || is_tied(c, u),
                "reads gradients that are not complete");
    c->normed = true;
    return TRI_OK;
}

static tri_status follow_take(check *c) {
    const tri_action *a = c->action;
    REQUIRE(c->request->round_sizes[a->round] > 0, "has no samples");
    REQUIRE(!c->taken[a->round], "comes twice");
    REQUIRE(a->round > c->last_taken, "takes batches out of order");
    c->last_taken = a->round;
    c->taken[a->round] = true;
    return TRI_OK;
}

static tri_status follow(check *c) {
    const tri_schedule_request *r = c->request;
    const tri_action *a = c->action;
    const int counts[] = {[TRI_SUBJECT_NONE] = 0,
                          [TRI_SUBJECT_BLOCK] = r->block_count,
                          [TRI_SUBJECT_UNIT] = r->unit_count,
                          [TRI_SUBJECT_EDGE] = r->edge_count};
    tri_subject subject = tri_action_subject(a->kind);
    REQUIRE(a->subject < counts[subject] && a->round < r->rounds, "names what is not there");
    switch (subject) {
    case TRI_SUBJECT_NONE:
        return a->kind == TRI_ACTION_TAKE ? follow_take(c) : follow_norm(c);
    case TRI_SUBJECT_BLOCK:
        return follow_compute(c);
    case TRI_SUBJECT_EDGE:
        return follow_edge_action(c);
    case TRI_SUBJECT_UNIT:
        break;
    }
    REQUIRE(r->units[a->subject].here, "names a unit of another rank");
    bool gradients = a->kind == TRI_ACTION_CLEAR || a->kind == TRI_ACTION_SCATTER ||
                     a->kind == TRI_ACTION_REDUCE || a->kind == TRI_ACTION_TIE;
    return gradients ? follow_gradients(c) : follow_state(c);
}

static tri_status verify_end(const check *c) {
    const tri_schedule_request *r = c->request;
    if (r->training && !c->normed) return TRI_FAIL(TRI_INTERNAL, "schedule: there is no NORM");
    for (int round = 0; round < r->rounds; round++) {
        if (r->round_sizes[round] == 0) continue;
        for (int b = 0; b < r->block_count; b++) {
            int wanted = r->training ? FORWARD | INPUT | WEIGHT : FORWARD;
            if (is_here(r, r->blocks[b].stage) && (*block_at(c, b, round) & wanted) != wanted)
                return TRI_FAIL(TRI_INTERNAL, "schedule: block %d misses round %d", b, round);
        }
        for (int e = 0; e < r->edge_count; e++) {
            const tri_edge *edge = &r->edges[e];
            bool crosses = is_here(r, edge->from_stage) != is_here(r, edge->to_stage);
            if (crosses && (r->training || !edge->back) && !*edge_at(c, e, round))
                return TRI_FAIL(TRI_INTERNAL, "schedule: edge %d misses round %d", e, round);
        }
    }
    for (int i = 0; i < r->unit_count; i++) {
        const tri_unit *unit = &r->units[i];
        const unit_state *u = &c->units[i];
        if (!unit->here) continue;
        bool stays = !tri_schedule_releases(r) || unit->persistent;
        if (u->fetched || (u->was_gathered && u->gathered != stays))
            return TRI_FAIL(TRI_INTERNAL, "schedule: unit %d is never released", i);
        if (!r->training || !unit->has_gradients) continue;
        bool is_ready = r->steps_on_host ? u->uploaded : !unit->has_half || u->prepared;
        if (!u->stepped || !is_ready || (r->offloads && !u->evicted))
            return TRI_FAIL(TRI_INTERNAL, "schedule: unit %d is never stepped, or not put away", i);
    }
    return TRI_OK;
}

static void start_check(tri_arena *arena, check *c) {
    const tri_schedule_request *r = c->request;
    c->units = TRI_NEW_ARRAY(arena, unit_state, r->unit_count);
    c->blocks = tri_arena_alloc(arena, (size_t)r->block_count * (size_t)r->rounds);
    c->edges = tri_arena_alloc(arena, (size_t)r->edge_count * (size_t)r->rounds);
    c->forwards = TRI_NEW_ARRAY(arena, int, r->block_count);
    c->backwards = TRI_NEW_ARRAY(arena, int, r->block_count);
    c->expected = TRI_NEW_ARRAY(arena, int, r->unit_count);
    c->taken = TRI_NEW_ARRAY(arena, bool, r->rounds);
    c->has_begun = TRI_NEW_ARRAY(arena, bool, r->rounds);
    c->last_taken = c->last_begun = -1;
    int active = 0;
    for (int i = 0; i < r->rounds; i++) active += r->round_sizes[i] > 0;
    for (int made = 0; made < 2; made++) {
        c->edge_lists[made] = TRI_NEW_ARRAY(arena, int, r->block_count);
        c->next_edges[made] = TRI_NEW_ARRAY(arena, int, r->edge_count);
    }
    for (int b = 0; b < r->block_count; b++) {
        c->forwards[b] = c->backwards[b] = -1;
        c->edge_lists[0][b] = c->edge_lists[1][b] = -1;
        if (!is_here(r, r->blocks[b].stage)) continue;
        for (int k = 0; k < r->blocks[b].unit_count; k++)
            c->expected[r->blocks[b].units[k]] += active;
    }
    c->mixes_halves = TRI_NEW_ARRAY(arena, bool, r->unit_count);
    for (int u = 0; u < r->unit_count; u++) {
        c->units[u].round = -1;
        c->mixes_halves[u] = r->training && tri_schedule_mixes_halves(r, u);
    }
    for (int e = 0; e < r->edge_count; e++)
        for (int made = 0; made < 2; made++) {
            int block = made ? r->edges[e].from_block : r->edges[e].to_block;
            c->next_edges[made][e] = c->edge_lists[made][block];
            c->edge_lists[made][block] = e;
        }
}

tri_status tri_schedule_verify(const tri_schedule *schedule, const tri_schedule_request *request) {
    tri_arena *arena = tri_arena_create(NULL, "schedule check");
    check c = {.request = request};
    start_check(arena, &c);
    tri_status status = TRI_OK;
    for (int i = 0; i < schedule->count && status == TRI_OK; i++) {
        c.index = i;
        c.action = &schedule->actions[i];
        status = follow(&c);
    }
    if (status == TRI_OK) status = verify_end(&c);
    if (status == TRI_OK && schedule->dependencies)
        status = tri_dependencies_verify(schedule, request);
    tri_arena_destroy(arena);
    return status;
}
