// Compiles a model for one size of micro-batch: builds the graph (for instance
// nn/models/cnn.c), runs the passes (pass/pass.h), assigns locations (locations.c), and chooses
// kernels.
#include "plan/program.h"

#include "graph/loss.h"
#include "nn/lora.h"
#include "nn/recipe_loss.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "plan/memory.h"
#include "plan/stand_in.h"

#include <string.h>

static void batch_input(tri_graph *g, const tri_field *field, int64_t batch) {
    tri_shape shape = {.rank = field->shape.rank + 1, .dims = {batch}};
    TRI_ASSERT(shape.rank <= TRI_MAX_RANK);
    for (int i = 0; i < field->shape.rank; i++) shape.dims[i + 1] = field->shape.dims[i];
    tri_input(g, field->name, field->dtype, shape);
}

// Checks that there is what this program is for, a loss or outputs, and drops the loss and the
// metrics of a program for outputs, and what only a replaced loss reads.
static tri_status keep_asked(tri_graph *g, const char *model) {
    if (!g->options.predicts) {
        if (g->metric_count == 0 || strcmp(g->metrics[0].name, "loss") != 0)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "model %s: declares no loss: write one in the recipe, such as `loss: "
                            "{name: cross_entropy}`, or let the model call tri_loss",
                            model);
        g->output_count = 0;
        return tri_pass_sweep(g);
    }
    if (g->output_count == 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "model %s: names no outputs: its build function must call tri_output",
                        model);
    tri_loss_drop(g);
    return tri_pass_sweep(g);
}

// Builds the graph with inputs for the absent fields of which `stands_in` is set.
static tri_status build(tri_arena *arena, const tri_model_request *request, int64_t batch,
                        const bool *stands_in, tri_graph **out) {
    tri_graph_options options = request->options;
    options.task = request->task;
    tri_graph *g = tri_graph_create(arena, &options);
    for (int i = 0; i < request->field_count; i++) batch_input(g, &request->fields[i], batch);
    for (int i = 0; i < request->absent_count; i++)
        if (stands_in[i]) batch_input(g, &request->absent[i], batch);
    tri_batch inputs = tri_batch_make(g, batch);
    request->task->build(g, &inputs);
    if (g->status != TRI_OK)
        return TRI_FAIL(g->status, "model %s: %s", request->task->name, g->message);
    if (g->options.loss_count > 0 && !g->options.predicts)
        TRI_TRY(tri_recipe_loss_build(g, &inputs, request->task->name));
    TRI_TRY(tri_graph_verify(g));
    TRI_TRY(tri_lora_check(g));
    TRI_TRY(keep_asked(g, request->task->name));
    if (g->options.label_smoothing > 0 && !g->smooths_labels && !g->options.predicts)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "loss.label_smoothing=%g: the loss of model %s is no cross-entropy of "
                        "labels, or has its own .label_smoothing",
                        g->options.label_smoothing, request->task->name);
    if (g->options.metrics.count > 0 && !g->reports_metrics && !g->options.predicts)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "metrics: %s is of scores and labels, and model %s has no loss of such: no "
                        "cross-entropy and no nll_loss",
                        g->options.metrics.items[0], request->task->name);
    *out = g;
    return TRI_OK;
}

// Builds a model that cannot be built without absent fields. Inputs stand in for all of them, but
// for those that an output reads if they are there: the model may do without them.
static tri_status build_with_absent(tri_arena *arena, const tri_model_request *request,
                                    int64_t batch, tri_graph **out) {
    const char *why = tri_arena_strdup(arena, tri_error_message()), *output = NULL;
    bool stands_in[TRI_MAX_DATA_FIELDS];
    int read = -1;
    for (int i = 0; i < request->absent_count; i++) stands_in[i] = true;
    while (build(arena, request, batch, stands_in, out) == TRI_OK) {
        int found = tri_stand_in_find_read(*out, request->absent, request->absent_count, &output);
        if (found < 0) {
            tri_stand_in_remove(*out, request->absent, request->absent_count);
            return TRI_OK;
        }
        stands_in[read = found] = false;
        why = tri_arena_printf(arena,
                               "model %s: output '%s' depends on '%s', which the data have not",
                               request->task->name, output, request->absent[read].name);
    }
    return TRI_FAIL(TRI_BAD_INPUT, "%s", why);
}

tri_status tri_model_build(tri_arena *arena, const tri_model_request *request, int64_t batch,
                           tri_graph **out) {
    const bool none[TRI_MAX_DATA_FIELDS] = {false};
    TRI_ASSERT(request->absent_count <= TRI_MAX_DATA_FIELDS);
    tri_status status = build(arena, request, batch, none, out);
    bool retries = status == TRI_BAD_INPUT && request->absent_count > 0;
    return retries ? build_with_absent(arena, request, batch, out) : status;
}

// Whether the node is a view that lies in its input's memory, so that no kernel has to run.
static bool is_free_view(const tri_program *p, const tri_node *node) {
    if (!(node->op->flags & TRI_OP_VIEW)) return false;
    tri_location in = p->locations[node->inputs[0].id], out = p->locations[node->outputs[0].id];
    return in.kind == out.kind && in.index == out.index && in.offset == out.offset;
}

static tri_status choose_kernels(tri_program *p, const bool *blocks_here) {
    const tri_graph *g = p->graph;
    p->kernels = TRI_NEW_ARRAY(p->arena, const tri_kernel_def *, g->node_count);
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        if (is_free_view(p, node) || (blocks_here && !blocks_here[node->block])) continue;
        // The engine runs collectives, without a kernel.
        if (node->op->flags & TRI_OP_COLLECTIVE) continue;
        size_t bytes;
        p->kernels[i] = tri_device_select(&p->device, g, node);
        // Never NULL: the layout pass has found that some kernel supports the node.
        TRI_ASSERT(p->kernels[i]);
        TRI_TRY(tri_kernel_workspace(p->kernels[i], &p->device, g, node, &bytes));
        int64_t workspace = tri_memory_round_up((int64_t)bytes, p->device.alignment);
        if (workspace > p->workspace_bytes) p->workspace_bytes = workspace;
    }
    return TRI_OK;
}

// Finds which gradients kernels can add directly to those of earlier micro-batches: the gradients
// that no node reads, because such a node would read a sum over micro-batches.
static void find_adds(tri_program *p, bool wanted) {
    const tri_graph *g = p->graph;
    p->adds = TRI_NEW_ARRAY(p->arena, unsigned, g->node_count);
    if (!wanted) return;
    bool *is_read = TRI_NEW_ARRAY(p->arena, bool, g->value_count);
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].input_count; k++) is_read[g->nodes[i].inputs[k].id] = true;
    for (int i = 0; i < g->gradient_count; i++) {
        const tri_value_info *info = tri_value_get(g, g->gradients[i].value);
        if (info->kind != TRI_VALUE_RESULT || is_read[g->gradients[i].value.id]) continue;
        const tri_kernel_def *kernel = p->kernels[info->node];
        if (!kernel || p->locations[g->gradients[i].value.id].kind != TRI_LOCATION_GRADIENT)
            continue;
        p->adds[info->node] |=
            tri_kernel_adds(kernel, &p->device, g, &g->nodes[info->node]) & 1u << info->output;
    }
}

static tri_status make_graph(tri_program *p, const tri_program_request *request) {
    TRI_TRY(tri_model_build(p->arena, request->model, p->batch, &p->graph));
    TRI_TRY(tri_graph_group(p->graph, request->groups, request->group_count));
    if (request->mesh)
        TRI_TRY(tri_pass_tensor_parallel(p->arena, p->graph, request->mesh, request->rank,
                                         &request->tensor_parallel, &p->graph));
    if (request->model->image_scale)
        TRI_TRY(tri_pass_bytes(p->graph, "images", request->model->image_scale));
    TRI_TRY(tri_pass_fuse(p->graph, &p->device, TRI_FUSE_BEFORE_AUTODIFF));
    TRI_TRY(tri_pass_precision(p->graph, request->model->options.precision));
    if (p->training) TRI_TRY(tri_pass_autodiff(p->graph));
    TRI_TRY(tri_pass_fuse(p->graph, &p->device, TRI_FUSE_AFTER_AUTODIFF));
    bool splits = p->training && request->splits_backward;
    if (!splits) TRI_TRY(tri_pass_chunk_loss(p->graph, &p->device));
    if (splits) TRI_TRY(tri_pass_split_backward(p->graph));
    TRI_TRY(tri_pass_fuse(p->graph, &p->device, TRI_FUSE_LAST));
    return tri_pass_layout(p->graph, &p->device);
}

static tri_status compile(tri_program *p, const tri_program_request *request) {
    p->graph = request->graph;
    if (!p->graph) TRI_TRY(make_graph(p, request));
    tri_program_assign_locations(p, request);
    TRI_TRY(choose_kernels(p, request->blocks_here));
    find_adds(p, request->adds_in_place && p->training);
    return TRI_OK;
}

tri_status tri_program_create(tri_arena *parent, const tri_device_description *device,
                              const tri_program_request *request, tri_program **out) {
    tri_arena *arena = tri_arena_create(parent, "program");
    tri_program *p = TRI_NEW(arena, tri_program);
    *p = (tri_program){.arena = arena,
                       .device = *device,
                       .batch = request->batch,
                       .fields = request->model->fields,
                       .training = request->model->options.training};
    tri_status status = compile(p, request);
    if (status != TRI_OK) {
        tri_program_destroy(p);
        return status;
    }
    *out = p;
    return TRI_OK;
}

void tri_program_destroy(tri_program *program) {
    if (program) tri_arena_destroy(program->arena);
}

double tri_program_flops(const tri_program *program, int block, tri_phase phase) {
    tri_segment s = program->segments[block][phase];
    double flops = 0;
    for (int i = s.first; i < s.end; i++) {
        tri_cost cost = tri_node_cost(program->graph, &program->graph->nodes[i]);
        flops += cost.flops - cost.repeated;
    }
    return flops;
}

static int position_of(const tri_node *node, int blocks) {
    return node->phase == TRI_PHASE_FORWARD ? node->block : 2 * blocks - node->block;
}

int tri_program_edge_values(tri_arena *arena, const tri_program *program, const int *stages,
                            tri_edge_value **out) {
    const tri_graph *g = program->graph;
    int count = 0, capacity = 0;
    *out = NULL;
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *reader = &g->nodes[i];
        for (int k = 0; k < reader->input_count; k++) {
            const tri_node *maker =
                tri_value_is(reader->inputs[k]) ? tri_value_node(g, reader->inputs[k]) : NULL;
            int stage = stages[reader->block];
            if (!maker || stages[maker->block] == stage) continue;
            // Values that another block made lie in bundles (tri_bundle), except views of the
            // model's inputs. Nothing is sent for these, because every rank reads the inputs
            // itself.
            if (program->locations[reader->inputs[k].id].kind != TRI_LOCATION_BUNDLE) continue;
            tri_edge_value *known = NULL;
            for (int c = 0; c < count && !known; c++)
                if ((*out)[c].value.id == reader->inputs[k].id && (*out)[c].to_stage == stage)
                    known = &(*out)[c];
            if (!known) {
                known = &TRI_PUSH(arena, *out, count, capacity);
                *known = (tri_edge_value){.value = reader->inputs[k],
                                          .from_block = maker->block,
                                          .to_block = reader->block,
                                          .to_stage = stage,
                                          .back = maker->phase != TRI_PHASE_FORWARD};
            }
            tri_node first = {.block = known->to_block,
                              .phase = known->back ? TRI_PHASE_BACKWARD : TRI_PHASE_FORWARD};
            if (position_of(reader, g->block_count) < position_of(&first, g->block_count))
                known->to_block = reader->block;
        }
    }
    return count;
}
