// What the files of the tensor-parallel pass share. The pass builds a new graph, node by node, of
// what one rank has of each value. Every value of the old graph has a placement: it is replicated
// or sliced. An op may also ask for a replicated value as PARTIAL_GRADIENT: this rank reads it for
// its own slice of a layer, so what it adds to the value's gradient is one term of a sum.
#ifndef TRIREME_PASS_TENSOR_PARALLEL_H
#define TRIREME_PASS_TENSOR_PARALLEL_H

#include "ops/ops.h"
#include "pass/pass.h"

typedef struct parallel_placement {
    tri_placement kind;
    int dim;       // of SLICED: the axis
    bool gathered; // replicated only because a reshape to heads does not divide
} parallel_placement;

static const parallel_placement PARALLEL_REPLICATED = {.kind = TRI_PLACEMENT_REPLICATED};
static inline parallel_placement parallel_sliced(int dim) {
    return (parallel_placement){.kind = TRI_PLACEMENT_SLICED, .dim = dim};
}

// A value of the old graph in a placement that nodes of one block asked for. It is kept, so that
// the exchange takes place once for all of them.
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
    tri_collective_attr tensor_parallel, replicas; // for collective ops: group, slices and index
    tri_value *values;                             // values[v]: the new value of old value v
    parallel_placement *placements;                // placements[v]: that of old value v
    tri_split *splits;                             // splits[p]: that of parameter p's layer
    // partial[p]: some reader of parameter p adds one term of its gradient. complete[p]: some
    // reader adds all of it. Both together are an error: the sum over ranks would count the second
    // several times.
    bool *partial, *complete;
    // The old value whose row maxima were asked for last, and those maxima as a new value: loss and
    // accuracy ask for the same.
    tri_value scores, max;
    parallel_conversion *conversions;
    int conversion_count, conversion_capacity;
} parallel_pass;

enum { PARALLEL_NO_AXIS = -1, PARALLEL_NO_SPLIT = -2 };
// Which axis of a parameter is sliced for its use as input `input` of a node of `op`, whose layer
// has that split. PARALLEL_NO_AXIS: none. PARALLEL_NO_SPLIT: the op cannot be split so.
int parallel_parameter_axis(const tri_op *op, int input, tri_split split);
// Rewrites one node by its op's rule (tensor_parallel_rules.c).
void parallel_rewrite(parallel_pass *pass, const tri_node *node);

// tensor_parallel_values.c: returns the new value of an old one in the placement that is asked for,
// and converts it where it has another.
tri_value parallel_ask(parallel_pass *pass, tri_value from, parallel_placement placement);
// The placement of an old value.
parallel_placement parallel_placement_of(const parallel_pass *pass, tri_value from);
// Adds a node of the same op to the new graph, with these inputs; its outputs have the given
// placement.
void parallel_emit(parallel_pass *pass, const tri_node *node, const tri_value *inputs,
                   const void *attr, parallel_placement placement);
// Records that the old value `from` is now `value`.
void parallel_set(parallel_pass *pass, tri_value from, tri_value value,
                  parallel_placement placement);
// Sums the terms that the ranks have computed. *placement: replicated, or with
// strategy.sequence_parallel sliced along the sequence.
tri_value parallel_sum(parallel_pass *pass, tri_value partial, parallel_placement *placement);
// If the old value is a parameter, notes what its reader adds to the gradient: all of it, or one
// term (`partial`).
void parallel_note_use(parallel_pass *pass, tri_value from, bool partial);
// How the layer of a parameter is split; TRI_SPLIT_NONE of other values.
tri_split parallel_split_of(const parallel_pass *pass, tri_value parameter);

#endif
