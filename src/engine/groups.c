// Opens the communicators of the plan's groups of ranks (the shards of one state, the replicas, the
// stages of a pipeline, …) when the engine is made. Each group has two: a control communicator,
// which is a split of the world (the communicator of all ranks), and over it a data communicator.
// Control communicators send what lies in the host's memory, such as decisions of the host and
// checkpoints. Data communicators send what lies in the device's: parameters, gradients and
// activations.
#include "comm/data.h"
#include "engine/engine_internal.h"

// Opens the control communicator of the ranks that differ from this one only along the given axes
// of the mesh, in which the ranks are arranged (replicate, shard, tensor and pipeline). A group of
// one rank needs no network: the communicator `self` does its operations.
static tri_status open_group(tri_engine *e, tri_comm *world, unsigned axes, tri_comm **out) {
    const tri_mesh *mesh = &e->plan->mesh;
    int rank = e->plan->rank;
    if (tri_mesh_size(mesh, axes) == 1) return tri_comm_self_open(out);
    return world->backend->split(world, tri_mesh_colour(mesh, rank, axes),
                                 tri_mesh_key(mesh, rank, axes), out);
}

static tri_status open_ties(tri_engine *e, tri_comm *world) {
    const tri_flat *flat = &e->plan->flat;
    e->groups.ties = TRI_NEW_ARRAY(e->arena, tri_comm *, flat->unit_count);
    const tri_mesh *mesh = &e->plan->mesh;
    for (int u = 0; u < flat->unit_count; u++) {
        if (e->plan->units[u].holder_count < 2) continue;
        int colour = tri_mesh_colour(mesh, e->plan->rank, 1u << TRI_AXIS_PIPELINE);
        TRI_TRY(world->backend->split(world, flat->units[u].here ? colour : -1, e->plan->rank,
                                      &e->groups.ties[u]));
    }
    return TRI_OK;
}

// Opens the data communicator of the group whose control communicator is `control`. If `axes` is
// not 0, the group has all ranks that differ from this one only along these axes of the mesh, and
// its communicator can be split from the data communicator of all ranks. `axes` 0: the communicator
// is opened without such a split.
static tri_status open_data(tri_engine *e, tri_comm *control, tri_comm_use use, unsigned axes,
                            tri_comm **out) {
    unsigned wanted = TRI_COMM_DATA_ABILITIES;
    if (e->plan->deterministic) wanted |= TRI_COMM_RANK_ORDER;
    tri_comm_data_request request = {
        .control = control,
        .device = e->device,
        .wanted = wanted,
        .use = use,
        .choice = e->plan->comm,
        .parent = axes ? e->data.world : NULL,
        .colour = axes ? tri_mesh_colour(&e->plan->mesh, e->plan->rank, axes) : 0};
    return tri_comm_data_open(&request, out);
}

static tri_status open_data_groups(tri_engine *e) {
    engine_groups *d = &e->data;
    const engine_groups *h = &e->groups;
    const tri_plan_sharing *sharing = &e->plan->sharing;
    unsigned tensor_parallel = 1u << TRI_AXIS_TENSOR_PARALLEL;
    TRI_TRY(open_data(e, h->world, TRI_COMM_NUMBERS, 0, &d->world));
    TRI_TRY(open_data(e, h->shards, TRI_COMM_BULK, 1u << sharing->shard_axis, &d->shards));
    TRI_TRY(
        open_data(e, h->replicate, TRI_COMM_BULK, 1u << sharing->replicate_axis, &d->replicate));
    TRI_TRY(open_data(e, h->along, TRI_COMM_MESSAGES, 0, &d->along));
    TRI_TRY(open_data(e, h->back, TRI_COMM_MESSAGES, 0, &d->back));
    TRI_TRY(open_data(e, h->tensor_parallel, TRI_COMM_BULK, tensor_parallel, &d->tensor_parallel));
    TRI_TRY(open_data(e, h->replicas, TRI_COMM_NUMBERS, TRI_AXES_REPLICAS, &d->replicas));
    d->ties = TRI_NEW_ARRAY(e->arena, tri_comm *, e->plan->flat.unit_count);
    for (int u = 0; u < e->plan->flat.unit_count; u++)
        TRI_TRY(open_data(e, h->ties[u], TRI_COMM_BULK, 0, &d->ties[u]));
    return TRI_OK;
}

tri_status engine_make_groups(tri_engine *e, tri_comm *world) {
    const tri_plan *plan = e->plan;
    unsigned pipeline = 1u << TRI_AXIS_PIPELINE, tensor_parallel = 1u << TRI_AXIS_TENSOR_PARALLEL;
    TRI_ASSERT(world->size == plan->mesh.ranks && world->rank == plan->rank);
    e->groups.world = world;
    TRI_TRY(open_group(e, world, 1u << plan->sharing.shard_axis, &e->groups.shards));
    TRI_TRY(open_group(e, world, 1u << plan->sharing.replicate_axis, &e->groups.replicate));
    TRI_TRY(open_group(e, world, pipeline, &e->groups.along));
    TRI_TRY(open_group(e, world, pipeline, &e->groups.back));
    TRI_TRY(open_group(e, world, tensor_parallel, &e->groups.tensor_parallel));
    TRI_TRY(open_group(e, world, TRI_AXES_REPLICAS, &e->groups.replicas));
    e->groups.memory = e->groups.replicas;
    TRI_TRY(open_ties(e, world));
    return open_data_groups(e);
}

// Calls `visit` for each data communicator together with the control communicator of its group.
// With this, engine_stop_groups and engine_close_groups go through all groups.
static void visit_groups(const tri_engine *e, void (*visit)(tri_comm *data, tri_comm *control)) {
    const engine_groups *d = &e->data, *c = &e->groups;
    visit(d->world, c->world);
    visit(d->shards, c->shards);
    visit(d->replicate, c->replicate);
    visit(d->along, c->along);
    visit(d->back, c->back);
    visit(d->tensor_parallel, c->tensor_parallel);
    visit(d->replicas, c->replicas);
    for (int u = 0; d->ties && u < e->plan->flat.unit_count; u++) visit(d->ties[u], c->ties[u]);
}

static void stop(tri_comm *data, tri_comm *control) { tri_comm_data_stop(data); }

void engine_stop_groups(tri_engine *e) { visit_groups(e, stop); }

void engine_close_groups(tri_engine *e) {
    const engine_groups *c = &e->groups; // the world belongs to the caller and is not closed
    tri_comm *const groups[] = {c->shards, c->replicate,       c->along,
                                c->back,   c->tensor_parallel, c->replicas};
    visit_groups(e, tri_comm_data_close);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) tri_comm_close(groups[i]);
    for (int u = 0; c->ties && u < e->plan->flat.unit_count; u++) tri_comm_close(c->ties[u]);
}
