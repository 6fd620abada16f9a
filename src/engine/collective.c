// Runs collective ops, which are nodes of the graph inside a layer (for tensor parallelism and
// synchronised batch norm), on the communicator of their group. Collectives on parameters and their
// gradients are no nodes, but actions of a step: see communicate.c.
#include "engine/engine_internal.h"

#include <stdio.h>

static tri_comm_op op_of(const tri_graph *graph, const tri_node *node, void *const *in,
                         void *const *out, const char *label) {
    static const struct {
        const tri_op *op;
        tri_comm_kind kind;
        // True: tri_comm_op.count is the size of the output; false: of the input.
        bool counts_output;
    } rows[] = {{&tri_op_all_reduce, TRI_COMM_ALL_REDUCE, false},
                {&tri_op_all_gather, TRI_COMM_ALL_GATHER, false},
                {&tri_op_reduce_scatter, TRI_COMM_REDUCE_SCATTER, true}};
    const tri_collective_attr *attr = node->attr;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].op != node->op) continue;
        const tri_value_info *info =
            tri_value_get(graph, rows[i].counts_output ? node->outputs[0] : node->inputs[0]);
        return (tri_comm_op){.kind = rows[i].kind,
                             .reduction = attr->maximum ? TRI_REDUCE_MAX : TRI_REDUCE_SUM,
                             .dtype = info->dtype,
                             .count = tri_shape_count(&info->shape),
                             .send = in[0],
                             .recv = out[0],
                             .label = label};
    }
    TRI_ASSERT(false); // the node's op has no row in the table above
}

tri_status engine_collective(tri_comm *comm, const tri_graph *graph, const tri_node *node,
                             void *const *in, void *const *out) {
    const tri_collective_attr *attr = node->attr;
    char label[128];
    TRI_ASSERT(comm->size == attr->slices && comm->rank == attr->index);
    snprintf(label, sizeof label, "%s of block %s, node %s", node->op->name,
             graph->blocks[node->block], *node->name ? node->name : "without a name");
    tri_comm_op op = op_of(graph, node, in, out, label);
    return tri_comm_run(comm, &op);
}

tri_status engine_run_collective(tri_engine *engine, const tri_program *program,
                                 const tri_node *node, void *const *in, void *const *out) {
    const tri_collective_attr *attr = node->attr;
    tri_comm *const groups[TRI_GROUP_COUNT] = {
        [TRI_GROUP_TENSOR_PARALLEL] = engine->data.tensor_parallel,
        [TRI_GROUP_REPLICAS] = engine->data.replicas,
    };
    TRI_ASSERT(groups[attr->group]);
    if (engine->device->backend->host_memory)
        return engine_collective(groups[attr->group], program->graph, node, in, out);
    // The label has to outlive this call, because the communicator keeps the pointer. An op's name
    // is a constant.
    tri_comm_op op = op_of(program->graph, node, in, out, node->op->name);
    return engine_run_between(engine, groups[attr->group], &op);
}
