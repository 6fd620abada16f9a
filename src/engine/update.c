#include "engine/engine_internal.h"

// One node of the update graph over a stretch of the flat buffers: STEP runs it.
static tri_status add_update(tri_engine *e, const tri_op *op, const void *attr, int states,
                             int block, int64_t offset, int64_t elements) {
    if (elements == 0) return TRI_OK;
    tri_graph *g = e->update_graph;
    tri_value in[TRI_MAX_INPUTS] = {{0}};
    tri_shape shape = tri_shape_of(elements);
    for (int i = 0; i < 3 + states; i++) {
        const char *name = tri_arena_printf(g->arena, "update %d input %d", e->update_count, i);
        in[i] = i == 2 ? tri_scalar(g, TRI_SCALAR_STEP) : tri_input(g, name, TRI_F32, shape);
    }
    tri_node_add(g, op, in, 3 + states, attr, e->plan->graph->blocks[block]);
    if (g->status != TRI_OK) return TRI_FAIL(g->status, "%s", g->message);
    const tri_node *node = &g->nodes[g->node_count - 1];
    const tri_kernel_def *def = tri_device_select(e->device, g, node);
    if (!def)
        return TRI_FAIL(TRI_UNSUPPORTED, "device %s has no kernel for %s", e->device->backend->name,
                        op->name);
    engine_update *u = &e->updates[e->update_count++];
    u->block = block;
    u->args.in[0] = e->parameters + offset;
    u->args.in[1] = e->gradients + offset;
    u->args.in[2] = e->scalars[TRI_SCALAR_STEP];
    for (int i = 0; i < states; i++) u->args.in[3 + i] = e->states[i] + offset;
    TRI_TRY(tri_kernel_prepare(def, e->device, g, node, &u->kernel));
    TRI_ASSERT(u->kernel.workspace_bytes == 0);
    return TRI_OK;
}

// Neighbouring statistics with one momentum are averaged together.
static tri_status add_statistics(tri_engine *e, int block) {
    const tri_graph *g = e->plan->graph;
    const tri_flat *flat = &e->plan->flat;
    int64_t end = flat->blocks[block].offset + flat->blocks[block].elements;
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_parameter_info *p = &g->parameters[i];
        if (p->block != block || p->role != TRI_ROLE_STATISTIC) continue;
        int64_t from = flat->parameters[i].offset, to = end;
        for (int k = i + 1; k < g->parameter_count; k++) {
            const tri_parameter_info *q = &g->parameters[k];
            if (q->block != block || q->role != TRI_ROLE_STATISTIC) continue;
            if (q->momentum == p->momentum) {
                i = k;
                continue;
            }
            to = flat->parameters[k].offset;
            break;
        }
        tri_moving_average_attr attr = {.momentum = p->momentum};
        TRI_TRY(add_update(e, &tri_op_moving_average, &attr, 0, block, from, to - from));
    }
    return TRI_OK;
}

tri_status engine_make_updates(tri_engine *e) {
    const tri_flat *flat = &e->plan->flat;
    tri_graph_options options = {.training = true};
    e->update_graph = tri_graph_create(e->arena, &options);
    e->updates = TRI_NEW_ARRAY(e->arena, engine_update, flat->block_count + flat->parameter_count);
    for (int b = 0; b < flat->block_count; b++) {
        TRI_TRY(add_update(e, e->optimizer.op, &e->optimizer.attr, e->optimizer.state_count, b,
                           flat->blocks[b].offset, flat->blocks[b].trained));
        TRI_TRY(add_statistics(e, b));
    }
    return TRI_OK;
}
