// Computes how much memory a rank's communicators need for themselves: the engine opens one for
// each group of ranks. This memory is part of the peak of the rank's memory.
#include "plan/plan.h"

#include "comm/data.h"

// Counts the bytes of communicators that work in the host's memory. Those over all ranks and over
// the shards also carry values from memory that a communicator did not allocate. Other ranks cannot
// read that memory, so these values pass through staging memory, which takes more bytes.
static int64_t host_bytes(const tri_plan *plan) {
    unsigned pipeline = 1u << TRI_AXIS_PIPELINE, shard = 1u << plan->sharing.shard_axis;
    const unsigned groups[] = {shard,    1u << plan->sharing.replicate_axis, pipeline,
                               pipeline, 1u << TRI_AXIS_TENSOR_PARALLEL,     TRI_AXES_REPLICAS};
    int64_t bytes = tri_comm_scratch_bytes(plan->comm, plan->mesh.ranks, true);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        bytes += tri_comm_scratch_bytes(plan->comm, tri_mesh_size(&plan->mesh, groups[i]),
                                        groups[i] == shard && plan->sharing.shards > 1);
    return bytes;
}

// Counts this pipeline rank's connections for messages: one for each rank to which it sends and one
// for each from which it receives, along the pipeline and back.
static int count_links(const tri_plan *plan) {
    int ranks = plan->mesh.size[TRI_AXIS_PIPELINE], links = 0;
    bool *used = TRI_NEW_ARRAY(plan->arena, bool, 4 * ranks);
    for (int shape = 0; shape < TRI_STEP_SHAPE_COUNT; shape++) {
        const tri_schedule_request *r = &plan->steps[shape].request;
        for (int e = 0; plan->steps[shape].samples && e < r->edge_count; e++) {
            int from = r->edges[e].from_stage % ranks, to = r->edges[e].to_stage % ranks;
            bool sends = from == r->pipeline_rank;
            if (from == to || (!sends && to != r->pipeline_rank)) continue;
            if (r->edges[e].back && !r->training) continue;
            used[(2 * r->edges[e].back + sends) * ranks + (sends ? to : from)] = true;
        }
    }
    for (int i = 0; i < 4 * ranks; i++) links += used[i];
    return links;
}

static int64_t nccl_bytes(const tri_plan *plan, int64_t *estimate) {
    const struct {
        int ranks;
        tri_comm_use use;
    } groups[] = {
        {plan->mesh.ranks, TRI_COMM_NUMBERS},
        {plan->sharing.shards, TRI_COMM_BULK},
        {plan->sharing.replicate_size, TRI_COMM_BULK},
        {plan->mesh.size[TRI_AXIS_TENSOR_PARALLEL], TRI_COMM_BULK},
        {tri_mesh_size(&plan->mesh, TRI_AXES_REPLICAS), TRI_COMM_NUMBERS},
    };
    int64_t bytes = 0;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        bytes += tri_comm_data_bytes(groups[i].ranks, groups[i].use, 0, estimate);
    for (int u = 0; u < plan->flat.unit_count; u++)
        if (plan->units[u].here)
            bytes += tri_comm_data_bytes(plan->units[u].holder_count, TRI_COMM_BULK, 0, estimate);
    return bytes + tri_comm_data_bytes(plan->mesh.size[TRI_AXIS_PIPELINE], TRI_COMM_MESSAGES,
                                       count_links(plan), estimate);
}

int64_t tri_plan_communicator_bytes(const tri_plan *plan, int64_t *nccl_estimate) {
    *nccl_estimate = 0;
    return tri_comm_data_is_nccl(plan->device.backend) ? nccl_bytes(plan, nccl_estimate)
                                                       : host_bytes(plan);
}
