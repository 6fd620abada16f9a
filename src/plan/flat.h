// Where parameters, gradients and optimizer states lie in memory. A block is a layer or a group of
// layers that is scheduled as one. A *unit* is the state that is gathered, reduced and updated
// together: the parameters that only one block reads, or one parameter that several blocks read (a
// shared, or tied, parameter). A shard is one of the equal ranges into which ranks divide a unit.
// The parameters of a unit that have one role, type and placement form a *bucket*: one contiguous
// range, so that one collective or one optimizer kernel works on all of them. A bucket is padded to
// equal ranges, one for each shard:
//
//     bucket     | weight | bias |pad|   elements      all of it, padding included
//     shards     |    0    |    1    |   own           elements of one shard
//
// Inside a bucket, parameters lie in the order of their groups (tri_graph_group).
// Inside a bucket, a parameter's gradient and its optimizer states have the parameter's offset.
#ifndef TRIREME_PLAN_FLAT_H
#define TRIREME_PLAN_FLAT_H

#include "graph/graph.h"

enum {
    // Parameters begin at a multiple of at least this many elements: 64 bytes of a half type.
    TRI_FLAT_ALIGNMENT = 32,
    // In a deterministic run, the norm of the gradients adds the squares of this many elements at a
    // time, and then these sums. So it has the same bits on any number of shards.
    TRI_FLAT_CHUNK = 4096
};

// The buckets of a unit (the parameters of a block, or a tied parameter). A parameter's bucket
// follows from its role, from the type in which kernels read it, and from how it lies on the
// tensor-parallel ranks, because each of these decides which collectives and kernels handle it.
// X(bucket, is trained, kernels read it in a half type, placement)
#define TRI_BUCKET_LIST(X)                                                                         \
    X(TRAINED_HALF, true, true, TRI_PLACEMENT_REPLICATED)                                          \
    X(TRAINED, true, false, TRI_PLACEMENT_REPLICATED)                                              \
    X(SLICED_HALF, true, true, TRI_PLACEMENT_SLICED)                                               \
    X(SLICED, true, false, TRI_PLACEMENT_SLICED)                                                   \
    X(PARTIAL_HALF, true, true, TRI_PLACEMENT_PARTIAL_GRADIENT)                                    \
    X(PARTIAL, true, false, TRI_PLACEMENT_PARTIAL_GRADIENT)                                        \
    X(FROZEN_HALF, false, true, TRI_PLACEMENT_REPLICATED)                                          \
    X(FROZEN, false, false, TRI_PLACEMENT_REPLICATED)                                              \
    X(STATISTIC, false, false, TRI_PLACEMENT_REPLICATED)

typedef enum tri_bucket_kind {
#define X(bucket, trained, half, placement) TRI_BUCKET_##bucket,
    TRI_BUCKET_LIST(X)
#undef X
        TRI_BUCKET_COUNT
} tri_bucket_kind;

bool tri_bucket_is_trained(tri_bucket_kind bucket);
// True if kernels read the bucket's parameters in a half type (BF16 or F16). The optimizer then
// keeps them in F32 too (masters), because small updates would be lost in a half type.
bool tri_bucket_is_half(tri_bucket_kind bucket);
tri_placement tri_bucket_placement(tri_bucket_kind bucket);
// True for the buckets of trained parameters and of statistics: new values of statistics are
// reduced together with the gradients.
bool tri_bucket_has_gradients(tri_bucket_kind bucket);

typedef struct tri_flat_bucket {
    int64_t elements; // elements of all shards together, padding included
    int64_t own;      // elements of one shard
    // Where the bucket begins, in elements: in a buffer of whole buckets, and in a buffer that has
    // only this rank's shards. A buffer holds the buckets of all units, one after the other. There
    // is one buffer for all buckets that kernels read in a half type, and another for the rest
    // (TRI_FLAT_HALF and TRI_FLAT_STORED).
    int64_t offset, own_offset;
    // Where the bucket's gradients begin: in a buffer of whole buckets, and in a buffer that has
    // only this rank's shards.
    int64_t gradient_offset, gradient_own_offset;
    // Where this rank's shard of an optimizer state would begin if there were one state for each
    // parameter. With n states, the bucket's states begin at n times this offset.
    int64_t state_offset;
} tri_flat_bucket;

typedef struct tri_flat_unit {
    const char *name; // name of the block, or of the shared parameter
    bool here;        // true: this rank holds the unit's parameters, or shards of them
    tri_flat_bucket buckets[TRI_BUCKET_COUNT];
} tri_flat_unit;

typedef struct tri_flat_parameter {
    int unit; // the unit with which it is gathered and reduced; -1: none, because it is a counter
    tri_bucket_kind bucket;
    int64_t offset;   // elements from the start of its bucket
    int64_t elements; // elements in the layout in which it is kept, padding included
} tri_flat_parameter;

// A parameter may lie in two flat buffers: one in the type in which it is stored, which the
// optimizer updates, and one in the half type that kernels read.
enum { TRI_FLAT_STORED, TRI_FLAT_HALF, TRI_FLAT_WIDTHS };

typedef struct tri_flat {
    tri_flat_parameter *parameters; // indexed as the graph's parameters
    // One for each block, in the order of the blocks; then one for each shared parameter.
    tri_flat_unit *units;
    int parameter_count, unit_count, block_count;
    // The units that block b reads (a unit: the parameters of one block, or a shared one), its own
    // first: from block_units[first_unit[b]] to before block_units[first_unit[b + 1]]. A block that
    // shares no parameter reads only its own unit.
    int *first_unit, *block_units;
    int shards;
    tri_dtype half_dtype; // BF16 or F16; F32 where no bucket is in a half type
    // How many elements this rank's buffers have. own_…: if they hold only this rank's shards;
    // the others: if they hold whole buckets. The strategy decides which of the two is allocated.
    int64_t elements[TRI_FLAT_WIDTHS], own_elements[TRI_FLAT_WIDTHS];
    int64_t gradient_elements, gradient_own_elements, state_elements;
} tri_flat;

typedef struct tri_flat_request {
    const tri_graph *graph; // the graph, after the layout pass
    // Graphs that no pass has changed (tri_plan.plain_graphs): a parameter that several blocks read
    // in any of them is shared. NULL: only `graph` counts.
    const tri_graph *const *plain_graphs;
    const bool *blocks_here; // blocks_here[b]: this rank computes block b
    int shards;
    bool is_chunked; // shards are multiples of TRI_FLAT_CHUNK elements
    bool trains;     // false: nothing is trained, so there are no gradients and no states
    // In memory, each parameter and each shard starts at a multiple of this many bytes, whether the
    // buffer is F32 or of a half type.
    int64_t alignment;
} tri_flat_request;

tri_flat tri_flat_make(tri_arena *arena, const tri_flat_request *request);
// Writes the units (parameters that are gathered together) that the block reads, its own unit
// first, into units[0 … most - 1]. Returns how many there are. If there are more than `most`, the
// caller rejects the model.
int tri_flat_block_units(const tri_flat *flat, int block, int *units, int most);

#endif
