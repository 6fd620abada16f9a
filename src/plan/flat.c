#include "plan/flat.h"

static int64_t aligned(int64_t elements) {
    return (elements + TRI_FLAT_ALIGNMENT - 1) / TRI_FLAT_ALIGNMENT * TRI_FLAT_ALIGNMENT;
}

static void place_role(tri_flat *flat, const tri_graph *graph, int block, tri_parameter_role role) {
    for (int i = 0; i < graph->parameter_count; i++) {
        const tri_parameter_info *p = &graph->parameters[i];
        if (p->block != block || p->role != role) continue;
        flat->parameters[i].offset = flat->elements;
        flat->parameters[i].elements = tri_layout_elements(&p->layout, &p->shape);
        flat->elements += aligned(flat->parameters[i].elements);
    }
}

tri_flat tri_flat_make(tri_arena *arena, const tri_graph *graph) {
    tri_flat flat = {
        .parameters = TRI_NEW_ARRAY(arena, tri_flat_parameter, graph->parameter_count),
        .blocks = TRI_NEW_ARRAY(arena, tri_flat_block, graph->block_count),
        .parameter_count = graph->parameter_count,
        .block_count = graph->block_count,
    };
    for (int i = 0; i < graph->parameter_count; i++) flat.parameters[i].offset = -1;
    for (int b = 0; b < graph->block_count; b++) {
        tri_flat_block *block = &flat.blocks[b];
        block->offset = flat.elements;
        place_role(&flat, graph, b, TRI_ROLE_TRAINED);
        block->trained = flat.elements - block->offset;
        place_role(&flat, graph, b, TRI_ROLE_STATISTIC);
        block->elements = flat.elements - block->offset;
    }
    return flat;
}
