// How the ranks of a run are arranged: a grid of four axes, the last one running fastest.
#ifndef TRIREME_MESH_MESH_H
#define TRIREME_MESH_MESH_H

#include "base/status.h"

#include <stdint.h>

typedef enum tri_axis {
    TRI_AXIS_PIPELINE,  // stages of the model
    TRI_AXIS_REPLICATE, // copies of the training state
    TRI_AXIS_SHARD,     // parts of the training state
    TRI_AXIS_TENSOR,    // parts of single operations
    TRI_AXIS_COUNT
} tri_axis;

typedef struct tri_mesh {
    int size[TRI_AXIS_COUNT];
    int ranks; // their product
} tri_mesh;

const char *tri_axis_name(tri_axis axis);

// A size of 0 is left open: the axis `own` (the strategy's) takes what the others leave, any other
// open axis is 1. TRI_BAD_INPUT says which sizes would do when the product is not `ranks`.
tri_status tri_mesh_make(const int size[TRI_AXIS_COUNT], tri_axis own, int ranks, tri_mesh *out);
// A rank's place along an axis.
int tri_mesh_coordinate(const tri_mesh *mesh, int rank, tri_axis axis);
// Replicas are the ranks that get different micro-batches: replicate × shard.
int tri_mesh_replicas(const tri_mesh *mesh);
int tri_mesh_replica(const tri_mesh *mesh, int rank);

#endif
