// Verifies that each action finds in memory the values that it reads, although several values may
// share memory (an output written over its input): follows which value each piece of memory holds,
// and checks that a value is overwritten only after every action that reads it, a SEND for
// instance, is done. locations.c decides what shares memory, by the graph; this check follows the
// schedule instead. A bundle is values that are kept from one segment (the nodes of one block in
// one phase) to another. Read next: engine/engine.c.
#include "plan/plan.h"
#include "plan/precedence.h"

#include <stdlib.h>
#include <string.h>

// What the values of a program share. A cell is memory, in a bundle, in which several values lie.
typedef struct sharing {
    const tri_program *program;
    int *cell_of;      // by value: its cell; -1: no other value lies in its memory
    uint32_t *content; // by value: the value whose bytes it has: its own or, of a view, the input's
    int cell_count;
} sharing;

// An entry of a linked list: an action, and the index of the next entry in check.links; -1: this
// entry is the last.
typedef struct link {
    int action, next;
} link;

// What a cell holds for one micro-batch.
typedef struct state {
    uint32_t content; // 0: nothing yet
    int compute;      // the latest action of the compute lane that has used it; -1: none
    int messages;     // the list of the SENDs and RECVs that have used it, in check.links; -1: none
} state;

typedef struct check {
    tri_arena *arena;
    const tri_step_plan *step;
    const tri_precedence *precedence;
    sharing **sharings; // by micro-batch; those with the same program have the same
    state **states;     // by micro-batch and cell
    link *links;
    int link_count, link_capacity;
    int action;
} check;

typedef struct place {
    tri_location location;
    uint32_t value;
} place;

static int by_location(const void *x, const void *y) {
    const place *a = x, *b = y;
    if (a->location.index != b->location.index)
        return a->location.index < b->location.index ? -1 : 1;
    return (a->location.offset > b->location.offset) - (a->location.offset < b->location.offset);
}

// Whether the node is a view in its input's memory, so that it writes nothing.
static bool is_view(const tri_program *p, const tri_node *node) {
    if (!(node->op->flags & TRI_OP_VIEW)) return false;
    place in = {.location = p->locations[node->inputs[0].id]};
    place out = {.location = p->locations[node->outputs[0].id]};
    return in.location.kind == out.location.kind && by_location(&in, &out) == 0;
}

static void find_cells(tri_arena *arena, sharing *s) {
    const tri_graph *g = s->program->graph;
    place *places = TRI_NEW_ARRAY(arena, place, g->value_count);
    int count = 0;
    for (int v = 0; v < g->value_count; v++) {
        s->cell_of[v] = -1;
        if (s->program->locations[v].kind == TRI_LOCATION_BUNDLE && s->content[v] == (uint32_t)v &&
            tri_value_bytes(g, (tri_value){(uint32_t)v}) > 0)
            places[count++] = (place){s->program->locations[v], (uint32_t)v};
    }
    if (count) qsort(places, (size_t)count, sizeof *places, by_location);
    for (int first = 0, end; first < count; first = end) {
        end = first + 1;
        while (end < count && by_location(&places[first], &places[end]) == 0) end++;
        for (int i = first; i < end && end - first > 1; i++)
            s->cell_of[places[i].value] = s->cell_count;
        s->cell_count += end - first > 1;
    }
    for (int v = 0; v < g->value_count; v++) s->cell_of[v] = s->cell_of[s->content[v]];
}

static sharing *make_sharing(tri_arena *arena, const tri_program *program) {
    const tri_graph *g = program->graph;
    sharing *s = TRI_NEW(arena, sharing);
    *s = (sharing){.program = program,
                   .cell_of = TRI_NEW_ARRAY(arena, int, g->value_count),
                   .content = TRI_NEW_ARRAY(arena, uint32_t, g->value_count)};
    for (int v = 0; v < g->value_count; v++) s->content[v] = (uint32_t)v;
    for (int i = 0; i < g->node_count; i++)
        if (is_view(program, &g->nodes[i]))
            s->content[g->nodes[i].outputs[0].id] = s->content[g->nodes[i].inputs[0].id];
    find_cells(arena, s);
    return s;
}

static void start_round(check *c, int round) {
    const tri_program *program = c->step->round_items[round].program;
    if (!program) return;
    for (int i = 0; i < round && !c->sharings[round]; i++)
        if (c->step->round_items[i].program == program) c->sharings[round] = c->sharings[i];
    if (!c->sharings[round]) c->sharings[round] = make_sharing(c->arena, program);
    int cells = c->sharings[round]->cell_count;
    c->states[round] = TRI_NEW_ARRAY(c->arena, state, cells);
    for (int i = 0; i < cells; i++) c->states[round][i] = (state){.compute = -1, .messages = -1};
}

static void record(check *c, state *s) {
    if (tri_action_subject(c->step->schedule.actions[c->action].kind) == TRI_SUBJECT_BLOCK) {
        s->compute = c->action;
        return;
    }
    TRI_PUSH(c->arena, c->links, c->link_count, c->link_capacity) = (link){c->action, s->messages};
    s->messages = c->link_count - 1;
}

// Checks that all actions that have used the cell are done before this one writes another value
// there. Those of the compute lane finish in order, so that the latest of them stands for all.
static tri_status overwrite(check *c, state *s) {
    const char *rule = "overwrites a value, and does not wait for";
    if (s->compute >= 0 && !tri_precedes(c->precedence, s->compute, c->action))
        return tri_precedence_broken(c->precedence, c->action, rule, s->compute);
    for (int i = s->messages; i >= 0; i = c->links[i].next)
        if (!tri_precedes(c->precedence, c->links[i].action, c->action))
            return tri_precedence_broken(c->precedence, c->action, rule, c->links[i].action);
    s->compute = s->messages = -1;
    return TRI_OK;
}

static tri_status use(check *c, int round, tri_value value, bool writes) {
    const sharing *known = c->sharings[round];
    int cell = known->cell_of[value.id];
    if (cell < 0) return TRI_OK;
    state *s = &c->states[round][cell];
    uint32_t content = known->content[value.id];
    if (writes && s->content != content) TRI_TRY(overwrite(c, s));
    if (!writes && s->content != content)
        return tri_precedence_broken(c->precedence, c->action, "reads what has been overwritten by",
                                     s->compute >= 0 ? s->compute : c->action);
    s->content = content;
    record(c, s);
    return TRI_OK;
}

static tri_status follow_segment(check *c, const tri_action *a, tri_phase phase) {
    const tri_program *p = c->sharings[a->round]->program;
    tri_segment segment = p->segments[a->subject][phase];
    for (int i = segment.first; i < segment.end; i++) {
        const tri_node *node = &p->graph->nodes[i];
        if (is_view(p, node) || (a->kind == TRI_ACTION_RECOMPUTE && !p->recomputed[i])) continue;
        for (int k = 0; k < node->input_count; k++)
            TRI_TRY(use(c, a->round, node->inputs[k], false));
        for (int k = 0; k < node->output_count; k++)
            TRI_TRY(use(c, a->round, node->outputs[k], true));
    }
    // At the end of the segment, its outputs of the model are copied to the host.
    for (int i = 0; i < p->graph->output_count; i++) {
        const tri_node *maker = tri_value_node(p->graph, p->graph->outputs[i].value);
        if (maker && maker->block == a->subject && maker->phase == phase)
            TRI_TRY(use(c, a->round, p->graph->outputs[i].value, false));
    }
    return TRI_OK;
}

static tri_status follow_edge(check *c, const tri_action *a) {
    const tri_step_round *round = &c->step->round_items[a->round];
    bool writes = a->kind == TRI_ACTION_RECV_ALONG || a->kind == TRI_ACTION_RECV_BACK;
    for (int i = 0; i < round->edge_value_count; i++)
        if (round->edge_of_value[i] == a->subject)
            TRI_TRY(use(c, a->round, round->edge_values[i].value, writes));
    return TRI_OK;
}

static tri_status follow(check *c, const tri_action *a) {
    switch (a->kind) {
    case TRI_ACTION_FORWARD:
    case TRI_ACTION_RECOMPUTE:
        return follow_segment(c, a, TRI_PHASE_FORWARD);
    case TRI_ACTION_BACKWARD:
        TRI_TRY(follow_segment(c, a, TRI_PHASE_BACKWARD));
        return follow_segment(c, a, TRI_PHASE_WEIGHT);
    case TRI_ACTION_BACKWARD_INPUT:
        return follow_segment(c, a, TRI_PHASE_BACKWARD);
    case TRI_ACTION_BACKWARD_WEIGHT:
        return follow_segment(c, a, TRI_PHASE_WEIGHT);
    default:
        return tri_action_subject(a->kind) == TRI_SUBJECT_EDGE ? follow_edge(c, a) : TRI_OK;
    }
}

tri_status tri_step_values_verify(const tri_step_plan *step) {
    tri_arena *arena = tri_arena_create(NULL, "check of values");
    check c = {.arena = arena,
               .step = step,
               .precedence = tri_precedence_make(arena, &step->schedule),
               .sharings = TRI_NEW_ARRAY(arena, sharing *, step->rounds),
               .states = TRI_NEW_ARRAY(arena, state *, step->rounds)};
    for (int round = 0; round < step->rounds; round++) start_round(&c, round);
    tri_status status = TRI_OK;
    for (; c.action < step->schedule.count && status == TRI_OK; c.action++)
        status = follow(&c, &step->schedule.actions[c.action]);
    tri_arena_destroy(arena);
    return status;
}
