// Opens the communicators of the plan's groups, as splits of the world, and those that take the
// device's memory.
#include "comm/staged/staged.h"
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

// The communicator of a group that takes the device's memory. A rank's groups may share one.
static tri_status open_data(tri_engine *e, tri_comm *host, tri_comm **out) {
    tri_comm *inner;
    *out = host;
    if (!host || e->device->backend->host_memory) return TRI_OK;
    *out = NULL;
    if (host->size == 1)
        TRI_TRY(tri_comm_self_open(&inner));
    else
        TRI_TRY(host->backend->split(host, 0, host->rank, &inner));
    return tri_comm_staged_open(inner, e->device, out);
}

static tri_status open_data_groups(tri_engine *e) {
    engine_groups *d = &e->data;
    const engine_groups *h = &e->groups;
    TRI_TRY(open_data(e, h->world, &d->world));
    TRI_TRY(open_data(e, h->shards, &d->shards));
    TRI_TRY(open_data(e, h->copies, &d->copies));
    TRI_TRY(open_data(e, h->along, &d->along));
    TRI_TRY(open_data(e, h->back, &d->back));
    TRI_TRY(open_data(e, h->tensor_parallel, &d->tensor_parallel));
    TRI_TRY(open_data(e, h->replicas, &d->replicas));
    d->ties = TRI_NEW_ARRAY(e->arena, tri_comm *, e->plan->flat.unit_count);
    for (int u = 0; u < e->plan->flat.unit_count; u++)
        TRI_TRY(open_data(e, h->ties[u], &d->ties[u]));
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
    TRI_TRY(open_ties(e, world));
    return open_data_groups(e);
}

// Calls `visit` for all communicators of a set.
static void visit_groups(const tri_engine *e, const engine_groups *set,
                         void (*visit)(tri_comm *comm)) {
    tri_comm *const groups[] = {set->shards, set->copies,          set->along,
                                set->back,   set->tensor_parallel, set->replicas};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) visit(groups[i]);
    if (set == &e->data) visit(set->world);
    for (int u = 0; set->ties && u < e->plan->flat.unit_count; u++) visit(set->ties[u]);
}

void engine_stop_groups(tri_engine *e) { visit_groups(e, &e->data, tri_comm_staged_stop); }

void engine_close_groups(tri_engine *e) {
    if (!e->device->backend->host_memory) visit_groups(e, &e->data, tri_comm_close);
    visit_groups(e, &e->groups, tri_comm_close);
}
