// What the files of the tensor pass share. The pass builds a graph anew, node by node, for the
// parts of its values that one rank has. Every value of the old graph lies in one of two ways on
// the ranks, and may be asked for in three.
#ifndef TRIREME_PASS_TENSOR_H
#define TRIREME_PASS_TENSOR_H

#include "ops/ops.h"
#include "pass/pass.h"

typedef enum tensor_kind {
    TENSOR_WHOLE, // every rank has all of it, and later all of its gradient
    TENSOR_PART,  // each rank has a part along one axis
    TENSOR_COPY,  // as WHOLE, but each rank's gradient is a part of the sum: what a rank reads for
                  // its own part of a layer. Nothing lies so; it is only asked for
} tensor_kind;

typedef struct tensor_spread {
    tensor_kind kind;
    int dim;       // of PART: the axis
    bool gathered; // WHOLE only because heads do not divide
} tensor_spread;

static const tensor_spread TENSOR_IS_WHOLE = {.kind = TENSOR_WHOLE};
static inline tensor_spread tensor_part(int dim) {
    return (tensor_spread){.kind = TENSOR_PART, .dim = dim};
}

// A value of the old graph as nodes of one block have asked for it.
typedef struct tensor_conversion {
    uint32_t from;
    int block;
    tensor_spread spread;
    tri_value value;
} tensor_conversion;

typedef struct tensor_pass {
    const tri_graph *from;
    tri_graph *to;
    const tri_tensor_options *options;
    tri_collective_attr tensor, replicas; // of collective ops: parts and index
    tri_value *values;                    // by old value: the new one
    tensor_spread *spreads;               // by old value
    tri_split *splits;                    // by parameter: its layer's
    bool *partial, *entire;               // by parameter: what its readers make of its gradient
    tri_value scores, max; // the old value whose largest number of each row was asked for last, and
                           // that as a new value
    tensor_conversion *conversions;
    int conversion_count, conversion_capacity;
} tensor_pass;

// Which axis of a parameter is cut for its use as input `input` of a node of `op`, whose layer is
// split so: -1 none, -2 there is no such layer.
int tensor_parameter_axis(const tri_op *op, int input, tri_split split);
// Rewrites one node (tensor_rules.c).
void tensor_rewrite(tensor_pass *pass, const tri_node *node);

// The new value of an old one, spread as asked: converted where it lies otherwise.
tri_value tensor_ask(tensor_pass *pass, tri_value from, tensor_spread spread);
// How it lies now.
tensor_spread tensor_spread_of(const tensor_pass *pass, tri_value from);
// Adds the node's op to the new graph; its outputs lie as `spread` says.
void tensor_emit(tensor_pass *pass, const tri_node *node, const tri_value *inputs, const void *attr,
                 tensor_spread spread);
// Says that old value `from` is now `value`.
void tensor_set(tensor_pass *pass, tri_value from, tri_value value, tensor_spread spread);
// Sums what every rank made of its part: WHOLE, or PART of the sequence where options say so.
tri_value tensor_sum(tensor_pass *pass, tri_value partial, tensor_spread *spread);
// If the old value is a parameter: its gradient comes whole, or as a part of the sum.
void tensor_note_use(tensor_pass *pass, tri_value from, bool partial);
tri_split tensor_split_of(const tensor_pass *pass, tri_value parameter);

#endif
