#include "mesh/mesh.h"

static const char *const names[TRI_AXIS_COUNT] = {"pipeline", "replicate", "shard", "tensor"};

const char *tri_axis_name(tri_axis axis) { return names[axis]; }

tri_status tri_mesh_make(const int size[TRI_AXIS_COUNT], tri_axis own, int ranks, tri_mesh *out) {
    tri_mesh mesh = {.ranks = ranks};
    int64_t product = 1;
    for (int i = 0; i < TRI_AXIS_COUNT; i++) {
        mesh.size[i] = size[i] ? size[i] : 1;
        if (size[i] < 0 || size[i] > ranks)
            return TRI_FAIL(TRI_BAD_INPUT, "strategy.mesh.%s: %d does not fit %d rank%s", names[i],
                            size[i], ranks, ranks == 1 ? "" : "s");
        product *= mesh.size[i];
    }
    if (size[own] == 0 && product <= ranks && ranks % product == 0) {
        mesh.size[own] = (int)(ranks / product);
        product = ranks;
    }
    if (product != ranks)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "strategy.mesh: replicate %d x shard %d x tensor %d x pipeline %d is %lld, "
                        "but there are %d ranks; start %lld, or leave %s open (auto)",
                        mesh.size[TRI_AXIS_REPLICATE], mesh.size[TRI_AXIS_SHARD],
                        mesh.size[TRI_AXIS_TENSOR], mesh.size[TRI_AXIS_PIPELINE],
                        (long long)product, ranks, (long long)product, names[own]);
    *out = mesh;
    return TRI_OK;
}

int tri_mesh_coordinate(const tri_mesh *mesh, int rank, tri_axis axis) {
    for (int i = TRI_AXIS_COUNT - 1; i > (int)axis; i--) rank /= mesh->size[i];
    return rank % mesh->size[axis];
}

int tri_mesh_replicas(const tri_mesh *mesh) {
    return mesh->size[TRI_AXIS_REPLICATE] * mesh->size[TRI_AXIS_SHARD];
}

int tri_mesh_replica(const tri_mesh *mesh, int rank) {
    return tri_mesh_coordinate(mesh, rank, TRI_AXIS_REPLICATE) * mesh->size[TRI_AXIS_SHARD] +
           tri_mesh_coordinate(mesh, rank, TRI_AXIS_SHARD);
}
