// Makes a rank's plan: programs, flat buffers, schedules, and the memory that all of them need. A
// program is the model compiled for one size of micro-batch; a flat buffer holds parameters,
// gradients or optimizer states one after the other. A unit is parameters that are gathered,
// reduced and updated together; a bucket is a contiguous range of a unit's parameters.
// Read next, in the order of make_plan: arrange.c, program.c, flat.c, offload.c, step.c.
#include "plan/plan.h"

#include "comm/data.h"

#include "base/limits.h"
#include "base/quantity.h"
#include "comm/options.h"
#include "data/sampler.h"
#include "ops/ops.h"

#include <string.h>

static tri_program *known_program(const tri_plan *plan, int64_t batch, bool training,
                                  const tri_field *fields) {
    for (int i = 0; plan && i < plan->program_count; i++)
        if (plan->programs[i]->batch == batch && plan->programs[i]->training == training &&
            plan->programs[i]->fields == fields)
            return plan->programs[i];
    return NULL;
}

// Finds the program for a size of micro-batch of a step; makes it at its first use. Most
// micro-batches have the same size, so there are few programs.
static tri_status find_program(tri_plan *plan, const tri_device_description *device,
                               const tri_plan_request *request, int64_t batch, tri_step_shape shape,
                               tri_program **out) {
    bool training = tri_step_trains(shape);
    tri_model_request model = *request->model;
    model.options.training = training;
    if (request->step_fields[shape]) model.fields = request->step_fields[shape];
    *out = known_program(plan, batch, training, model.fields);
    if (*out) return TRI_OK;
    const tri_program *reuse_graphs_of =
        known_program(request->reuse_graphs_of, batch, training, model.fields);
    TRI_ASSERT(plan->program_count < TRI_MAX_PROGRAMS);
    bool *recompute = TRI_NEW_ARRAY(plan->arena, bool, plan->block_count);
    for (int b = 0; b < plan->block_count; b++)
        recompute[b] = training && plan->blocks[b].recompute;
    tri_program_request program = {
        .model = &model,
        .batch = batch,
        .recompute = recompute,
        .blocks_here = plan->stages.blocks_here,
        .stages = plan->stages.of_block,
        .adds_in_place = !plan->deterministic,
        .splits_backward = plan->order->splits_backward,
        .groups = request->groups,
        .group_count = request->group_count,
        .mesh = &plan->mesh,
        .rank = plan->rank,
        .tensor_parallel = {.layers = request->options->tensor,
                            .sequence_parallel = request->options->sequence_parallel,
                            .sync_batch_norm = request->sync_batchnorm},
        .graph = reuse_graphs_of ? reuse_graphs_of->graph : NULL};
    TRI_TRY(tri_program_create(plan->arena, device, &program, out));
    plan->programs[plan->program_count++] = *out;
    return TRI_OK;
}

// Whether two metrics have the same name and add up the same numbers.
static bool is_same_metric(const tri_metric_info *a, const tri_metric_info *b) {
    return !strcmp(a->name, b->name) && a->term.weight == b->term.weight && a->kind == b->kind &&
           a->average == b->average && a->tally == b->tally && a->classes == b->classes &&
           a->bins == b->bins && a->k == b->k;
}

// All programs share the flat buffers and the sums of metrics, so their parameters and metrics must
// be the same.
static tri_status check_alike(const tri_program *first, const tri_program *second) {
    const tri_graph *a = first->graph, *b = second->graph;
    const char *other = tri_plan_other_parameter(a, b);
    bool alike = a->parameter_count == b->parameter_count && a->block_count == b->block_count &&
                 a->metric_count == b->metric_count && !other;
    for (int i = 0; alike && i < a->metric_count; i++)
        alike =
            is_same_metric(&a->metrics[i], &b->metrics[i]) &&
            (first->training != second->training || a->metrics[i].source == b->metrics[i].source);
    if (!alike)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "the model has other blocks, parameters or metrics for another batch size "
                        "or in evaluation%s%s: its build function must not do that",
                        other ? ", as the parameter " : "", other ? other : "");
    for (int i = 0; first->training && second->training && i < a->parameter_count; i++)
        if (a->parameters[i].has_partial_gradient != b->parameters[i].has_partial_gradient)
            return TRI_FAIL(TRI_UNSUPPORTED,
                            "strategy.mesh.tensor: the layer of %s is divided for one size of "
                            "micro-batch and not for another: set it to none in strategy.tensor",
                            a->parameters[i].name);
    for (int i = 0; i < a->parameter_count; i++)
        TRI_ASSERT(tri_layout_equal(&a->parameters[i].layout, &b->parameters[i].layout) ||
                   !b->parameters[i].layout_chosen);
    return TRI_OK;
}

// Divides a step of this shape into micro-batches, and finds the program for each size among them.
static tri_status plan_rounds(tri_plan *plan, const tri_device_description *device,
                              const tri_plan_request *request, tri_step_shape shape) {
    tri_step_plan *step = &plan->steps[shape];
    bool training = tri_step_trains(shape);
    int64_t samples = request->step_samples[shape], replicas = plan->replicas;
    int64_t micro = training ? request->micro : request->eval_micro;
    int64_t replica = tri_mesh_replica(&plan->mesh, plan->rank);
    step->samples = samples;
    int64_t rounds = tri_micro_batch_rounds(samples, micro, replicas);
    if (rounds > TRI_MAX_ROUNDS)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: %lld samples in micro-batches of %lld are %lld rounds on each of %s; "
                        "at most %d are possible: raise it",
                        training ? "batch.micro" : "batch.eval", (long long)samples,
                        (long long)micro, (long long)rounds, tri_counted(replicas, "replica"),
                        TRI_MAX_ROUNDS);
    step->rounds = (int)rounds;
    step->round_items = TRI_NEW_ARRAY(plan->arena, tri_step_round, step->rounds);
    tri_program *program;
    for (int i = 0; i < step->rounds; i++) {
        tri_micro_batch m = tri_micro_batch_of(samples, micro, replicas, replica, i);
        step->round_items[i] = (tri_step_round){.first = m.first, .size = m.size};
        if (m.size == 0) continue;
        TRI_TRY(find_program(plan, device, request, m.size, shape, &step->round_items[i].program));
    }
    if (plan->program_count > 0) return TRI_OK;
    // A rank without a micro-batch needs a program too, because the plan takes the list of
    // parameters from it.
    int64_t most = tri_micro_batch_largest(samples, micro, replicas);
    return find_program(plan, device, request, most, shape, &program);
}

static void raise_to(int64_t *most, int64_t value) {
    if (value > *most) *most = value;
}

// Counts the elements of the staging memory through which initial weights and checkpoints pass. It
// has room for both of these:
// - `bucket`: the larger of two: the largest bucket that is sharded or offloaded, and the most
//   offloaded F32 master weights that this rank has in one unit for parameters that kernels read in
//   a half type. If the host can use the device's memory and `bucket` fits into one of the heaps
//   (memory of a step), it lies there and is not counted, because no step runs meanwhile.
// - `parameter`: the largest parameter that ranks hold in slices, all slices together.
static int64_t staging_elements(const tri_plan *plan) {
    int64_t bucket = 0, parameter = 0;
    const tri_flat *flat = &plan->flat;
    for (int u = 0; u < flat->unit_count; u++) {
        int64_t cast = 0;
        for (int k = 0; k < TRI_BUCKET_COUNT && flat->units[u].here; k++) {
            const tri_flat_bucket *p = &flat->units[u].buckets[k];
            bool offloaded = plan->offload.set.masters[k];
            if (plan->sharing.shards > 1 || plan->offload.set.states > 0 || offloaded)
                raise_to(&bucket, p->elements);
            if (offloaded && tri_bucket_is_half((tri_bucket_kind)k)) cast += p->own;
        }
        raise_to(&bucket, cast);
    }
    for (int i = 0; i < flat->parameter_count; i++) {
        const tri_flat_parameter *p = &flat->parameters[i];
        if (p->unit >= 0 && flat->units[p->unit].here)
            raise_to(&parameter, p->elements * plan->graph->parameters[i].slice.count);
    }
    int64_t room = plan->sizes.heap_bytes[TRI_HEAP_STATE];
    raise_to(&room, plan->sizes.heap_bytes[TRI_HEAP_ACTIVATIONS]);
    bool fits = bucket * (int64_t)sizeof(float) <= room;
    if (fits && plan->device.backend->host_memory) bucket = 0;
    return bucket + parameter;
}

int64_t tri_plan_held_batches(const tri_plan *plan) {
    int64_t most = plan->takes_ahead ? TRI_TAKEN_BATCHES : 1;
    if (plan->graph->counting != TRI_COUNT_AHEAD) return most;
    raise_to(&most, plan->steps[TRI_STEP_FULL].rounds);
    raise_to(&most, plan->steps[TRI_STEP_TAIL].rounds);
    return most;
}

// Finds the workspace of the kernel that sums squares of gradients, for a range as long as all
// gradients together, because no range that a step sums is longer.
static tri_status squares_workspace(const tri_plan *plan, size_t *out) {
    *out = 0;
    if (plan->flat.gradient_elements == 0) return TRI_OK;
    tri_arena *arena = tri_arena_create(NULL, "squares");
    tri_graph *g = tri_graph_create(arena, &(tri_graph_options){0});
    tri_block(g, "squares");
    tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(plan->flat.gradient_elements));
    tri_node_add(g, &tri_op_sum_of_squares, &x, 1, &(tri_sum_of_squares_attr){0}, "");
    const tri_kernel_def *def = tri_device_select(&plan->device, g, &g->nodes[0]);
    tri_status status =
        def ? tri_kernel_workspace(def, &plan->device, g, &g->nodes[0], out) : TRI_OK;
    tri_arena_destroy(arena);
    return status;
}

bool tri_plan_hands_over(const tri_plan *plan, const tri_node *node) {
    return plan->stages.blocks_here[node->block] &&
           tri_mesh_coordinate(&plan->mesh, plan->rank, TRI_AXIS_TENSOR_PARALLEL) == 0;
}

static void size_outputs(tri_plan *plan, const tri_program *program) {
    const tri_graph *g = program->graph;
    for (int i = 0; i < g->output_count; i++)
        if (tri_plan_hands_over(plan, tri_value_node(g, g->outputs[i].value)))
            raise_to(&plan->output_bytes, tri_value_bytes(g, g->outputs[i].value));
}

static tri_status size_memory(tri_plan *plan, const tri_plan_request *request) {
    const int64_t f32 = (int64_t)sizeof(float),
                  half = (int64_t)tri_dtype_bytes(plan->flat.half_dtype);
    const tri_flat *flat = &plan->flat;
    int64_t input_bytes = 0, nccl_estimate;
    int64_t communicators = tri_plan_communicator_bytes(plan, &nccl_estimate);
    int64_t batches = request->loader_batches + tri_plan_held_batches(plan) - 1;
    for (int i = 0; i < plan->program_count; i++) {
        const tri_program *p = plan->programs[i];
        raise_to(&input_bytes, p->input_bytes);
        if (!plan->sharing.packs_scratch) raise_to(&plan->sizes.scratch_bytes, p->scratch_bytes);
        raise_to(&plan->sizes.workspace_bytes, p->workspace_bytes);
        raise_to(&plan->sizes.result_bytes, p->result_bytes);
        size_outputs(plan, p);
    }
    size_t squares;
    TRI_TRY(squares_workspace(plan, &squares));
    raise_to(&plan->sizes.workspace_bytes, (int64_t)squares);
    for (int i = 0; i < TRI_STEP_SHAPE_COUNT; i++) {
        const tri_step_plan *step = &plan->steps[i];
        if (step->samples == 0) continue;
        for (int k = 0; k < TRI_HEAP_COUNT; k++)
            raise_to(&plan->sizes.heap_bytes[k], step->memory.heap_bytes[k]);
        for (int k = 0; k < step->schedule.count; k++)
            raise_to(&plan->sizes.round_elements,
                     tri_round_gradients(plan, step, &step->schedule.actions[k], NULL, NULL));
    }
    const bool *offload_set = plan->offload.set.masters;
    int64_t stored = plan->sharing.releases ? flat->own_elements[TRI_FLAT_STORED]
                                            : flat->elements[TRI_FLAT_STORED];
    int64_t half_elements =
        plan->sharing.releases ? flat->own_elements[TRI_FLAT_HALF] : flat->elements[TRI_FLAT_HALF];
    int64_t offloaded_stored =
        offload_set[TRI_BUCKET_TRAINED] ? flat->own_elements[TRI_FLAT_STORED] : 0;
    int64_t offloaded_half =
        offload_set[TRI_BUCKET_TRAINED_HALF] ? flat->own_elements[TRI_FLAT_HALF] : 0;
    int64_t masters = plan->trains ? flat->own_elements[TRI_FLAT_HALF] - offloaded_half : 0;
    int64_t states = flat->state_elements * plan->optimizer_states;
    int64_t offloaded_states = flat->state_elements * plan->offload.set.states;
    int64_t gradients =
        plan->sharing.scatters_rounds ? flat->gradient_own_elements : flat->gradient_elements;
    // Packed gradients (packs_gradients) lie on the activations' heap, but are reported apart from
    // the activations. If the heap is smaller than the gradients would be, no step of the run
    // trains, and there are no gradients.
    int64_t heap = plan->sizes.heap_bytes[TRI_HEAP_ACTIVATIONS];
    bool packed = plan->sharing.packs_gradients;
    if (packed && heap < f32 * gradients) gradients = 0;
    if (packed) heap -= f32 * gradients;
    plan->memory = (tri_memory_plan){
        .parameters = f32 * (stored - offloaded_stored + masters) + half * half_elements,
        .gradients = f32 * (gradients + plan->sizes.round_elements),
        .optimizer = f32 * (states - offloaded_states),
        .activations = heap + 2 * plan->sizes.heap_bytes[TRI_HEAP_INPUTS] +
                       plan->sizes.scratch_bytes + plan->sizes.result_bytes,
        .caches = plan->caches.bytes,
        .workspace = plan->sizes.workspace_bytes + batches * input_bytes +
                     TRI_OUTPUT_COPIES * plan->output_bytes + TRI_PROGRAM_BYTES,
        .communication =
            plan->sizes.heap_bytes[TRI_HEAP_STATE] + f32 * staging_elements(plan) + communicators,
        .nccl_estimate = nccl_estimate,
        .offloaded = tri_plan_offloaded_bytes(plan),
    };
    tri_memory_plan *m = &plan->memory;
    m->peak = m->parameters + m->gradients + m->optimizer + m->activations + m->caches +
              m->workspace + m->communication + m->nccl_estimate;
    return TRI_OK;
}

// The name of a running average, or of one that depends on micro-batches; NULL: there is none.
static const char *find_average(const tri_graph *graph, bool of_micro_batches) {
    for (int i = 0; i < graph->parameter_count; i++) {
        tri_parameter_role role = graph->parameters[i].role;
        if (of_micro_batches ? role == TRI_ROLE_STATISTIC : tri_role_is_average(role))
            return graph->parameters[i].name;
    }
    return NULL;
}

// Finds a batch norm over one value per channel. The running variance is unbiased: a sum of squared
// deviations, divided by the number of values minus one, which must not be 0. One over all replicas
// (sync_batchnorm) is another op, and has a sample of each.
static const tri_node *find_single_value(const tri_graph *graph) {
    for (int i = 0; i < graph->node_count; i++) {
        const tri_node *node = &graph->nodes[i];
        if (node->op != &tri_op_batch_norm) continue;
        const tri_shape *x = &tri_value_get(graph, node->inputs[0])->shape;
        if (tri_shape_count(x) == x->dims[1]) return node;
    }
    return NULL;
}

static tri_status check_values(const tri_plan *plan, const tri_plan_request *request) {
    for (int i = 0; i < plan->program_count; i++) {
        const tri_program *program = plan->programs[i];
        const tri_node *node = program->training ? find_single_value(program->graph) : NULL;
        if (!node) continue;
        bool is_full = false; // in each step, and not only in the last one of an epoch
        const tri_step_plan *full = &plan->steps[TRI_STEP_FULL];
        for (int k = 0; k < full->rounds; k++)
            is_full = is_full || full->round_items[k].program == program;
        return TRI_FAIL(TRI_BAD_INPUT,
                        "batch norm (block %s) needs more than 1 value per channel in training, "
                        "but %s (%s) has 1; set %s",
                        program->graph->blocks[node->block],
                        is_full ? "a micro-batch" : "the last micro-batch of an epoch",
                        tri_counted(program->batch, "sample"),
                        !is_full             ? "data.drop_last, or another batch.global"
                        : request->micro > 0 ? "another batch.micro"
                                             : "a larger batch.global");
    }
    return TRI_OK;
}

static bool has_training_step(const tri_plan_request *request) {
    for (int i = 0; i < TRI_STEP_SHAPE_COUNT; i++)
        if (tri_step_trains((tri_step_shape)i) && request->step_samples[i] > 0) return true;
    return false;
}

// A plan that only evaluates is not checked, because batch norm then reads the running statistics.
static tri_status check_batch_norm(const tri_plan *plan, const tri_plan_request *request) {
    const char *name = find_average(plan->graph, true);
    int64_t tail = request->step_samples[TRI_STEP_TAIL];
    if (!name || !has_training_step(request)) return TRI_OK;
    if (request->sync_batchnorm && request->micro > 0)
        return TRI_FAIL(TRI_BAD_INPUT, "trainer.sync_batchnorm and batch.micro exclude each other: "
                                       "batch norm is over a step or over a micro-batch");
    if (request->sync_batchnorm && tail > 0 && tail < plan->replicas)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "trainer.sync_batchnorm: an epoch's last step has %s for %d "
                        "replicas; set data.drop_last, or another batch.global",
                        tri_counted(tail, "sample"), plan->replicas);
    TRI_TRY(check_values(plan, request));
    bool is_given = request->micro > 0 && !request->micro_follows;
    if (plan->replicas == 1 || is_given || request->sync_batchnorm) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "batch norm (%s) on several replicas needs batch.micro or "
                    "trainer.sync_batchnorm to be set, else its result would depend on how many "
                    "there are",
                    name);
}

// Sums of several pipeline stages, or of statistics that lie on one stage of each replica, are
// rounded in another order than those of one rank.
static tri_status check_stages(const tri_plan *plan) {
    const char *statistic = find_average(plan->graph, false);
    if (!plan->deterministic || plan->mesh.size[TRI_AXIS_PIPELINE] == 1) return TRI_OK;
    if (statistic && plan->replicas > 1)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "trainer.deterministic with running statistics or a spectral norm (%s) "
                        "needs strategy.mesh.pipeline: 1 on several replicas",
                        statistic);
    for (int u = 0; u < plan->flat.unit_count; u++)
        if (plan->units[u].holder_count > 1)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "trainer.deterministic needs strategy.mesh.pipeline: 1 with layers "
                            "that share a parameter, as with model.tie_word_embeddings");
    return TRI_OK;
}

tri_status tri_plan_describe(tri_plan *plan, const tri_plan_request *request) {
    const tri_flat *flat = &plan->flat;
    int pipeline = plan->mesh.size[TRI_AXIS_PIPELINE];
    plan->units = TRI_NEW_ARRAY(plan->arena, tri_unit, flat->unit_count);
    for (int u = 0; u < flat->unit_count; u++) {
        const tri_flat_unit *from = &flat->units[u];
        tri_unit *to = &plan->units[u];
        to->here = from->here;
        for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
            if (from->buckets[k].elements == 0) continue;
            tri_bucket_kind bucket = (tri_bucket_kind)k;
            to->bytes += from->buckets[k].elements * (int64_t)sizeof(float);
            to->has_gradients = to->has_gradients || tri_bucket_has_gradients(bucket);
            to->has_statistics = to->has_statistics || bucket == TRI_BUCKET_STATISTIC;
            to->has_half = to->has_half || tri_bucket_is_half(bucket);
            to->has_stored = to->has_stored || !tri_bucket_is_half(bucket);
            to->has_partial =
                to->has_partial ||
                (plan->mesh.size[TRI_AXIS_TENSOR_PARALLEL] > 1 && tri_bucket_is_trained(bucket) &&
                 tri_bucket_placement(bucket) == TRI_PLACEMENT_PARTIAL_GRADIENT);
        }
        to->persistent = to->bytes < request->options->persistent_bytes;
        to->first_holder = -1;
    }
    for (int b = 0; b < plan->block_count; b++) {
        tri_schedule_block *block = &plan->blocks[b];
        block->unit_count = tri_flat_block_units(flat, b, block->units, TRI_MAX_BLOCK_UNITS);
        if (block->unit_count > TRI_MAX_BLOCK_UNITS)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "block %s reads %d parameters that other blocks read too; at most %d "
                            "are possible",
                            plan->graph->blocks[b], block->unit_count - 1, TRI_MAX_BLOCK_UNITS - 1);
    }
    bool *holds = TRI_NEW_ARRAY(plan->arena, bool, flat->unit_count *pipeline);
    for (int b = 0; b < plan->block_count; b++)
        for (int k = 0; k < plan->blocks[b].unit_count; k++)
            holds[plan->blocks[b].units[k] * pipeline + plan->stages.of_block[b] % pipeline] = true;
    for (int u = 0; u < flat->unit_count; u++)
        for (int rank = 0; rank < pipeline; rank++) {
            if (!holds[u * pipeline + rank]) continue;
            if (plan->units[u].first_holder < 0) plan->units[u].first_holder = rank;
            plan->units[u].holder_count++;
        }
    return TRI_OK;
}

static tri_status make_plan(tri_plan *plan, const tri_device_description *device,
                            const tri_plan_request *request) {
    TRI_TRY(tri_comm_data_check(request->comm, device->backend));
    TRI_TRY(tri_plan_arrange(plan, request));
    for (int i = 0; i < TRI_STEP_SHAPE_COUNT; i++)
        if (request->step_samples[i] > 0)
            TRI_TRY(plan_rounds(plan, device, request, (tri_step_shape)i));
    if (plan->program_count == 0) return TRI_FAIL(TRI_BAD_INPUT, "there is no step to plan");
    plan->graph = plan->programs[0]->graph;
    for (int i = 1; i < plan->program_count; i++)
        TRI_TRY(check_alike(plan->programs[0], plan->programs[i]));
    for (int i = 0; i < TRI_STEP_SHAPE_COUNT; i++)
        if (request->step_samples[i] > 0)
            TRI_TRY(tri_plan_count_terms(plan, request, (tri_step_shape)i));
    TRI_TRY(tri_plan_place_caches(plan));
    TRI_TRY(check_batch_norm(plan, request));
    if (plan->trains) TRI_TRY(tri_plan_check_division(plan, request));
    plan->flat =
        tri_flat_make(plan->arena, &(tri_flat_request){.graph = plan->graph,
                                                       .trains = plan->trains,
                                                       .plain_graphs = plan->plain_graphs,
                                                       .blocks_here = plan->stages.blocks_here,
                                                       .shards = plan->sharing.shards,
                                                       .is_chunked = plan->deterministic,
                                                       .alignment = plan->device.alignment});
    TRI_TRY(tri_plan_describe(plan, request));
    TRI_TRY(check_stages(plan));
    tri_plan_choose_optimizer_side(plan, request->options);
    for (int i = 0; i < TRI_STEP_SHAPE_COUNT; i++)
        if (request->step_samples[i] > 0)
            TRI_TRY(tri_plan_make_step(plan, request, (tri_step_shape)i));
    return size_memory(plan, request);
}

static tri_status create(tri_arena *parent, const tri_device_description *device,
                         const tri_plan_request *request, tri_plan **out) {
    tri_arena *arena = tri_arena_create(parent, "plan");
    tri_plan *plan = TRI_NEW(arena, tri_plan);
    *plan = (tri_plan){.arena = arena,
                       .mesh = request->mesh,
                       .rank = request->rank,
                       .device = *device,
                       .replicas = tri_mesh_replicas(&request->mesh),
                       .trains = has_training_step(request),
                       .deterministic = request->deterministic,
                       .comm = request->comm,
                       .takes_ahead = device->backend->is_asynchronous};
    tri_status status = make_plan(plan, device, request);
    if (status != TRI_OK) {
        tri_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return TRI_OK;
}

// Recomputes as few blocks as are needed for the plan to fit. It begins with the first block,
// because the activations of the first blocks wait longest for BACKWARD. The last block is never
// recomputed (arrange.c). If the plan does not fit even if all other blocks are recomputed, returns
// the plan with all of them recomputed.
static tri_status create_fitting(tri_arena *parent, const tri_device_description *device,
                                 tri_plan_request request, tri_plan **out) {
    int64_t memory = tri_strategy_memory(request.options);
    TRI_TRY(create(parent, device, &request, out));
    if ((*out)->memory.peak <= memory) return TRI_OK;
    // With `most` recomputed blocks the plan fits into memory, with `least` it does not. The search
    // halves the distance between the two.
    int most = (*out)->block_count - 1, least = 0;
    tri_plan_destroy(*out);
    while (least + 1 < most) {
        request.recompute_first = (least + most) / 2;
        TRI_TRY(create(parent, device, &request, out));
        *((*out)->memory.peak <= memory ? &most : &least) = request.recompute_first;
        tri_plan_destroy(*out);
    }
    request.recompute_first = most;
    return create(parent, device, &request, out);
}

tri_status tri_plan_create(tri_arena *parent, const tri_device_description *device,
                           const tri_plan_request *request, tri_plan **out) {
    *out = NULL;
    if (request->options->recompute == TRI_RECOMPUTE_FIT)
        return create_fitting(parent, device, *request, out);
    return create(parent, device, request, out);
}

void tri_plan_destroy(tri_plan *plan) {
    if (!plan) return;
    for (int i = 0; i < plan->program_count; i++) tri_program_destroy(plan->programs[i]);
    tri_arena_destroy(plan->arena);
}
