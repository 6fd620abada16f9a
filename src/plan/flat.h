// Where parameters lie. A *unit* is what is gathered, reduced and stepped together: the parameters
// that only one block reads, or one parameter that several blocks read. Its elements lie in parts,
// by role and by the type they are computed in; each part is padded to as many equal ranges as
// there are shards. Gradients have the places of their parameters, optimizer states those of the
// trained ones.
#ifndef TRIREME_PLAN_FLAT_H
#define TRIREME_PLAN_FLAT_H

#include "graph/graph.h"

// Elements: 64 bytes of a two-byte type. And those of a range where sums of squares are to be the
// same for any number of shards.
enum { TRI_FLAT_ALIGNMENT = 32, TRI_FLAT_CHUNK = 4096 };

// How the ranks along the axis `tensor` have the parameters of a part.
typedef enum tri_part_spread {
    TRI_SPREAD_WHOLE,   // all have the same, and the same gradient
    TRI_SPREAD_DIVIDED, // each has its part
    TRI_SPREAD_PARTIAL, // all have the same, but a part of the sum that is the gradient
} tri_part_spread;

// X(part, is trained, is computed in a narrower type than it is stored in, spread over `tensor`)
#define TRI_PART_LIST(X)                                                                           \
    X(TRAINED_LOW, true, true, TRI_SPREAD_WHOLE)                                                   \
    X(TRAINED, true, false, TRI_SPREAD_WHOLE)                                                      \
    X(DIVIDED_LOW, true, true, TRI_SPREAD_DIVIDED)                                                 \
    X(DIVIDED, true, false, TRI_SPREAD_DIVIDED)                                                    \
    X(PARTIAL_LOW, true, true, TRI_SPREAD_PARTIAL)                                                 \
    X(PARTIAL, true, false, TRI_SPREAD_PARTIAL)                                                    \
    X(FROZEN_LOW, false, true, TRI_SPREAD_WHOLE)                                                   \
    X(FROZEN, false, false, TRI_SPREAD_WHOLE)                                                      \
    X(STATISTIC, false, false, TRI_SPREAD_WHOLE)

typedef enum tri_part_kind {
#define X(part, trained, low, spread) TRI_PART_##part,
    TRI_PART_LIST(X)
#undef X
        TRI_PART_COUNT
} tri_part_kind;

bool tri_part_is_trained(tri_part_kind part);
bool tri_part_is_low(tri_part_kind part);
tri_part_spread tri_part_spread_of(tri_part_kind part);
// Trained parts and statistics.
bool tri_part_has_gradients(tri_part_kind part);

typedef struct tri_flat_part {
    int64_t elements; // of all shards, padding included
    int64_t own;      // of one shard
    // Places among the parts that this rank holds: of the whole part, and of one shard's range.
    int64_t offset, own_offset;                   // among parameters that are as low as these
    int64_t gradient_offset, gradient_own_offset; // among those that have gradients
    int64_t state_offset;                         // one shard's range among the trained ones
} tri_flat_part;

typedef struct tri_flat_unit {
    const char *name; // the block's, or the parameter's
    bool here;        // this rank holds it
    tri_flat_part parts[TRI_PART_COUNT];
} tri_flat_unit;

typedef struct tri_flat_parameter {
    int unit; // -1: in none (a counter)
    tri_part_kind part;
    int64_t offset;   // elements from the start of its part
    int64_t elements; // in its home order, padding included
} tri_flat_parameter;

typedef struct tri_flat {
    tri_flat_parameter *parameters; // by the graph's parameter
    tri_flat_unit *units;           // blocks first, in their order
    int parameter_count, unit_count, block_count;
    int shards;
    tri_dtype low; // of the parts computed in a narrower type
    // Of all that this rank holds; [1]: of the low parts.
    int64_t elements[2], own_elements[2];
    int64_t gradient_elements, gradient_own_elements, state_elements;
} tri_flat;

typedef struct tri_flat_request {
    const tri_graph *graph;  // whose layouts are chosen
    const bool *blocks_here; // by block: this rank computes it
    int shards;
    bool is_chunked; // ranges are multiples of TRI_FLAT_CHUNK
} tri_flat_request;

tri_flat tri_flat_make(tri_arena *arena, const tri_flat_request *request);
// The units that the block reads, its own first, as far as there is room for them; returns how many
// there are.
int tri_flat_block_units(const tri_flat *flat, const tri_graph *graph, int block, int *units,
                         int most);

#endif
