// What the files of the tensor-parallel pass share. Node by node, the pass builds a new graph,
// whose values are what one rank holds of the old graph's values: all of a value (replicated) or
// one slice of it. This is the value's placement. An op can also ask for a replicated value as
// PARTIAL_GRADIENT: this rank reads the value for its own slice of a layer, so it computes only one
// term of the value's gradient. The split of a layer says how its parameters are sliced: by columns
// (each rank makes some of the outputs) or by rows (each rank reads some of the inputs).
#ifndef TRIREME_PASS_TENSOR_PARALLEL_H
#define TRIREME_PASS_TENSOR_PARALLEL_H

#include "ops/ops.h"
#include "pass/pass.h"

typedef struct parallel_placement {
    tri_placement kind;
    int dim; // for SLICED: the axis along which the value is cut
    // For SLICED: how many equal parts this axis consists of, of each of which a rank has a slice.
    int64_t parts;
    // The value, or one whose elements it has, was gathered for a reshape, because no axis of the
    // reshape's output could be sliced instead. An example is a reshape to attention heads
    // whose number is no multiple of the number of ranks: attention then fails with a message.
    bool gathered;
} parallel_placement;

static const parallel_placement PARALLEL_REPLICATED = {.kind = TRI_PLACEMENT_REPLICATED};
static inline parallel_placement parallel_sliced_parts(int dim, int64_t parts) {
    return (parallel_placement){.kind = TRI_PLACEMENT_SLICED, .dim = dim, .parts = parts};
}
static inline parallel_placement parallel_sliced(int dim) { return parallel_sliced_parts(dim, 1); }

// A value of the old graph, converted to a placement that a node has asked for. It is kept, so that
// all nodes of a block that ask for the same placement share one collective.
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
    // Attributes for collective ops: group, number of slices, and index of this rank's slice.
    tri_collective_attr tensor_parallel, replicas;
    tri_value *values; // values[v]: what stands in the new graph for value v of the old one
    parallel_placement *placements; // placements[v]: the placement of values[v]
    tri_split *splits;              // splits[p]: the split of parameter p's layer
    // partial[p]: some reader of parameter p computes only one term of its gradient. complete[p]:
    // some reader computes all of its gradient. Never both, because the sum over ranks would count
    // the complete one several times: whole[p] says that all readers have to compute all of it.
    bool *partial, *complete, *whole;
    bool *of_parameters; // of_parameters[v]: value v is a parameter, or made of parameters alone
    // For scores that are sliced along the classes, a collective computes the maximum of each row
    // over all ranks. `scores`: the value of the old graph for which this was done last. `max`: the
    // value of the new graph that holds the maxima of its rows. They are kept because the loss and
    // the accuracy of the same scores share them.
    tri_value scores, max;
    parallel_conversion *conversions;
    int conversion_count, conversion_capacity;
} parallel_pass;

enum { PARALLEL_NO_AXIS = -1, PARALLEL_NO_SPLIT = -2 };
// Finds which axis of a parameter is sliced if the parameter is input `input` of a node of `op` and
// its layer has this split. PARALLEL_NO_AXIS: none. PARALLEL_NO_SPLIT: the op cannot be split in
// this way.
int parallel_parameter_axis(const tri_op *op, int input, tri_split split);
// Rewrites one node by the rule for its op (tensor_parallel_rules.c).
void parallel_rewrite(parallel_pass *pass, const tri_node *node);

// Returns the new graph's value for `from`, a value of the old graph, in the given placement. If it
// has another placement so far, nodes that convert it are added first. Defined in
// tensor_parallel_values.c.
tri_value parallel_ask(parallel_pass *pass, tri_value from, parallel_placement placement);
// Gets the placement of the new value that stands for `from` of the old graph.
parallel_placement parallel_placement_of(const parallel_pass *pass, tri_value from);
// Adds a node to the new graph with the op of `node`, which is of the old graph, and with these
// inputs. Its outputs have the given placement, and stand for the outputs of `node`.
void parallel_emit(parallel_pass *pass, const tri_node *node, const tri_value *inputs,
                   const void *attr, parallel_placement placement);
// Records that `value` of the new graph stands for `from` of the old one.
void parallel_set(parallel_pass *pass, tri_value from, tri_value value,
                  parallel_placement placement);
// Adds the op that sums `partial`, this rank's term, over the tensor-parallel ranks, and returns
// the sum. *placement, that of the sum, is replicated or, with strategy.sequence_parallel and
// unless `whole` is set, sliced along the sequence.
tri_value parallel_sum(parallel_pass *pass, tri_value partial, bool whole,
                       parallel_placement *placement);
// If `from` of the old graph is a parameter, or made of parameters alone, records for these whether
// the node that reads it computes all of its gradient or, if `partial` is set, one term of it.
void parallel_note_use(parallel_pass *pass, tri_value from, bool partial);
// Whether `from` is a parameter, or made of parameters, whose readers have to compute all of its
// gradient.
bool parallel_is_whole(const parallel_pass *pass, tri_value from);
// Gets the split of a parameter's layer; TRI_SPLIT_NONE for values that are no parameters.
tri_split parallel_split_of(const parallel_pass *pass, tri_value parameter);

#endif
