// Collective ops inside a block, run on the communicator of their group.
#include "engine/engine_internal.h"

#include <stdio.h>

tri_status engine_collective(tri_comm *comm, const tri_graph *graph, const tri_node *node,
                             void *const *in, void *const *out) {
    static const struct {
        const tri_op *op;
        tri_comm_kind kind;
        bool counts_output; // tri_comm_op.count is the output's, not the input's
    } rows[] = {{&tri_op_all_reduce, TRI_COMM_ALL_REDUCE, false},
                {&tri_op_all_gather, TRI_COMM_ALL_GATHER, false},
                {&tri_op_reduce_scatter, TRI_COMM_REDUCE_SCATTER, true}};
    const tri_collective_attr *attr = node->attr;
    char label[128];
    TRI_ASSERT(comm->size == attr->slices && comm->rank == attr->index);
    snprintf(label, sizeof label, "%s of block %s, node %s", node->op->name,
             graph->blocks[node->block], *node->name ? node->name : "without a name");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].op != node->op) continue;
        const tri_value_info *bucket =
            tri_value_get(graph, rows[i].counts_output ? node->outputs[0] : node->inputs[0]);
        tri_comm_op op = {.kind = rows[i].kind,
                          .reduction = attr->maximum ? TRI_REDUCE_MAX : TRI_REDUCE_SUM,
                          .dtype = bucket->dtype,
                          .count = tri_shape_count(&bucket->shape),
                          .send = in[0],
                          .recv = out[0],
                          .label = label};
        return tri_comm_run(comm, &op);
    }
    TRI_ASSERT(false); // a collective op without a row
}

tri_status engine_run_collective(tri_engine *engine, const tri_program *program,
                                 const tri_node *node, void *const *in, void *const *out) {
    const tri_collective_attr *attr = node->attr;
    tri_comm *const groups[TRI_GROUP_COUNT] = {
        [TRI_GROUP_TENSOR_PARALLEL] = engine->groups.tensor_parallel,
        [TRI_GROUP_REPLICAS] = engine->groups.replicas,
    };
    TRI_ASSERT(groups[attr->group]);
    if (!engine->device->backend->host_memory)
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "%s: device %s has no communicator that reaches its memory", node->op->name,
                        engine->device->backend->name);
    return engine_collective(groups[attr->group], program->graph, node, in, out);
}
