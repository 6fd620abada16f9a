// Makes a schedule: has compute_actions.c write the compute actions (FORWARD and BACKWARD of
// blocks) of a rank's stages, and adds all other actions, such as GATHER and SCATTER of units
// (schedule.h says what each action does). A unit is parameters that are gathered, reduced and
// updated together. What is added has an insertion point: the index of the compute action that it
// precedes. The index depends on the pipeline's order and on the number of micro-batches, never on
// their sizes, so that all ranks of a group have the same collectives. Compute actions of
// micro-batches without samples are left out only at the end, because insertion points count them
// too. Read next: edge_actions.c (where SEND and RECV stand), step_memory.c.
#include "plan/compute_actions.h"

#include <stdlib.h>
#include <string.h>

// LOAD, which reads offloaded state from storage, stands this many units before the STEP that needs
// the state. So storage can begin the next LOAD as soon as one ends. GATHER stands as many units
// before the first use of its unit, or strategy.prefetch units if that is more. Exception: without
// a pipeline, fsdp gathers exactly strategy.prefetch units ahead, because each unit gathered ahead
// takes memory.
enum { AHEAD = 2 };

// The order of actions that are inserted before the same compute action: for example RELEASE before
// GATHER, so that GATHER may use the released memory.
typedef enum point {
    AT_TAKE_AHEAD,
    AT_EDGE,
    AT_RELEASE,
    AT_GATHER,
    // CLEAR (sets gradients to zero) for gradients that no compute action writes, before SCATTER or
    // REDUCE reads them.
    AT_LATE_CLEAR,
    AT_SCATTER,
    AT_REDUCE,
    AT_TIE,
    AT_DOWNLOAD,
    AT_CLEAR, // CLEAR of gradients to which the compute action right after it adds
    AT_TAKE   // stands last, so that inputs take no memory before the action that reads them
} point;

typedef struct item {
    int before; // index of the compute action that the item precedes
    point point;
    int number; // how many items were added before this one; decides the order if all else is equal
    tri_action action;
} item;

typedef struct work {
    tri_arena *arena; // temporary memory, freed when the schedule is written
    const tri_schedule_request *request;
    tri_schedule compute;
    // uses[first_use[u] … first_use[u + 1] - 1] are the compute actions that read unit u.
    int *first_use, *uses;
    item *items;
    int item_count, item_capacity;
} work;

static tri_action *put(work *w, int before, point at, tri_action_kind kind, int subject) {
    int limit = w->compute.count;
    TRI_PUSH(w->arena, w->items, w->item_count, w->item_capacity) =
        (item){.before = before < limit ? before : limit,
               .point = at,
               .number = w->item_count,
               .action = {.kind = kind, .subject = subject, .round = -1}};
    return &w->items[w->item_count - 1].action;
}

static bool has_samples(const work *w, const tri_action *at) {
    return w->request->round_sizes[at->round] > 0;
}

// Whether the block has made all its gradients of the action's micro-batch when this action ends.
// After BACKWARD_INPUT it has not, because BACKWARD_WEIGHT makes the rest of them.
static bool completes_gradients(const tri_action *at) {
    return at->kind == TRI_ACTION_BACKWARD || at->kind == TRI_ACTION_BACKWARD_WEIGHT;
}

static void find_uses(work *w) {
    const tri_schedule_request *r = w->request;
    int *count = TRI_NEW_ARRAY(w->arena, int, r->unit_count + 1);
    w->first_use = TRI_NEW_ARRAY(w->arena, int, r->unit_count + 1);
    for (int fill = 0; fill < 2; fill++) {
        for (int i = 0; i < w->compute.count; i++) {
            const tri_schedule_block *b = &r->blocks[w->compute.actions[i].subject];
            for (int k = 0; k < b->unit_count; k++) {
                int unit = b->units[k];
                if (fill) w->uses[w->first_use[unit] + count[unit]] = i;
                count[unit]++;
            }
        }
        if (fill) break;
        for (int u = 0; u < r->unit_count; u++) {
            w->first_use[u + 1] = w->first_use[u] + count[u];
            count[u] = 0;
        }
        w->uses = TRI_NEW_ARRAY(w->arena, int, w->first_use[r->unit_count]);
    }
}

static tri_status put_edge_actions(work *w) {
    tri_edge_action *edge_actions;
    int count;
    TRI_TRY(tri_edge_actions_find(w->arena, w->request, &w->compute, &edge_actions, &count));
    for (int i = 0; i < count; i++) {
        const tri_edge_action *t = &edge_actions[i];
        const tri_edge *edge = &w->request->edges[t->edge];
        tri_action *a = put(w, t->before, AT_EDGE, t->kind, t->edge);
        a->round = t->round;
        a->from_stage = edge->from_stage;
        a->to_stage = edge->to_stage;
    }
    return TRI_OK;
}

// Inserts TAKE, which copies the inputs of a micro-batch to the device. On a device that works
// asynchronously (takes_ahead), TAKE stands after the first compute action of the previous
// micro-batch, so that the copy runs while that micro-batch is computed. On other devices it stands
// right before the micro-batch is needed, because an earlier copy would save no time and take
// memory for longer.
static void put_takes(work *w) {
    const tri_schedule_request *r = w->request;
    int *first = TRI_NEW_ARRAY(w->arena, int, r->rounds), previous = -1;
    for (int i = w->compute.count - 1; i >= 0; i--) first[w->compute.actions[i].round] = i;
    for (int round = 0; round < r->rounds; round++) {
        if (r->round_sizes[round] == 0) continue;
        int at = r->takes_ahead ? previous + 1 : first[round];
        put(w, at, r->takes_ahead ? AT_TAKE_AHEAD : AT_TAKE, TRI_ACTION_TAKE, -1)->round = round;
        previous = first[round];
    }
}

// A range of compute actions, from `first` to `last`, during which a unit's parameters are
// gathered: GATHER stands before it, RELEASE after it.
typedef struct gathered_range {
    int unit, first, last;
} gathered_range;

static int compare_ranges(const void *x, const void *y) {
    const gathered_range *a = x, *b = y;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return (a->unit > b->unit) - (a->unit < b->unit);
}

// Divides the compute actions that use a unit into ranges, writes them to `out`, and returns how
// many there are. Between two ranges the unit is released, so that other units can use its memory.
static int find_ranges(const work *w, int unit, gathered_range *out) {
    const tri_schedule_request *r = w->request;
    bool whole = !tri_schedule_releases(r) || r->units[unit].persistent || r->pipeline > 1;
    bool holds_rounds = r->training && !r->reshard_after_forward;
    // `open`: micro-batches whose forward pass is done and whose backward pass is not.
    int count = 0, open = 0;
    for (int i = w->first_use[unit]; i < w->first_use[unit + 1]; i++) {
        int at = w->uses[i];
        const tri_action *a = &w->compute.actions[at];
        if (count == 0 || (!whole && !(holds_rounds && open > 0)))
            out[count++] = (gathered_range){.unit = unit, .first = at};
        out[count - 1].last = at;
        open += a->kind == TRI_ACTION_FORWARD;
        open -= completes_gradients(a);
    }
    return count;
}

static void put_release(work *w, const gathered_range *range) {
    const tri_schedule_request *r = w->request;
    if (range && tri_schedule_releases(r) && !r->units[range->unit].persistent)
        put(w, range->last + 1, AT_RELEASE, TRI_ACTION_RELEASE, range->unit);
}

static int start_before(const int *starts, int count, int ahead) {
    return count > ahead ? starts[count - 1 - ahead] : 0;
}

// Inserts GATHER, RELEASE and FETCH. GATHER stands `ahead` units before the unit that it gathers,
// in the order in which units are used, so that it runs while the blocks of the units in between
// compute. FETCH reads from storage what GATHER sends, so it stands one unit before GATHER. A range
// is the compute actions during which a unit is gathered. If a unit's earlier range has not ended
// where GATHER would stand, the two ranges become one, because to release the unit and gather it
// again at once would only cost time. When units are counted, ranges of one unit that follow each
// other count as one.
static void put_gathers(work *w) {
    const tri_schedule_request *r = w->request;
    if (!tri_schedule_gathers(r)) return;
    bool by_block = tri_schedule_releases(r) && r->pipeline == 1;
    int ahead = by_block || r->prefetch > AHEAD ? r->prefetch : AHEAD;
    int most = w->first_use[r->unit_count], count = 0, start_count = 0;
    gathered_range *ranges = TRI_NEW_ARRAY(w->arena, gathered_range, most);
    int *starts = TRI_NEW_ARRAY(w->arena, int, most);
    // open[u]: the latest range of unit u so far, whose RELEASE is not inserted yet.
    gathered_range **open = TRI_NEW_ARRAY(w->arena, gathered_range *, r->unit_count);
    for (int u = 0; u < r->unit_count; u++)
        if (r->units[u].here && r->units[u].bytes > 0) count += find_ranges(w, u, ranges + count);
    if (count) qsort(ranges, (size_t)count, sizeof *ranges, compare_ranges);
    for (int i = 0; i < count; i++) {
        gathered_range *range = &ranges[i], *before = open[range->unit];
        if (i == 0 || ranges[i - 1].unit != range->unit) starts[start_count++] = range->first;
        int start = start_before(starts, start_count, ahead);
        if (before && before->last + 1 >= start) {
            before->last = range->last;
            continue;
        }
        put_release(w, before);
        if (tri_schedule_fetches(r, range->unit))
            put(w, start_before(starts, start_count, ahead + 1), AT_GATHER, TRI_ACTION_FETCH,
                range->unit);
        put(w, start, AT_GATHER, TRI_ACTION_GATHER, range->unit);
        open[range->unit] = range;
    }
    for (int u = 0; u < r->unit_count; u++) put_release(w, open[u]);
}

static void mark_adding(work *w, int at, int unit) {
    tri_action *a = &w->compute.actions[at];
    const tri_schedule_block *b = &w->request->blocks[a->subject];
    for (int k = 0; k < b->unit_count; k++)
        if (b->units[k] == unit) a->adds |= UINT64_C(1) << k;
    a->accumulate = true;
}

// Marks the actions that add to one sum of a unit's gradients. Such a sum goes from one SCATTER to
// the next or, without SCATTER, over the whole step. The first action of each gradient source
// (tri_gradient_source: a kind of compute action) is not marked and overwrites, so that the
// gradients need not be set to zero first.
// There are two exceptions: no action writes the gradients of some source, or both BACKWARD_INPUT
// and BACKWARD_WEIGHT may write the same gradient. Then CLEAR sets the gradients to zero, and all
// actions add.
static void put_sum(work *w, int unit, int first, int end) {
    const tri_schedule_request *r = w->request;
    bool written[TRI_GRADIENT_SOURCE_COUNT + 1] = {false};
    bool clears = tri_schedule_mixes_halves(r, unit);
    int writer = -1; // the first action that writes the gradients; -1: none found yet
    for (int marking = 0; marking < 2; marking++) {
        for (int source = 0; source < TRI_GRADIENT_SOURCE_COUNT && marking; source++) {
            bool wanted = tri_schedule_has_gradient_source(r, unit, (tri_gradient_source)source);
            clears = clears || (wanted && !written[source]);
        }
        for (int source = 0; source < TRI_GRADIENT_SOURCE_COUNT; source++)
            written[source] = clears && marking;
        if (clears && marking && writer >= 0) put(w, writer, AT_CLEAR, TRI_ACTION_CLEAR, unit);
        if (clears && marking && writer < 0)
            put(w, w->uses[end - 1] + 1, AT_LATE_CLEAR, TRI_ACTION_CLEAR, unit);
        for (int i = first; i < end; i++) {
            const tri_action *a = &w->compute.actions[w->uses[i]];
            tri_gradient_source source = tri_action_gradient_source(a->kind);
            if (!has_samples(w, a) || !tri_schedule_has_gradient_source(r, unit, source)) continue;
            if (marking && written[source]) mark_adding(w, w->uses[i], unit);
            written[source] = true;
            if (writer < 0) writer = w->uses[i];
        }
    }
}

// Finds which compute actions add to the same sum of a unit's gradients, marks them (put_sum), and
// inserts a SCATTER after each sum, if gradients are scattered. Usually one sum goes over the whole
// step. If gradients are scattered after every micro-batch, a sum ends where the next action that
// completes gradients of the unit belongs to another micro-batch, so that no sum mixes two: a
// deterministic run adds the micro-batches one by one. A micro-batch can then have several sums: if
// several stages of this rank read the unit, actions of two micro-batches may alternate.
static void put_sums(work *w, int unit) {
    const tri_schedule_request *r = w->request;
    bool by_round = tri_schedule_scatters_rounds_of(r, unit), scattered = false;
    int first = w->first_use[unit], end = w->first_use[unit + 1], last = -1;
    for (int i = first; i < end; i++)
        if (completes_gradients(&w->compute.actions[w->uses[i]])) last = i;
    for (int i = first; i <= last; i++) {
        const tri_action *a = &w->compute.actions[w->uses[i]];
        if (!completes_gradients(a) || (i < last && !by_round)) continue;
        int next = i + 1;
        while (next <= last && !completes_gradients(&w->compute.actions[w->uses[next]])) next++;
        if (i < last && w->compute.actions[w->uses[next]].round == a->round) continue;
        put_sum(w, unit, first, i + 1);
        first = i + 1;
        if (!tri_schedule_scatters(r)) continue;
        put(w, w->uses[i] + 1, AT_SCATTER, TRI_ACTION_SCATTER, unit)->accumulate = scattered;
        scattered = true;
    }
}

// Inserts the actions on gradients: CLEAR and SCATTER (both in put_sums), REDUCE, TIE, and
// DOWNLOAD, which copies gradients to the host. REDUCE has to wait for SCATTER, and a rank starts
// its actions in the order of the list. If REDUCE stood directly after SCATTER, the compute action
// after it would wait for SCATTER too. So REDUCE stands after that compute action. For the same
// reason DOWNLOAD stands one compute action after REDUCE. If NORM has yet to sum gradients of a
// unit over ranks (has_partial), write_host_update inserts the unit's DOWNLOAD after NORM.
static void put_reductions(work *w) {
    const tri_schedule_request *r = w->request;
    for (int u = 0; r->training && u < r->unit_count; u++) {
        const tri_unit *unit = &r->units[u];
        if (!unit->here || !unit->has_gradients) continue;
        put_sums(w, u);
        int done = 0;
        for (int i = w->first_use[u]; i < w->first_use[u + 1]; i++)
            if (completes_gradients(&w->compute.actions[w->uses[i]])) done = w->uses[i] + 1;
        if (tri_schedule_scatters(r)) done++;
        if (r->replicate > 1) put(w, done++, AT_REDUCE, TRI_ACTION_REDUCE, u);
        if (unit->holder_count > 1) put(w, done = w->compute.count, AT_TIE, TRI_ACTION_TIE, u);
        if (r->steps_on_host && !unit->has_partial)
            put(w, done, AT_DOWNLOAD, TRI_ACTION_DOWNLOAD, u);
    }
}

static int compare_items(const void *x, const void *y) {
    const item *a = x, *b = y;
    if (a->before != b->before) return a->before < b->before ? -1 : 1;
    if (a->point != b->point) return a->point < b->point ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

static void write_all(work *w, tri_schedule *out) {
    const tri_schedule_request *r = w->request;
    if (w->item_count) qsort(w->items, (size_t)w->item_count, sizeof *w->items, compare_items);
    bool *has_begun = TRI_NEW_ARRAY(w->arena, bool, r->rounds);
    int next = 0;
    for (int i = 0; i <= w->compute.count; i++) {
        for (; next < w->item_count && w->items[next].before == i; next++)
            TRI_PUSH(out->arena, out->actions, out->count, out->capacity) = w->items[next].action;
        if (i == w->compute.count) return;
        tri_action a = w->compute.actions[i];
        if (!has_samples(w, &a)) continue;
        if (a.kind == TRI_ACTION_FORWARD) {
            a.begins_round = !has_begun[a.round];
            a.forgets = r->training && r->blocks[a.subject].recompute;
            has_begun[a.round] = true;
        }
        TRI_PUSH(out->arena, out->actions, out->count, out->capacity) = a;
    }
}

// Adds NORM, the DOWNLOADs that have to wait for NORM, and then the actions with which the host's
// CPU updates the parameters: HOST_STEP and UPLOAD of each unit, in the order in which the units'
// gradients arrive on the host. So UPLOAD of one unit runs while the CPU updates the next.
static void write_host_update(const tri_schedule_request *r, tri_schedule *out) {
    tri_schedule_add(out, TRI_ACTION_NORM, -1, -1);
    for (int u = 0; u < r->unit_count; u++)
        if (r->units[u].here && r->units[u].has_gradients && r->units[u].has_partial)
            tri_schedule_add(out, TRI_ACTION_DOWNLOAD, u, -1);
    int end = out->count;
    for (int i = 0; i < end; i++) {
        if (out->actions[i].kind != TRI_ACTION_DOWNLOAD) continue;
        int unit = out->actions[i].subject;
        tri_schedule_add(out, TRI_ACTION_HOST_STEP, unit, -1);
        tri_schedule_add(out, TRI_ACTION_UPLOAD, unit, -1);
    }
}

static void write_update(const work *w, tri_schedule *out) {
    const tri_schedule_request *r = w->request;
    if (!r->training) return;
    if (r->steps_on_host) {
        write_host_update(r, out);
        return;
    }
    int *units = TRI_NEW_ARRAY(w->arena, int, r->unit_count), count = 0;
    for (int u = 0; u < r->unit_count; u++)
        if (r->units[u].here && r->units[u].has_gradients) units[count++] = u;
    for (int i = 0; r->offloads && i < AHEAD && i < count; i++)
        tri_schedule_add(out, TRI_ACTION_LOAD, units[i], -1);
    tri_schedule_add(out, TRI_ACTION_NORM, -1, -1);
    for (int i = 0; i < count; i++) {
        tri_schedule_add(out, TRI_ACTION_STEP, units[i], -1);
        if (r->units[units[i]].has_half) tri_schedule_add(out, TRI_ACTION_PREPARE, units[i], -1);
        if (!r->offloads) continue;
        tri_schedule_add(out, TRI_ACTION_EVICT, units[i], -1);
        if (i + AHEAD < count) tri_schedule_add(out, TRI_ACTION_LOAD, units[i + AHEAD], -1);
    }
}

tri_status tri_schedule_make(tri_arena *arena, const tri_schedule_request *request,
                             tri_schedule *out) {
    work w = {.arena = tri_arena_create(NULL, "schedule"), .request = request};
    *out = (tri_schedule){.arena = arena};
    w.compute.arena = w.arena;
    tri_compute_actions_write(request, &w.compute);
    find_uses(&w);
    tri_status status = put_edge_actions(&w);
    if (status == TRI_OK) {
        put_takes(&w);
        put_gathers(&w);
        put_reductions(&w);
        write_all(&w, out);
        write_update(&w, out);
    }
    tri_arena_destroy(w.arena);
    TRI_TRY(status);
    return tri_schedule_verify(out, request);
}
