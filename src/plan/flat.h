// Where parameters lie: each block's in one stretch of one flat buffer, trained ones first,
// statistics after them. Gradients have the same places, optimizer states those of the trained
// part.
#ifndef TRIREME_PLAN_FLAT_H
#define TRIREME_PLAN_FLAT_H

#include "graph/graph.h"

enum { TRI_FLAT_ALIGNMENT = 16 }; // elements: 64 bytes of F32

typedef struct tri_flat_parameter {
    int64_t offset;   // elements from the start of the whole buffer; -1: not in it (a counter)
    int64_t elements; // in its home order, padding included
} tri_flat_parameter;

typedef struct tri_flat_block {
    int64_t offset, elements; // its stretch
    int64_t trained;          // how many of them, from the start, the optimizer updates
} tri_flat_block;

typedef struct tri_flat {
    tri_flat_parameter *parameters; // by the graph's parameter
    tri_flat_block *blocks;
    int parameter_count, block_count;
    int64_t elements;
} tri_flat;

// From a graph whose layouts are chosen.
tri_flat tri_flat_make(tri_arena *arena, const tri_graph *graph);

#endif
