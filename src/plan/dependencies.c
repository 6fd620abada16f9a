// Derives which actions of a schedule have to wait for which others (their dependencies): one table
// says what each action reads and writes, and conflicts follow from it. A unit is parameters that
// are gathered, reduced and updated together; an edge is the values that a block sends to another
// stage of the pipeline. Read next: verify.c, which checks the result.
#include "plan/dependencies.h"

#include <string.h>

// Kinds of resources. An action on a block accesses the activations of the block and the resources
// of its units and its edges.
typedef enum resource_kind {
    PARAMETERS, // of a unit: its master weights, and the parameters that are gathered from them
    GRADIENTS,  // of a unit: its gradients
    // Of a unit: the gradients that SCATTER (reduce-scatter) leaves on this rank. Without SCATTER
    // these are all of the unit's gradients.
    OWN_GRADIENTS,
    // The same memory as OWN_GRADIENTS, but only of units whose has_partial is set (tri_unit). NORM
    // changes it, because NORM sums some of these gradients over the tensor-parallel ranks.
    PARTIAL_GRADIENTS,
    // Of a unit: the optimizer state, which LOAD brings from storage. If the host runs the
    // optimizer: the unit's state in the host's memory, with the gradients that DOWNLOAD brings and
    // the parameters that UPLOAD reads.
    STATES,
    // Of a unit: this rank's shard of the parameters, which FETCH brings from storage.
    OWN_PARAMETERS,
    // The same memory as GRADIENTS, but only of units with running statistics of batch norm.
    // FORWARD writes what a micro-batch adds to these statistics there, so that it is summed over
    // micro-batches and ranks together with the gradients.
    STATISTICS,
    SCALARS, // the step scalars: numbers that NORM makes and STEP reads, such as the learning rate
    // Of a block and micro-batch: the values that the block makes, forward and backward, for its
    // own BACKWARD and for its neighbours in the stage.
    ACTIVATIONS,
    BEFORE, // ACTIVATIONS of the previous block of the stage, of the same micro-batch
    BEHIND, // ACTIVATIONS of the next block of the stage, of the same micro-batch
    // The next two are for edges to a later stage of the pipeline.
    MADE, // of a block and micro-batch: the edges whose values it makes
    // Of a block and micro-batch: the edges whose values it reads and no earlier block of its stage
    // reads.
    READ,
    // The same two for edges that carry gradients back to an earlier stage.
    MADE_BACK,
    READ_BACK,
    MESSAGE, // of an edge and micro-batch: its values, which a SEND or RECV moves
    // Of a micro-batch: its inputs. Only this rank's first FORWARD of the micro-batch
    // (tri_action.begins_round) counts as a reader, because the rank's other compute actions for
    // the micro-batch come after it.
    INPUTS,
} resource_kind;

static const struct {
    tri_action_kind kind;
    resource_kind resource;
    bool writes;
} accesses[] = {
    {TRI_ACTION_TAKE, INPUTS, true},
    {TRI_ACTION_FETCH, OWN_PARAMETERS, true},
    {TRI_ACTION_GATHER, OWN_PARAMETERS, false},
    {TRI_ACTION_GATHER, PARAMETERS, true},
    {TRI_ACTION_RELEASE, PARAMETERS, true},
    {TRI_ACTION_FORWARD, INPUTS, false},
    {TRI_ACTION_FORWARD, PARAMETERS, false},
    {TRI_ACTION_FORWARD, STATISTICS, true},
    {TRI_ACTION_FORWARD, BEFORE, false},
    {TRI_ACTION_FORWARD, ACTIVATIONS, true},
    {TRI_ACTION_FORWARD, READ, false},
    {TRI_ACTION_FORWARD, MADE, true},
    {TRI_ACTION_RECOMPUTE, PARAMETERS, false},
    {TRI_ACTION_RECOMPUTE, BEFORE, false},
    {TRI_ACTION_RECOMPUTE, ACTIVATIONS, true},
    // RECOMPUTE writes the values of the block's edges a second time. So it has to wait for a SEND
    // that may still be reading them.
    {TRI_ACTION_RECOMPUTE, MADE, true},
    {TRI_ACTION_BACKWARD, PARAMETERS, false},
    {TRI_ACTION_BACKWARD, GRADIENTS, true},
    {TRI_ACTION_BACKWARD, BEHIND, false},
    {TRI_ACTION_BACKWARD, ACTIVATIONS, true},
    {TRI_ACTION_BACKWARD, READ_BACK, false},
    {TRI_ACTION_BACKWARD, MADE_BACK, true},
    {TRI_ACTION_BACKWARD_INPUT, PARAMETERS, false},
    {TRI_ACTION_BACKWARD_INPUT, GRADIENTS, true},
    {TRI_ACTION_BACKWARD_INPUT, BEHIND, false},
    {TRI_ACTION_BACKWARD_INPUT, ACTIVATIONS, true},
    {TRI_ACTION_BACKWARD_INPUT, READ_BACK, false},
    {TRI_ACTION_BACKWARD_INPUT, MADE_BACK, true},
    {TRI_ACTION_BACKWARD_WEIGHT, PARAMETERS, false},
    {TRI_ACTION_BACKWARD_WEIGHT, GRADIENTS, true},
    {TRI_ACTION_BACKWARD_WEIGHT, ACTIVATIONS, false},
    {TRI_ACTION_SEND_ALONG, MESSAGE, false},
    {TRI_ACTION_RECV_ALONG, MESSAGE, true},
    {TRI_ACTION_SEND_BACK, MESSAGE, false},
    {TRI_ACTION_RECV_BACK, MESSAGE, true},
    {TRI_ACTION_CLEAR, GRADIENTS, true},
    {TRI_ACTION_SCATTER, GRADIENTS, true},
    {TRI_ACTION_SCATTER, OWN_GRADIENTS, true},
    {TRI_ACTION_REDUCE, OWN_GRADIENTS, true},
    {TRI_ACTION_TIE, OWN_GRADIENTS, true},
    {TRI_ACTION_NORM, OWN_GRADIENTS, false}, // those of all units
    {TRI_ACTION_NORM, PARTIAL_GRADIENTS, true},
    {TRI_ACTION_NORM, SCALARS, true},
    {TRI_ACTION_LOAD, STATES, true},
    {TRI_ACTION_LOAD, OWN_PARAMETERS, true},
    {TRI_ACTION_STEP, SCALARS, false},
    {TRI_ACTION_STEP, OWN_GRADIENTS, false},
    {TRI_ACTION_STEP, STATES, true},
    {TRI_ACTION_STEP, PARAMETERS, true},
    {TRI_ACTION_PREPARE, STATES, false},
    {TRI_ACTION_PREPARE, PARAMETERS, true},
    // EVICT, which writes the states to storage, only reads them here. But it counts as a writer,
    // because other buffers may use their memory afterwards.
    {TRI_ACTION_EVICT, STATES, true},
    {TRI_ACTION_DOWNLOAD, OWN_GRADIENTS, false},
    {TRI_ACTION_DOWNLOAD, STATES, true},
    {TRI_ACTION_HOST_STEP, SCALARS, false},
    {TRI_ACTION_HOST_STEP, STATES, true},
    {TRI_ACTION_HOST_STEP, OWN_PARAMETERS, true},
    {TRI_ACTION_UPLOAD, STATES, false},
    {TRI_ACTION_UPLOAD, PARAMETERS, true},
};

// How resources are numbered, so that one array can hold the history of each: first the step
// scalars, then the five resources of each unit, then by micro-batch the activations of each block,
// the values of each edge, and the inputs.
struct tri_resources {
    const tri_schedule_request *request;
    int first_access[TRI_ACTION_KIND_COUNT + 1];
    int blocks_at, edges_at, inputs_at, count;
    // Four kinds of linked lists of edges (tri_edge), numbered 0: READ, 1: MADE, 2: READ_BACK, 3:
    // MADE_BACK (see resource_kind): the edges whose values a block reads or makes. Block b's list
    // begins with edge edge_lists[kind][b], and next_edges[kind][e] follows edge e; -1: no more.
    int *edge_lists[4];
    int *next_edges[4];
};

enum { RESOURCES_OF_UNIT = 5 };

static void list_edges(tri_arena *arena, tri_resources *t) {
    const tri_schedule_request *r = t->request;
    for (int k = 0; k < 4; k++) {
        t->edge_lists[k] = TRI_NEW_ARRAY(arena, int, r->block_count);
        t->next_edges[k] = TRI_NEW_ARRAY(arena, int, r->edge_count);
        for (int b = 0; b < r->block_count; b++) t->edge_lists[k][b] = -1;
    }
    for (int e = r->edge_count - 1; e >= 0; e--)
        for (int made = 0; made < 2; made++) {
            int k = 2 * r->edges[e].back + made;
            int *first = &t->edge_lists[k][made ? r->edges[e].from_block : r->edges[e].to_block];
            t->next_edges[k][e] = *first;
            *first = e;
        }
}

tri_resources *tri_resources_make(tri_arena *arena, const tri_schedule_request *request) {
    tri_resources *t = TRI_NEW(arena, tri_resources);
    t->request = request;
    int at = 0, rows = sizeof accesses / sizeof *accesses;
    for (int kind = 0; kind < TRI_ACTION_KIND_COUNT; kind++) {
        t->first_access[kind] = -1;
        for (int i = rows - 1; i >= 0; i--)
            if ((int)accesses[i].kind == kind) t->first_access[kind] = i;
    }
    t->first_access[TRI_ACTION_KIND_COUNT] = rows;
    at = 1 + RESOURCES_OF_UNIT * request->unit_count;
    t->blocks_at = at;
    t->edges_at = at + request->block_count * request->rounds;
    t->inputs_at = t->edges_at + request->edge_count * request->rounds;
    t->count = t->inputs_at + request->rounds;
    list_edges(arena, t);
    return t;
}

static int of_unit(const tri_resources *t, resource_kind resource, int unit) {
    if (resource == PARTIAL_GRADIENTS) resource = OWN_GRADIENTS;
    if (resource == OWN_GRADIENTS && !tri_schedule_scatters(t->request)) resource = GRADIENTS;
    if (resource == STATISTICS) resource = GRADIENTS;
    int slot = resource == STATES ? 3 : resource == OWN_PARAMETERS ? 4 : (int)resource;
    return 1 + RESOURCES_OF_UNIT * unit + slot;
}

typedef struct visit {
    const tri_resources *resources;
    bool writes;
    void (*call)(void *context, int resource, bool writes);
    void *context;
} visit;

static void visit_units(const visit *v, resource_kind resource, const int *units, int count) {
    for (int i = 0; i < count; i++) {
        const tri_unit *unit = &v->resources->request->units[units[i]];
        if (resource == STATISTICS && !unit->has_statistics) continue;
        if (resource == PARTIAL_GRADIENTS && !unit->has_partial) continue;
        if (resource == OWN_PARAMETERS && !tri_schedule_fetches(v->resources->request, units[i]))
            continue;
        if ((resource == GRADIENTS || resource == OWN_GRADIENTS) && !unit->has_gradients) continue;
        v->call(v->context, of_unit(v->resources, resource, units[i]), v->writes);
    }
}

static void visit_activations(const visit *v, int of, int block, int round) {
    const tri_schedule_request *r = v->resources->request;
    if (block < 0 || block >= r->block_count || r->blocks[block].stage != r->blocks[of].stage)
        return;
    v->call(v->context, v->resources->blocks_at + block * r->rounds + round, v->writes);
}

static void visit_edges(const visit *v, int list, int block, int round) {
    const tri_resources *t = v->resources;
    for (int e = t->edge_lists[list][block]; e >= 0; e = t->next_edges[list][e])
        v->call(v->context, t->edges_at + e * t->request->rounds + round, v->writes);
}

static void visit_access(const visit *v, const tri_action *a, resource_kind resource) {
    const tri_schedule_request *r = v->resources->request;
    switch (resource) {
    case SCALARS:
        v->call(v->context, 0, v->writes);
        break;
    case MESSAGE:
        v->call(v->context, v->resources->edges_at + a->subject * r->rounds + a->round, v->writes);
        break;
    case INPUTS:
        if (a->kind == TRI_ACTION_TAKE || a->begins_round)
            v->call(v->context, v->resources->inputs_at + a->round, v->writes);
        break;
    case ACTIVATIONS:
    case BEFORE:
    case BEHIND:
        visit_activations(v, a->subject, a->subject - (resource == BEFORE) + (resource == BEHIND),
                          a->round);
        break;
    case READ:
    case MADE:
        visit_edges(v, resource == MADE, a->subject, a->round);
        break;
    case READ_BACK:
    case MADE_BACK:
        visit_edges(v, 2 + (resource == MADE_BACK), a->subject, a->round);
        break;
    default:
        if (tri_action_subject(a->kind) == TRI_SUBJECT_BLOCK)
            visit_units(v, resource, r->blocks[a->subject].units, r->blocks[a->subject].unit_count);
        else if (a->subject >= 0)
            visit_units(v, resource, &a->subject, 1);
        else
            for (int u = 0; u < r->unit_count; u++)
                if (r->units[u].here) visit_units(v, resource, &u, 1);
    }
}

void tri_resources_visit(const tri_resources *resources, const tri_action *action,
                         void (*call)(void *context, int resource, bool writes), void *context) {
    visit v = {.resources = resources, .call = call, .context = context};
    int i = resources->first_access[action->kind];
    for (; i < resources->first_access[TRI_ACTION_KIND_COUNT] && accesses[i].kind == action->kind;
         i++) {
        v.writes = accesses[i].writes;
        visit_access(&v, action, accesses[i].resource);
    }
}

// Which actions accessed a resource so far: the last one that wrote it and, by lane, the last one
// that has read it since; -1: none. Accesses before these need no dependency of their own, because
// the actions kept here are done after them: in ALONG and BACK only one SEND reads a resource, and
// all other lanes finish their actions in order.
typedef struct history {
    int writer, readers[TRI_LANE_COUNT];
} history;

typedef struct walk {
    tri_schedule *schedule;
    history *resources;
    int now;
} walk;

static void add_dependency(tri_schedule *s, tri_action *a, int other) {
    tri_lane lane = tri_action_lane(a->kind);
    // In the lanes ALONG and BACK (messages along the pipeline, and back) a RECV may end before a
    // SEND that stands earlier in the list, and the other way round. So there two actions of one
    // lane need a dependency too.
    bool in_order = lane != TRI_LANE_ALONG && lane != TRI_LANE_BACK;
    if (other < 0 || (tri_action_lane(s->actions[other].kind) == lane && in_order)) return;
    for (int i = 0; i < a->dependency_count; i++)
        if (s->dependencies[a->first_dependency + i] == other) return;
    TRI_PUSH(s->arena, s->dependencies, s->dependency_count, s->dependency_capacity) = other;
    a->dependency_count++;
}

static void follow(void *context, int resource, bool writes) {
    walk *w = context;
    history *h = &w->resources[resource];
    tri_action *a = &w->schedule->actions[w->now];
    add_dependency(w->schedule, a, h->writer);
    if (!writes) {
        h->readers[tri_action_lane(a->kind)] = w->now;
        return;
    }
    for (int lane = 0; lane < TRI_LANE_COUNT; lane++) {
        if (h->readers[lane] != w->now) add_dependency(w->schedule, a, h->readers[lane]);
        h->readers[lane] = -1;
    }
    h->writer = w->now;
}

// Sorts the waits by action, so that the waits of one action are found without a search: those of
// action i have the indices first[i] … first[i + 1] - 1.
static int *sort_waits(tri_arena *arena, const tri_schedule *s, const tri_wait *waits, int count,
                       int **first) {
    *first = TRI_NEW_ARRAY(arena, int, s->count + 1);
    int *sorted = TRI_NEW_ARRAY(arena, int, count);
    for (int i = 0; i < count; i++) (*first)[waits[i].action + 1]++;
    for (int i = 0; i < s->count; i++) (*first)[i + 1] += (*first)[i];
    int *at = TRI_NEW_ARRAY(arena, int, s->count + 1);
    memcpy(at, *first, (size_t)(s->count + 1) * sizeof *at);
    for (int i = 0; i < count; i++) sorted[at[waits[i].action]++] = waits[i].other;
    return sorted;
}

void tri_schedule_find_dependencies(tri_schedule *schedule, const tri_schedule_request *request,
                                    const tri_wait *waits, int wait_count) {
    tri_arena *arena = tri_arena_create(NULL, "dependencies");
    tri_resources *resources = tri_resources_make(arena, request);
    walk w = {.schedule = schedule, .resources = TRI_NEW_ARRAY(arena, history, resources->count)};
    memset(w.resources, -1, (size_t)resources->count * sizeof *w.resources);
    int *first_wait, *others = sort_waits(arena, schedule, waits, wait_count, &first_wait);
    schedule->dependency_count = 0;
    for (w.now = 0; w.now < schedule->count; w.now++) {
        tri_action *a = &schedule->actions[w.now];
        a->first_dependency = schedule->dependency_count;
        a->dependency_count = 0;
        tri_resources_visit(resources, a, follow, &w);
        for (int i = first_wait[w.now]; i < first_wait[w.now + 1]; i++) {
            TRI_ASSERT(others[i] < w.now);
            add_dependency(schedule, a, others[i]);
        }
    }
    tri_arena_destroy(arena);
}

static bool has_dependency(const tri_schedule *s, const tri_action *a, int other) {
    for (int k = 0; k < a->dependency_count; k++)
        if (s->dependencies[a->first_dependency + k] == other) return true;
    return false;
}

static tri_status verify_action(const tri_schedule *given, const tri_schedule *demanded,
                                int index) {
    const tri_action *a = &given->actions[index], *b = &demanded->actions[index];
    const char *rule = NULL;
    for (int d = 0; d < b->dependency_count; d++)
        if (!has_dependency(given, a, demanded->dependencies[b->first_dependency + d]))
            rule = "does not wait for what it reads or overwrites";
    for (int k = 0; k < a->dependency_count; k++)
        if (given->dependencies[a->first_dependency + k] >= index)
            rule = "waits for a later action";
    if (!rule) return TRI_OK;
    return TRI_FAIL(TRI_INTERNAL, "schedule: action %d (%s %d, round %d): %s", index,
                    tri_action_name(a->kind), a->subject, a->round, rule);
}

tri_status tri_dependencies_verify(const tri_schedule *schedule,
                                   const tri_schedule_request *request) {
    tri_arena *arena = tri_arena_create(NULL, "schedule check");
    tri_schedule derived = {.arena = arena, .count = schedule->count};
    derived.actions = TRI_NEW_ARRAY(arena, tri_action, schedule->count);
    if (schedule->count)
        memcpy(derived.actions, schedule->actions,
               (size_t)schedule->count * sizeof *schedule->actions);
    tri_schedule_find_dependencies(&derived, request, NULL, 0);
    tri_status status = TRI_OK;
    for (int i = 0; i < schedule->count && status == TRI_OK; i++)
        status = verify_action(schedule, &derived, i);
    tri_arena_destroy(arena);
    return status;
}
