// Assigns a location in memory to every value of a program (the compiled model). Values that share
// memory (a view and its base, an output written over its input) form a class. A segment is the
// nodes of one block in one phase. A class that only one segment touches lies in the scratch, which
// all segments use in turn. The others have to outlive their segment, so they lie in bundles: a
// bundle has the classes that the same segments read and write. RECOMPUTE is the action that runs a
// block's FORWARD segment again before its backward pass. Read next: flat.c, for parameters.
#include "graph/metric.h"
#include "plan/memory.h"
#include "plan/program.h"

#include <stdlib.h>

enum { NO_STAGE = -1, SEVERAL_STAGES = -2 }; // see locating.read_in

typedef struct locating {
    tri_program *p;
    const tri_program_request *request;
    int *last_use;  // last_use[v]: the last node that reads value v; 0: node 0 or none
    uint32_t *home; // home[v]: the value whose memory value v shares, or v
    // read_in[v]: the only stage whose nodes read value v or one that shares its memory; or else
    // NO_STAGE or SEVERAL_STAGES.
    int *read_in;
    int segment_count;
    // For each value v with home[v] == v, the segments that read or write its memory:
    // touch_count[v] entries of `touches` from first_touch[v] on, ascending. An entry is 2 ·
    // segment, plus 1 if the segment writes.
    int *touches, *first_touch, *touch_count;
} locating;

static int64_t aligned_bytes(const tri_program *p, tri_value value) {
    return tri_memory_round_up(tri_value_bytes(p->graph, value), p->device.alignment);
}

static void find_segments(tri_program *p) {
    const tri_graph *g = p->graph;
    p->segments = tri_arena_alloc(p->arena, (size_t)g->block_count * sizeof *p->segments);
    for (int i = 0; i < g->node_count; i++) {
        tri_segment *s = &p->segments[g->nodes[i].block][g->nodes[i].phase];
        if (s->end == 0) s->first = i;
        s->end = i + 1;
    }
}

static void locate_cache(tri_program *p, const tri_node *node) {
    const tri_value_info *info = tri_value_get(p->graph, node->outputs[0]);
    const tri_value_info *spans = tri_value_get(p->graph, node->inputs[1]);
    p->locations[node->outputs[0].id] = (tri_location){TRI_LOCATION_CACHE, p->cache_count, 0};
    if (!p->caches) p->caches = TRI_NEW_ARRAY(p->arena, tri_program_cache, p->graph->node_count);
    p->caches[p->cache_count++] =
        (tri_program_cache){.name = node->name,
                            .block = node->block,
                            .row_bytes = tri_value_bytes(p->graph, node->outputs[0]) / p->batch,
                            .length = info->shape.dims[1],
                            .spans = spans->kind == TRI_VALUE_INPUT ? spans->index : -1};
}

// Assigns the locations of inputs, scalars, parameters, gradients, caches and results. The
// locations of all other values, the activations, depend on which segments read them
// (locate_activations).
static void locate_fixed(tri_program *p) {
    const tri_graph *g = p->graph;
    for (int i = 0; i < g->input_count; i++) {
        p->locations[g->inputs[i].value.id] = (tri_location){TRI_LOCATION_INPUT, i, p->input_bytes};
        p->input_bytes += aligned_bytes(p, g->inputs[i].value);
    }
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i].op->flags & TRI_OP_KEPT) locate_cache(p, &g->nodes[i]);
    for (int i = 0; i < TRI_SCALAR_KIND_COUNT; i++)
        if (tri_value_is(g->scalars[i]))
            p->locations[g->scalars[i].id] = (tri_location){TRI_LOCATION_SCALAR, i, 0};
    for (int i = 0; i < g->parameter_count; i++)
        p->locations[g->parameters[i].value.id] = (tri_location){TRI_LOCATION_PARAMETER, i, 0};
    for (int i = 0; p->training && i < g->gradient_count; i++)
        p->locations[g->gradients[i].value.id] =
            (tri_location){TRI_LOCATION_GRADIENT, g->gradients[i].parameter, 0};
    for (int i = 0; i < g->metric_count; i++) {
        if (!tri_value_is(g->metrics[i].value)) continue; // training does not compute it
        if (g->metrics[i].source != i) continue;
        bool counts = tri_tally_counts((tri_tally)g->metrics[i].tally);
        p->locations[g->metrics[i].value.id] =
            (tri_location){counts ? TRI_LOCATION_COUNTS : TRI_LOCATION_RESULT, i,
                           tri_metric_offset(g, i) * (int64_t)sizeof(double)};
    }
    p->result_bytes =
        (tri_metric_numbers(g, false) + 2 * tri_metric_numbers(g, true)) * (int64_t)sizeof(double);
}

static int segment_of(const tri_node *node) {
    return node->block * TRI_PHASE_COUNT + (int)node->phase;
}

// Whether RECOMPUTE may run the node a second time. Then the node may write over its input only in
// some cases (see may_reach_back and shared_input), because the second run would write there once
// more.
static bool is_recomputed(const locating *c, const tri_node *node) {
    const bool *recompute = c->request->recompute;
    return recompute && recompute[node->block] && node->phase == TRI_PHASE_FORWARD;
}

// Whether the node may write over memory that `maker` wrote, if no later node of the graph reads
// that memory. If both are in one segment, it always may. Otherwise it may not in two cases:
// - The node comes after the forward pass, and the backward pass is split. Then the schedule may
//   run segments in another order than the graph's, so that a node that comes earlier in the graph
//   may still have to read the memory.
// - RECOMPUTE runs the node a second time, or it runs the maker a second time and the maker belongs
//   to another block. The second run would overwrite what another segment has written meanwhile.
static bool may_reach_back(const locating *c, const tri_node *node, const tri_node *maker) {
    if (segment_of(node) == segment_of(maker)) return true;
    if (c->request->splits_backward && node->phase != TRI_PHASE_FORWARD) return false;
    bool made_again = is_recomputed(c, maker) && maker->block != node->block;
    return !is_recomputed(c, node) && !made_again;
}

static int stage_of(const locating *c, const tri_node *node) {
    return c->request->stages ? c->request->stages[node->block] : 0;
}

static void add_stage(int *known, int stage) {
    if (stage == NO_STAGE || *known == stage) return;
    *known = *known == NO_STAGE ? stage : SEVERAL_STAGES;
}

// Whether the node may write its output over the memory with value `root`, as far as stages send
// each other values: the graph's order does not say when a SEND reads a value, and when a RECV
// writes it. So only nodes of this stage may read what lies there. And if another stage has made
// it, the output may not leave this stage, because the other stage may need the memory, from which
// it has sent, for the output too.
static bool may_cross(const locating *c, const tri_node *node, uint32_t root) {
    const tri_graph *g = c->p->graph;
    int stage = stage_of(c, node), reader = c->read_in[node->outputs[0].id];
    if (c->read_in[root] != stage) return false;
    return stage_of(c, &g->nodes[g->values[root].node]) == stage || reader == stage ||
           reader == NO_STAGE;
}

// Whether the node may write over the memory of `value`: that memory holds an activation, and
// nothing in it is read after node `at`.
static bool may_overwrite(const locating *c, const tri_node *node, tri_value value, int at) {
    const tri_graph *g = c->p->graph;
    uint32_t root = c->home[value.id];
    return g->values[root].kind == TRI_VALUE_RESULT &&
           c->p->locations[root].kind == TRI_LOCATION_NONE && c->last_use[root] <= at &&
           c->last_use[value.id] <= at && may_cross(c, node, root) &&
           may_reach_back(c, node, &g->nodes[g->values[root].node]) &&
           may_reach_back(c, node, &g->nodes[g->values[value.id].node]);
}

// The index of the input whose memory the node's first output shares, as a view or written over it;
// -1: none.
static int shared_input(const locating *c, const tri_node *node, int at) {
    const tri_graph *g = c->p->graph;
    if (node->output_count == 0 || c->p->locations[node->outputs[0].id].kind != TRI_LOCATION_NONE)
        return -1;
    if (node->op->flags & TRI_OP_VIEW) return 0;
    int k = tri_node_overwrites(node->op, node->attr);
    if (k < 0 || !tri_value_is(node->inputs[k])) return -1;
    const tri_value_info *in = tri_value_get(g, node->inputs[k]);
    const tri_value_info *out = tri_value_get(g, node->outputs[0]);
    if (in->dtype != out->dtype || !tri_shape_equal(&in->shape, &out->shape) ||
        !tri_layout_equal(&in->layout, &out->layout))
        return -1;
    if (!may_overwrite(c, node, node->inputs[k], at)) return -1;
    // If RECOMPUTE runs the block again, it writes the input a second time. An output in the same
    // memory would be lost then, although a later segment (WEIGHT of another block) may still have
    // to read that output. `leaves`: a later segment reads the output.
    bool leaves = c->last_use[node->outputs[0].id] >= c->p->segments[node->block][node->phase].end;
    if (is_recomputed(c, node) && c->request->splits_backward && leaves) return -1;
    for (int i = 0; i < node->input_count; i++)
        if (i != k && c->home[node->inputs[i].id] == c->home[node->inputs[k].id]) return -1;
    return k;
}

// Finds the node at which node i reads the value for the last time. Mostly that is node i itself.
// But RECOMPUTE runs node i again just before the block's backward pass, and then reads once more
// what other segments made.
static int last_read(const locating *c, int i, tri_value value) {
    const tri_graph *g = c->p->graph;
    const tri_node *node = &g->nodes[i];
    const tri_node *maker = tri_value_is(value) ? tri_value_node(g, value) : NULL;
    if (!is_recomputed(c, node) || !maker || segment_of(maker) == segment_of(node)) return i;
    const tri_segment *segments = c->p->segments[node->block];
    for (int phase = TRI_PHASE_FORWARD + 1; phase < TRI_PHASE_COUNT; phase++)
        if (segments[phase].end > 0) return segments[phase].first;
    return i;
}

// Finds for each value the node that reads its memory last (`last_use`), and the stage of all nodes
// that read it (`read_in`).
static void find_uses(locating *c) {
    const tri_graph *g = c->p->graph;
    for (int i = 0; i < g->value_count; i++) c->read_in[i] = NO_STAGE;
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        for (int k = 0; k < node->input_count; k++) {
            int use = last_read(c, i, node->inputs[k]), *last = &c->last_use[node->inputs[k].id];
            if (*last < use) *last = use;
            add_stage(&c->read_in[node->inputs[k].id], stage_of(c, node));
        }
    }
    // The host gets an output of the model after the segment that makes it, so no node of that
    // segment may use its memory again.
    for (int i = 0; i < g->output_count; i++) {
        const tri_node *maker = tri_value_node(g, g->outputs[i].value);
        int end = maker ? c->p->segments[maker->block][maker->phase].end : 0;
        int *last = &c->last_use[g->outputs[i].value.id];
        if (*last < end) *last = end;
    }
    // A node that reads a view reads the memory of the view's input, so that memory is in use as
    // long as the view.
    for (int i = g->node_count - 1; i >= 0; i--) {
        const tri_node *node = &g->nodes[i];
        if (!(node->op->flags & TRI_OP_VIEW)) continue;
        int view = c->last_use[node->outputs[0].id], *base = &c->last_use[node->inputs[0].id];
        if (view > *base) *base = view;
        add_stage(&c->read_in[node->inputs[0].id], c->read_in[node->outputs[0].id]);
    }
}

// Finds for each value the value whose memory it shares (`home`).
static void find_homes(locating *c) {
    const tri_graph *g = c->p->graph;
    for (int i = 0; i < g->value_count; i++) c->home[i] = (uint32_t)i;
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        int k = shared_input(c, node, i);
        if (k < 0) continue;
        uint32_t root = c->home[node->inputs[k].id];
        c->home[node->outputs[0].id] = root;
        int use = c->last_use[node->outputs[0].id];
        if (use > c->last_use[root]) c->last_use[root] = use;
        add_stage(&c->read_in[root], c->read_in[node->outputs[0].id]);
    }
}

// An output that its node does not make, such as the further outputs of a formula with one result,
// has no bytes, and gets no memory.
static bool is_activation(const locating *c, uint32_t id) {
    return c->p->graph->values[id].kind == TRI_VALUE_RESULT &&
           c->p->locations[id].kind == TRI_LOCATION_NONE &&
           tri_value_bytes(c->p->graph, (tri_value){id}) > 0;
}

// Records that the node's segment reads or writes the value's memory. While `touches` is NULL it
// only counts, so that the lists can be allocated.
static void mark(const locating *c, tri_value value, const tri_node *node, bool is_written) {
    if (!tri_value_is(value) || !is_activation(c, c->home[value.id])) return;
    uint32_t home = c->home[value.id];
    int at = c->touch_count[home]++;
    if (c->touches) c->touches[c->first_touch[home] + at] = 2 * segment_of(node) + is_written;
}

static void mark_all(const locating *c) {
    const tri_graph *g = c->p->graph;
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        bool is_view = node->op->flags & TRI_OP_VIEW;
        for (int k = 0; k < node->input_count; k++) mark(c, node->inputs[k], node, false);
        for (int k = 0; k < node->output_count; k++) mark(c, node->outputs[k], node, !is_view);
    }
}

static int ascending(const void *left, const void *right) {
    int a = *(const int *)left, b = *(const int *)right;
    return a < b ? -1 : a > b;
}

// Sorts the touches of one value, and keeps one entry for each segment: the one that says that the
// segment writes, if there is one. Then values that are written and read by the same segments have
// equal lists, by which locate_in_bundle puts them into one bundle.
static int sort_touches(int *touches, int count) {
    int kept = 0;
    qsort(touches, (size_t)count, sizeof *touches, ascending);
    for (int i = 0; i < count; i++) {
        if (i + 1 < count && touches[i + 1] / 2 == touches[i] / 2) continue;
        touches[kept++] = touches[i];
    }
    return kept;
}

static void find_touches(locating *c) {
    int values = c->p->graph->value_count, total = 0;
    c->first_touch = TRI_NEW_ARRAY(c->p->arena, int, values);
    c->touch_count = TRI_NEW_ARRAY(c->p->arena, int, values);
    mark_all(c);
    for (int i = 0; i < values; i++) {
        c->first_touch[i] = total;
        total += c->touch_count[i];
        c->touch_count[i] = 0;
    }
    c->touches = TRI_NEW_ARRAY(c->p->arena, int, total);
    mark_all(c);
    for (int i = 0; i < values; i++)
        c->touch_count[i] = sort_touches(&c->touches[c->first_touch[i]], c->touch_count[i]);
}

static const int *touches_of(const locating *c, uint32_t id) {
    return c->touches + c->first_touch[id];
}

// The bundles that locate_in_bundle has made so far. All values of a bundle are read and written by
// the same segments, so they have equal lists in locating.touches. by_touches finds the bundle by
// that list; first_of[b] is the first value of bundle b.
typedef struct bundles {
    tri_index by_touches;
    uint32_t *first_of;
    int capacity;
} bundles;

static void locate_in_bundle(locating *c, uint32_t id, bundles *known) {
    tri_program *p = c->p;
    const int *touches = touches_of(c, id);
    int count = c->touch_count[id];
    const char *key = (const char *)touches;
    size_t bytes = (size_t)count * sizeof *touches;
    int bundle = tri_index_find(&known->by_touches, key, bytes);
    if (bundle == TRI_NOT_IN_INDEX) {
        bundle = p->bundle_count;
        known->first_of[bundle] = id;
        tri_index_put(p->arena, &known->by_touches, key, bytes, bundle);
        tri_bundle new = {.own_block = touches[0] / 2 / TRI_PHASE_COUNT};
        for (int i = 1; i < count; i++)
            if (touches[i] / 2 / TRI_PHASE_COUNT != new.own_block) new.own_block = -1;
        TRI_PUSH(p->arena, p->bundles, p->bundle_count, known->capacity) = new;
    }
    p->locations[id] = (tri_location){TRI_LOCATION_BUNDLE, bundle, p->bundles[bundle].size_bytes};
    p->bundles[bundle].size_bytes += aligned_bytes(p, (tri_value){id});
}

// Places `ids`, the values whose memory only this segment reads and writes, in the scratch, packed
// by their lifetimes. Segments of blocks on other ranks never run here, so they get no memory.
static void locate_scratch(locating *c, const uint32_t *ids, int count, int segment) {
    if (count == 0) return;
    int block = segment / TRI_PHASE_COUNT;
    if (c->request->blocks_here && !c->request->blocks_here[block]) return;
    tri_program *p = c->p;
    const tri_graph *g = p->graph;
    tri_arena *arena = tri_arena_create(NULL, "scratch");
    tri_interval *intervals = TRI_NEW_ARRAY(arena, tri_interval, count);
    for (int i = 0; i < count; i++) {
        int made = g->values[ids[i]].node;
        intervals[i] =
            (tri_interval){.size_bytes = tri_value_bytes(g, (tri_value){ids[i]}),
                           .first = made,
                           .last = c->last_use[ids[i]] > made ? c->last_use[ids[i]] : made};
    }
    int64_t bytes = tri_memory_pack(arena, intervals, count, p->device.alignment);
    for (int i = 0; i < count; i++)
        p->locations[ids[i]] = (tri_location){TRI_LOCATION_SCRATCH, 0, intervals[i].offset};
    p->segments[block][segment % TRI_PHASE_COUNT].scratch_bytes = bytes;
    if (bytes > p->scratch_bytes) p->scratch_bytes = bytes;
    tri_arena_destroy(arena);
}

// Lists for each segment the bundles that it reads or writes, which need memory while the segment's
// action runs.
static void list_bundles(locating *c, const uint32_t *first_of) {
    tri_program *p = c->p;
    int *counts = TRI_NEW_ARRAY(p->arena, int, c->segment_count);
    for (int b = 0; b < p->bundle_count; b++)
        for (int i = 0; i < c->touch_count[first_of[b]]; i++)
            counts[touches_of(c, first_of[b])[i] / 2]++;
    for (int s = 0; s < c->segment_count; s++) {
        tri_segment *segment = &p->segments[s / TRI_PHASE_COUNT][s % TRI_PHASE_COUNT];
        segment->bundles = TRI_NEW_ARRAY(p->arena, int, counts[s]);
        segment->writes = TRI_NEW_ARRAY(p->arena, bool, counts[s]);
    }
    for (int b = 0; b < p->bundle_count; b++)
        for (int i = 0; i < c->touch_count[first_of[b]]; i++) {
            int touch = touches_of(c, first_of[b])[i], s = touch / 2;
            tri_segment *segment = &p->segments[s / TRI_PHASE_COUNT][s % TRI_PHASE_COUNT];
            segment->writes[segment->bundle_count] = touch % 2;
            segment->bundles[segment->bundle_count++] = b;
        }
}

static void locate_activations(locating *c) {
    tri_program *p = c->p;
    const tri_graph *g = p->graph;
    bundles known = {.first_of = TRI_NEW_ARRAY(p->arena, uint32_t, g->value_count)};
    // `local`: the values that only one segment touches, sorted by segment. end[s]: the index after
    // the last value of segment s, once `local` is filled.
    uint32_t *local = TRI_NEW_ARRAY(p->arena, uint32_t, g->value_count);
    int *end = TRI_NEW_ARRAY(p->arena, int, c->segment_count + 1);
    for (int id = 1; id < g->value_count; id++)
        if (c->touch_count[id] == 1) end[touches_of(c, (uint32_t)id)[0] / 2 + 1]++;
    for (int s = 0; s < c->segment_count; s++) end[s + 1] += end[s];
    for (uint32_t id = 1; id < (uint32_t)g->value_count; id++) {
        if (c->touch_count[id] > 1) locate_in_bundle(c, id, &known);
        if (c->touch_count[id] == 1) local[end[touches_of(c, id)[0] / 2]++] = id;
    }
    for (int s = 0; s < c->segment_count; s++) {
        int first = s > 0 ? end[s - 1] : 0;
        locate_scratch(c, local + first, end[s] - first, s);
    }
    for (int i = 1; i < g->value_count; i++)
        if (c->home[i] != (uint32_t)i) p->locations[i] = p->locations[c->home[i]];
    list_bundles(c, known.first_of);
}

static void find_input_readers(tri_program *p) {
    const tri_graph *g = p->graph;
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        for (int k = 0; k < node->input_count; k++)
            if (p->locations[node->inputs[k].id].kind == TRI_LOCATION_INPUT)
                p->segments[node->block][node->phase].reads_inputs = true;
    }
}

// Finds which nodes RECOMPUTE runs: a node of FORWARD if a backward segment of its block reads its
// outputs, directly or through other nodes. No one would read the outputs of the other nodes.
static void find_recomputed(tri_program *p) {
    const tri_graph *g = p->graph;
    p->recomputed = TRI_NEW_ARRAY(p->arena, bool, g->node_count);
    for (int i = g->node_count - 1; i >= 0; i--) {
        const tri_node *node = &g->nodes[i];
        if (node->phase == TRI_PHASE_FORWARD && !p->recomputed[i]) continue;
        for (int k = 0; k < node->input_count; k++) {
            const tri_value_info *info = tri_value_get(g, node->inputs[k]);
            if (info->kind != TRI_VALUE_RESULT) continue;
            const tri_node *maker = &g->nodes[info->node];
            if (maker->block == node->block && maker->phase == TRI_PHASE_FORWARD)
                p->recomputed[info->node] = true;
        }
    }
}

void tri_program_assign_locations(tri_program *program, const tri_program_request *request) {
    const tri_graph *g = program->graph;
    find_segments(program);
    program->locations = TRI_NEW_ARRAY(program->arena, tri_location, g->value_count);
    locate_fixed(program);
    locating c = {.p = program,
                  .request = request,
                  .last_use = TRI_NEW_ARRAY(program->arena, int, g->value_count),
                  .home = TRI_NEW_ARRAY(program->arena, uint32_t, g->value_count),
                  .read_in = TRI_NEW_ARRAY(program->arena, int, g->value_count),
                  .segment_count = g->block_count * TRI_PHASE_COUNT};
    find_uses(&c);
    find_homes(&c);
    find_touches(&c);
    locate_activations(&c);
    find_input_readers(program);
    find_recomputed(program);
}
