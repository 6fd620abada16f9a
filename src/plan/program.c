#include "plan/program.h"

#include "ops/ops.h"
#include "pass/pass.h"
#include "plan/memory.h"

#include <string.h>

static tri_value batch_input(tri_graph *g, const tri_field *field, int64_t batch) {
    tri_shape shape = {.rank = field->shape.rank + 1, .dims = {batch}};
    TRI_ASSERT(shape.rank <= TRI_MAX_RANK);
    for (int i = 0; i < field->shape.rank; i++) shape.dims[i + 1] = field->shape.dims[i];
    return tri_input(g, field->name, field->dtype, shape);
}

static tri_status name_field(tri_batch *batch, const char *name, tri_value value) {
    struct {
        const char *name;
        tri_value *slot;
    } slots[] = {{"images", &batch->images},
                 {"labels", &batch->labels},
                 {"inputs", &batch->inputs},
                 {"targets", &batch->targets},
                 {"input_ids", &batch->input_ids}};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        if (strcmp(slots[i].name, name) != 0) continue;
        *slots[i].slot = value;
        return TRI_OK;
    }
    return TRI_FAIL(TRI_BAD_INPUT, "data: no model reads a field named '%s'", name);
}

tri_status tri_model_build(tri_arena *arena, const tri_model_request *request, int64_t batch,
                           tri_graph **out) {
    tri_graph *g = tri_graph_create(arena, &request->options);
    tri_batch inputs = {.size = batch};
    for (int i = 0; i < request->field_count; i++)
        TRI_TRY(name_field(&inputs, request->fields[i].name,
                           batch_input(g, &request->fields[i], batch)));
    request->task->build(g, &inputs);
    if (g->status != TRI_OK)
        return TRI_FAIL(g->status, "model %s: %s", request->task->name, g->message);
    TRI_TRY(tri_graph_verify(g));
    if (g->metric_count == 0 || strcmp(g->metrics[0].name, "loss") != 0)
        return TRI_FAIL(TRI_BAD_INPUT, "model %s: declares no loss: it must call tri_loss",
                        request->task->name);
    *out = g;
    return TRI_OK;
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

static int64_t aligned(int64_t size) {
    return (size + TRI_MEMORY_ALIGNMENT - 1) / TRI_MEMORY_ALIGNMENT * TRI_MEMORY_ALIGNMENT;
}

// Everything that does not lie among the activations.
static void place_fixed(tri_program *p) {
    const tri_graph *g = p->graph;
    for (int i = 0; i < g->input_count; i++) {
        p->places[g->inputs[i].value.id] = (tri_place){TRI_PLACE_INPUT, i, p->input_bytes};
        p->input_bytes += aligned(tri_value_bytes(g, g->inputs[i].value));
    }
    for (int i = 0; i < TRI_SCALAR_KIND_COUNT; i++)
        if (tri_value_is(g->scalars[i]))
            p->places[g->scalars[i].id] = (tri_place){TRI_PLACE_SCALAR, i, 0};
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_parameter_info *info = &g->parameters[i];
        p->places[info->value.id] = (tri_place){TRI_PLACE_PARAMETER, i, 0};
    }
    for (int i = 0; p->training && i < g->gradient_count; i++)
        p->places[g->gradients[i].value.id] =
            (tri_place){TRI_PLACE_GRADIENT, g->gradients[i].parameter, 0};
    for (int i = 0; i < g->metric_count; i++) {
        if (!tri_value_is(g->metrics[i].value)) continue; // of evaluation only
        p->places[g->metrics[i].value.id] = (tri_place){TRI_PLACE_RESULT, i, p->result_bytes};
        p->result_bytes += aligned(tri_value_bytes(g, g->metrics[i].value));
    }
}

// True when nothing that lies in the memory of `value` is read after node `at`, and it is an
// activation's.
static bool may_overwrite(const tri_program *p, const uint32_t *home, const int *last_use,
                          tri_value value, int at) {
    uint32_t root = home[value.id];
    return p->graph->values[root].kind == TRI_VALUE_RESULT &&
           p->places[root].kind == TRI_PLACE_NONE && last_use[root] <= at &&
           last_use[value.id] <= at;
}

// A view, or an output written over its input, lies where that input lies: its index, or -1.
static int shared_input(const tri_program *p, const tri_node *node, const uint32_t *home,
                        const int *last_use, int at) {
    const tri_graph *g = p->graph;
    if (node->output_count == 0 || p->places[node->outputs[0].id].kind != TRI_PLACE_NONE) return -1;
    if (node->op->flags & TRI_OP_VIEW) return 0;
    int k = node->op->in_place - 1;
    if (k < 0 || !tri_value_is(node->inputs[k])) return -1;
    const tri_value_info *in = tri_value_get(g, node->inputs[k]);
    const tri_value_info *out = tri_value_get(g, node->outputs[0]);
    if (in->dtype != out->dtype || !tri_shape_equal(&in->shape, &out->shape) ||
        !tri_layout_equal(&in->layout, &out->layout))
        return -1;
    if (!may_overwrite(p, home, last_use, node->inputs[k], at)) return -1;
    for (int i = 0; i < node->input_count; i++)
        if (i != k && home[node->inputs[i].id] == home[node->inputs[k].id]) return -1;
    return k;
}

// By value: the value in whose memory it lies. A shared memory lives as long as the last of its
// values.
static uint32_t *find_homes(const tri_program *p, int *last_use) {
    const tri_graph *g = p->graph;
    uint32_t *home = TRI_NEW_ARRAY(p->arena, uint32_t, g->value_count);
    for (int i = 0; i < g->value_count; i++) home[i] = (uint32_t)i;
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        for (int k = 0; k < node->input_count; k++)
            if (last_use[node->inputs[k].id] < i) last_use[node->inputs[k].id] = i;
    }
    // A view's readers read its input: so does whoever wrote in place before them.
    for (int i = g->node_count - 1; i >= 0; i--) {
        const tri_node *node = &g->nodes[i];
        if (!(node->op->flags & TRI_OP_VIEW)) continue;
        int view = last_use[node->outputs[0].id], *base = &last_use[node->inputs[0].id];
        if (view > *base) *base = view;
    }
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        int k = shared_input(p, node, home, last_use, i);
        if (k < 0) continue;
        uint32_t root = home[node->inputs[k].id];
        home[node->outputs[0].id] = root;
        int use = last_use[node->outputs[0].id];
        if (use > last_use[root]) last_use[root] = use;
    }
    return home;
}

static void place_activations(tri_program *p) {
    const tri_graph *g = p->graph;
    int *last_use = TRI_NEW_ARRAY(p->arena, int, g->value_count);
    uint32_t *home = find_homes(p, last_use);
    tri_interval *intervals = TRI_NEW_ARRAY(p->arena, tri_interval, g->value_count);
    uint32_t *owner = TRI_NEW_ARRAY(p->arena, uint32_t, g->value_count);
    int count = 0;
    for (int i = 1; i < g->value_count; i++) {
        const tri_value_info *info = &g->values[i];
        if (info->kind != TRI_VALUE_RESULT || home[i] != (uint32_t)i) continue;
        if (p->places[i].kind != TRI_PLACE_NONE) continue;
        int last = last_use[i] > info->node ? last_use[i] : info->node;
        owner[count] = (uint32_t)i;
        intervals[count++] =
            (tri_interval){.size_bytes = tri_value_bytes(g, (tri_value){(uint32_t)i}),
                           .first = info->node,
                           .last = last};
    }
    p->activation_bytes = tri_memory_place(p->arena, intervals, count);
    for (int i = 0; i < count; i++)
        p->places[owner[i]] = (tri_place){TRI_PLACE_ACTIVATION, 0, intervals[i].offset};
    for (int i = 1; i < g->value_count; i++)
        if (home[i] != (uint32_t)i) p->places[i] = p->places[home[i]];
}

// A view costs nothing where it lies in its input's memory.
static bool is_free_view(const tri_program *p, const tri_node *node) {
    if (!(node->op->flags & TRI_OP_VIEW)) return false;
    tri_place in = p->places[node->inputs[0].id], out = p->places[node->outputs[0].id];
    return in.kind == out.kind && in.index == out.index && in.offset == out.offset;
}

static tri_status prepare_kernels(tri_program *p) {
    const tri_graph *g = p->graph;
    p->kernels = TRI_NEW_ARRAY(p->arena, tri_kernel, g->node_count);
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        if (is_free_view(p, node)) continue;
        const tri_kernel_def *def = tri_device_select(p->device, g, node);
        if (node->op->flags & TRI_OP_COLLECTIVE) continue; // the engine's
        TRI_ASSERT(def);                                   // the layout pass has asked before
        TRI_TRY(tri_kernel_prepare(def, p->device, g, node, &p->kernels[i]));
        int64_t workspace = aligned((int64_t)p->kernels[i].workspace_bytes);
        if (workspace > p->workspace_bytes) p->workspace_bytes = workspace;
    }
    return TRI_OK;
}

static tri_status compile(tri_program *p, const tri_model_request *request) {
    TRI_TRY(tri_model_build(p->arena, request, p->batch, &p->graph));
    TRI_TRY(tri_pass_fuse(p->graph));
    TRI_TRY(tri_pass_precision(p->graph, request->options.precision));
    if (p->training) TRI_TRY(tri_pass_autodiff(p->graph));
    for (int i = 0; i < p->graph->gradient_count; i++)
        for (int k = 0; k < i; k++)
            if (p->graph->gradients[k].parameter == p->graph->gradients[i].parameter)
                return TRI_FAIL(TRI_UNSUPPORTED, "parameter %s is read by several blocks",
                                p->graph->parameters[p->graph->gradients[i].parameter].name);
    TRI_TRY(tri_pass_layout(p->graph, p->device));
    find_segments(p);
    p->places = TRI_NEW_ARRAY(p->arena, tri_place, p->graph->value_count);
    place_fixed(p);
    place_activations(p);
    return prepare_kernels(p);
}

tri_status tri_program_create(tri_arena *parent, tri_device *device,
                              const tri_model_request *request, int64_t batch, tri_program **out) {
    tri_arena *arena = tri_arena_create(parent, "program");
    tri_program *p = TRI_NEW(arena, tri_program);
    *p = (tri_program){
        .arena = arena, .device = device, .batch = batch, .training = request->options.training};
    tri_status status = compile(p, request);
    if (status != TRI_OK) {
        tri_program_destroy(p);
        return status;
    }
    *out = p;
    return TRI_OK;
}

void tri_program_destroy(tri_program *program) {
    if (!program) return;
    for (int i = 0; program->kernels && i < program->graph->node_count; i++)
        tri_kernel_release(&program->kernels[i]);
    tri_arena_destroy(program->arena);
}

double tri_program_flops(const tri_program *program, int block, tri_phase phase) {
    tri_segment s = program->segments[block][phase];
    double flops = 0;
    for (int i = s.first; i < s.end; i++)
        flops += tri_node_cost(program->graph, &program->graph->nodes[i]).flops;
    return flops;
}
