// What the files of the tensor pass share. The pass builds a graph anew, node by node, for the
// parts of its values that one rank has. Every value of the old graph lies in one of two ways on
// the ranks, and may be asked for in three.
#ifndef TRIREME_PASS_TENSOR_PARALLEL_H
#define TRIREME_PASS_TENSOR_PARALLEL_H

#include "ops/ops.h"
#include "pass/pass.h"

typedef struct parallel_placement {
    tri_placement kind;
    int dim;       // of PART: the axis
    bool gathered; // WHOLE only because heads do not divide
} parallel_placement;

static const parallel_placement PARALLEL_REPLICATED = {.kind = TRI_PLACEMENT_REPLICATED};
static inline parallel_placement parallel_sliced(int dim) {
    return (parallel_placement){.kind = TRI_PLACEMENT_SLICED, .dim = dim};
}

// A value of the old graph as nodes of one block have asked for it.
typedef struct parallel_conversion {
    uint32_t from;
    int block;
    parallel_placement placement;
    tri_value value;
} parallel_conversion;

typedef struct parallel_pass {
    const tri_graph *from;
    tri_graph *to;
    const tri_tensor_parallel_options *options;
    tri_collective_attr tensor_parallel, replicas; // of collective ops: parts and index
    tri_value *values;                             // by old value: the new one
    parallel_placement *placements;                // by old value
    tri_split *splits;                             // by parameter: its layer's
    bool *partial, *complete; // by parameter: what its readers make of its gradient
    tri_value scores, max; // the old value whose largest number of each row was asked for last, and
                           // that as a new value
    parallel_conversion *conversions;
    int conversion_count, conversion_capacity;
} parallel_pass;

// Which axis of a parameter is cut for its use as input `input` of a node of `op`, whose layer is
// split so: -1 none, -2 there is no such layer.
int parallel_parameter_axis(const tri_op *op, int input, tri_split split);
// Rewrites one node (tensor_rules.c).
void parallel_rewrite(parallel_pass *pass, const tri_node *node);

// The new value of an old one, spread as asked: converted where it lies otherwise.
tri_value parallel_ask(parallel_pass *pass, tri_value from, parallel_placement placement);
// How it lies now.
parallel_placement parallel_placement_of(const parallel_pass *pass, tri_value from);
// Adds the node's op to the new graph; its outputs lie as `spread` says.
void parallel_emit(parallel_pass *pass, const tri_node *node, const tri_value *inputs,
                   const void *attr, parallel_placement placement);
// Says that old value `from` is now `value`.
void parallel_set(parallel_pass *pass, tri_value from, tri_value value,
                  parallel_placement placement);
// Sums what every rank made of its part: WHOLE, or PART of the sequence where options say so.
tri_value parallel_sum(parallel_pass *pass, tri_value partial, parallel_placement *placement);
// If the old value is a parameter: its gradient comes whole, or as a part of the sum.
void parallel_note_use(parallel_pass *pass, tri_value from, bool partial);
tri_split parallel_split_of(const parallel_pass *pass, tri_value parameter);

#endif
