// Decides which rank computes what: stages (runs of blocks, which are layers or groups of layers;
// stages.c cuts them), groups of ranks that share the training state, the pipeline's order,
// recomputation, and what is offloaded (offload.c). Programs (the model compiled for one size of
// micro-batch) are made after this, because they depend on these decisions. Read next: program.c.
#include "base/quantity.h"
#include "plan/plan.h"
#include "plan/stages.h"

#include "ops/ops.h"

#include <string.h>

// The samples of the plain graphs. Two: batch norm refuses to train on one that has only one value
// per channel.
enum { PLAIN_BATCH = 2 };

// Builds the graphs of training and of evaluation that no pass changes (plan->plain_graphs). No
// device is needed for that. Another rank's plan may have built them already.
static tri_status build_plain_graphs(tri_plan *plan, const tri_plan_request *request) {
    for (int i = 0; i < TRI_STEP_SHAPE_COUNT; i++) {
        bool training = tri_step_trains((tri_step_shape)i);
        if (request->step_samples[i] == 0 || plan->plain_graphs[training]) continue;
        if (request->reuse_graphs_of) {
            plan->plain_graphs[training] = request->reuse_graphs_of->plain_graphs[training];
            continue;
        }
        tri_model_request model = *request->model;
        model.options.training = training;
        tri_graph *g;
        TRI_TRY(tri_model_build(plan->arena, &model, PLAIN_BATCH, &g));
        plan->plain_graphs[training] = g;
    }
    if (!plan->plain_graphs[true] && !plan->plain_graphs[false])
        return TRI_FAIL(TRI_BAD_INPUT, "there is no step to plan");
    return TRI_OK;
}

// Finds what each block costs, so that stages can be cut: the flops of its FORWARD for one sample.
static double *find_costs(const tri_plan *plan, const tri_graph *g) {
    double *costs = TRI_NEW_ARRAY(plan->arena, double, g->block_count);
    for (int i = 0; i < g->node_count; i++)
        costs[g->nodes[i].block] += tri_node_cost(g, &g->nodes[i]).flops / (double)PLAIN_BATCH;
    return costs;
}

static tri_status cut_stages(tri_plan *plan, const tri_plan_request *request, const double *costs,
                             const tri_graph *g) {
    const tri_strategy_options *o = request->options;
    int pipeline = plan->mesh.size[TRI_AXIS_PIPELINE];
    plan->stages.count = pipeline;
    if (pipeline == 1 && o->stages.count > 0)
        return TRI_FAIL(TRI_BAD_INPUT, "strategy.stages is for several ranks along "
                                       "strategy.mesh.pipeline, and there is one");
    if (pipeline > 1 && plan->order->loops_over_stages) {
        plan->stages.count *= (int)o->stages_per_rank;
        if (plan->stages.count > g->block_count)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "strategy.stages_per_rank: %lld on each of %s are %d stages, but the "
                            "model has %s",
                            (long long)o->stages_per_rank, tri_counted(pipeline, "rank"),
                            plan->stages.count, tri_counted(g->block_count, "block"));
    }
    plan->stages.of_block = TRI_NEW_ARRAY(plan->arena, int, g->block_count);
    if (o->stages.count > 0)
        TRI_TRY(tri_stages_named(g, o->stages.items, o->stages.count, plan->stages.count,
                                 plan->stages.of_block));
    else
        TRI_TRY(tri_stages_cut(costs, g->block_count, plan->stages.count, plan->stages.of_block));
    int pipeline_rank = tri_mesh_coordinate(&plan->mesh, plan->rank, TRI_AXIS_PIPELINE);
    plan->stages.blocks_here = TRI_NEW_ARRAY(plan->arena, bool, g->block_count);
    for (int b = 0; b < g->block_count; b++)
        plan->stages.blocks_here[b] = plan->stages.of_block[b] % pipeline == pipeline_rank;
    return TRI_OK;
}

static tri_status find_groups(tri_plan *plan, const tri_plan_request *request) {
    const tri_mesh *mesh = &plan->mesh;
    const tri_strategy *s = plan->strategy;
    if (s->needs_one_rank && mesh->ranks > 1)
        return TRI_FAIL(TRI_BAD_INPUT, "strategy.name: '%s' is for one rank, not %d; use ddp",
                        s->name, mesh->ranks);
    plan->effective_strategy = tri_strategy_effective(s, request->deterministic);
    plan->sharing.shard_axis = TRI_AXIS_SHARD;
    plan->sharing.replicate_axis = TRI_AXIS_REPLICATE;
    if (!s->shards_optimizer && mesh->size[TRI_AXIS_SHARD] > 1)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "strategy.mesh.shard: %s shards nothing; use replicate, or the strategy "
                        "zero1, zero2 or fsdp",
                        s->name);
    if (request->deterministic && plan->replicas > 1 && request->sync_batchnorm)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "trainer.deterministic and trainer.sync_batchnorm exclude each other on "
                        "several replicas; set batch.micro instead of trainer.sync_batchnorm");
    if (request->deterministic && plan->replicas > 1 &&
        (request->micro == 0 || request->micro_follows))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "trainer.deterministic on several replicas needs batch.micro: the same "
                        "micro-batches on any number of ranks");
    if (request->deterministic && mesh->size[TRI_AXIS_TENSOR_PARALLEL] > 1)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "trainer.deterministic needs strategy.mesh.tensor: 1, not %d: sums over "
                        "parts of a layer are rounded in another order than those of one rank",
                        mesh->size[TRI_AXIS_TENSOR_PARALLEL]);
    plan->sharing.reduce_dtype = tri_strategy_reduce_dtype(request->options);
    if (request->deterministic && plan->sharing.reduce_dtype != TRI_F32)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "trainer.deterministic needs strategy.reduce_dtype: float32: one rank "
                        "rounds no gradients");
    if (request->deterministic && !s->shards_optimizer) {
        plan->sharing.shard_axis = TRI_AXIS_REPLICATE;
        // A deterministic run whose strategy shards nothing is scheduled as zero2, with its
        // replicas as shards: then gradients can be added in the order of micro-batches. The axis
        // REPLICATE takes the place of the shard axis. So the axis along which the whole set of
        // shards is repeated must be another one: SHARD. Its size is 1, so the set exists once.
        plan->sharing.replicate_axis = TRI_AXIS_SHARD;
    } else if (request->deterministic && mesh->size[TRI_AXIS_REPLICATE] > 1) {
        return TRI_FAIL(TRI_BAD_INPUT,
                        "trainer.deterministic is for one of strategy.mesh.replicate and shard, "
                        "not for both");
    }
    plan->sharing.shards = mesh->size[plan->sharing.shard_axis];
    plan->sharing.shard = tri_mesh_coordinate(mesh, plan->rank, plan->sharing.shard_axis);
    plan->sharing.replicate_size = mesh->size[plan->sharing.replicate_axis];
    plan->sharing.replicate_rank =
        tri_mesh_coordinate(mesh, plan->rank, plan->sharing.replicate_axis);
    plan->sharing.releases =
        plan->effective_strategy->shards_parameters && plan->sharing.shards > 1;
    plan->sharing.scatters_rounds =
        request->deterministic ||
        (plan->effective_strategy->shards_gradients && plan->sharing.shards > 1);
    plan->sharing.packs_gradients = mesh->ranks == 1 && !plan->sharing.scatters_rounds;
    plan->sharing.packs_scratch = mesh->ranks == 1;
    return TRI_OK;
}

static tri_status find_order(tri_plan *plan, const tri_plan_request *request) {
    bool pipeline = plan->mesh.size[TRI_AXIS_PIPELINE] > 1;
    // Without a pipeline, each micro-batch runs forward and then backward, which is what 1f1b does
    // with one stage. So only one micro-batch's activations are held at a time.
    plan->order = pipeline ? tri_orders[request->options->schedule] : tri_order_find("1f1b");
    if (pipeline && request->micro == 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "strategy.mesh.pipeline: a pipeline of %d ranks needs batch.micro; set it "
                        "to at most batch.global / %d, so that each rank has work",
                        plan->mesh.size[TRI_AXIS_PIPELINE],
                        plan->mesh.size[TRI_AXIS_PIPELINE] * plan->replicas);
    return TRI_OK;
}

static bool is_recomputed(const tri_plan *plan, const tri_plan_request *request, int block) {
    const tri_strategy_options *o = request->options;
    // In most orders the last block's BACKWARD follows its FORWARD at once, so that recomputation
    // would free no memory.
    if (block == plan->block_count - 1) return false;
    switch (o->recompute) {
    case TRI_RECOMPUTE_BLOCK:
        return block % o->recompute_every == o->recompute_every - 1;
    case TRI_RECOMPUTE_FIT:
        return block < request->recompute_first;
    default:
        return false;
    }
}

tri_status tri_plan_arrange(tri_plan *plan, const tri_plan_request *request) {
    plan->strategy = tri_strategy_of(request->options->name);
    TRI_TRY(find_groups(plan, request));
    tri_plan_find_offload_set(plan, request);
    TRI_TRY(find_order(plan, request));
    TRI_TRY(build_plain_graphs(plan, request));
    const tri_graph *g =
        plan->plain_graphs[true] ? plan->plain_graphs[true] : plan->plain_graphs[false];
    const double *costs = find_costs(plan, g);
    plan->block_count = g->block_count;
    TRI_TRY(cut_stages(plan, request, costs, g));
    plan->blocks = TRI_NEW_ARRAY(plan->arena, tri_schedule_block, g->block_count);
    for (int b = 0; b < g->block_count; b++)
        plan->blocks[b] = (tri_schedule_block){.stage = plan->stages.of_block[b],
                                               .recompute = is_recomputed(plan, request, b),
                                               .forward_flops = costs[b],
                                               .backward_flops = 2 * costs[b]};
    return TRI_OK;
}
