// How the ranks of a run are arranged: a grid of four axes. From one rank to the next, the
// coordinate on the last axis changes first. So the ranks along the last axis, which share layers
// and exchange most, are neighbours, mostly on one host.
#ifndef TRIREME_MESH_MESH_H
#define TRIREME_MESH_MESH_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef enum tri_axis {
    TRI_AXIS_PIPELINE,        // ranks along it hold different stages of the model
    TRI_AXIS_REPLICATE,       // ranks along it hold copies of the same training state
    TRI_AXIS_SHARD,           // ranks along it hold different shards of the training state
    TRI_AXIS_TENSOR_PARALLEL, // ranks along it hold different slices of the same layers
    TRI_AXIS_COUNT
} tri_axis;

typedef struct tri_mesh {
    int size[TRI_AXIS_COUNT];
    int ranks; // product of the sizes: the number of ranks
} tri_mesh;

const char *tri_axis_name(tri_axis axis);

// Makes a mesh. A size of 0 means that the user gave none: the axis `own`, which the strategy names
// (tri_strategy.own_axis), then gets `ranks` divided by the sizes of the other axes, and any other
// axis gets 1. TRI_BAD_INPUT: the product of the sizes is not `ranks`; the message proposes sizes,
// and numbers of ranks, that fit.
tri_status tri_mesh_make(const int size[TRI_AXIS_COUNT], tri_axis own, int ranks, tri_mesh *out);
// Returns a rank's coordinate along an axis.
int tri_mesh_coordinate(const tri_mesh *mesh, int rank, tri_axis axis);

// These functions describe groups of ranks along a set of axes (bits 1 << TRI_AXIS_SHARD, …): a
// group is the ranks whose coordinates differ along these axes alone. Colour and key are the
// arguments of a communicator's split: all ranks of a group have one colour, and the key numbers
// them from 0 in the order of their ranks. With no axes each rank is a group of its own.
int tri_mesh_colour(const tri_mesh *mesh, int rank, unsigned axes);
int tri_mesh_key(const tri_mesh *mesh, int rank, unsigned axes);
int tri_mesh_size(const tri_mesh *mesh, unsigned axes);
// Returns the rank with this key (see tri_mesh_key) in the group of `rank` along these axes.
int tri_mesh_member(const tri_mesh *mesh, int rank, unsigned axes, int key);

// A replica is the ranks that together run one micro-batch. There are replicate × shard replicas.
#define TRI_AXES_REPLICAS (1u << TRI_AXIS_REPLICATE | 1u << TRI_AXIS_SHARD)
int tri_mesh_replicas(const tri_mesh *mesh);
int tri_mesh_replica(const tri_mesh *mesh, int rank);

// Writes the mesh as text, each axis with the group of rank 0 along it: "replicate 2 (ranks 0 4) x
// shard 4 (ranks 0 1 2 3)".
char *tri_mesh_text(const tri_mesh *mesh, char *out, size_t size);

#endif
