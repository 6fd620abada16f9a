// Opens the communicators of the plan's groups, as splits of the world.
#include "engine/engine_internal.h"

// Opens the group of the ranks that differ from this one along the given axes only. A group of one
// needs no network.
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

tri_status engine_make_groups(tri_engine *e, tri_comm *world) {
    const tri_plan *plan = e->plan;
    unsigned pipeline = 1u << TRI_AXIS_PIPELINE, tensor_parallel = 1u << TRI_AXIS_TENSOR_PARALLEL;
    TRI_ASSERT(world->size == plan->mesh.ranks && world->rank == plan->rank);
    e->groups.world = world;
    TRI_TRY(open_group(e, world, 1u << plan->sharing.shard_axis, &e->groups.shards));
    TRI_TRY(open_group(e, world, 1u << plan->sharing.replicate_axis, &e->groups.copies));
    TRI_TRY(open_group(e, world, pipeline, &e->groups.along));
    TRI_TRY(open_group(e, world, pipeline, &e->groups.back));
    TRI_TRY(open_group(e, world, tensor_parallel, &e->groups.tensor_parallel));
    TRI_TRY(open_group(e, world, TRI_AXES_REPLICAS, &e->groups.replicas));
    e->groups.memory = e->groups.replicas;
    return open_ties(e, world);
}

void engine_close_groups(tri_engine *e) {
    tri_comm *const groups[] = {e->groups.shards, e->groups.copies,          e->groups.along,
                                e->groups.back,   e->groups.tensor_parallel, e->groups.replicas};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) tri_comm_close(groups[i]);
    for (int u = 0; e->groups.ties && u < e->plan->flat.unit_count; u++)
        tri_comm_close(e->groups.ties[u]);
}
