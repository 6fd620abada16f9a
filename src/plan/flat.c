// Assigns every parameter to a unit and a bucket, and every bucket its offsets. Next: step.c.
#include "plan/flat.h"

#include <string.h>

static const struct {
    bool trained, half;
    tri_placement placement;
} bucket_rows[TRI_BUCKET_COUNT] = {
#define X(bucket, trained, half, placement) [TRI_BUCKET_##bucket] = {trained, half, placement},
    TRI_BUCKET_LIST(X)
#undef X
};

bool tri_bucket_is_trained(tri_bucket_kind bucket) { return bucket_rows[bucket].trained; }
bool tri_bucket_is_half(tri_bucket_kind bucket) { return bucket_rows[bucket].half; }
tri_placement tri_bucket_placement(tri_bucket_kind bucket) { return bucket_rows[bucket].placement; }
bool tri_bucket_has_gradients(tri_bucket_kind bucket) {
    return bucket_rows[bucket].trained || bucket == TRI_BUCKET_STATISTIC;
}

static int64_t round_up(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

// Appends `count` elements to a buffer and returns their offset.
static int64_t take(int64_t *end, int64_t count) {
    *end += count;
    return *end - count;
}

static bool is_half(const tri_graph *g, const tri_parameter_info *p) {
    return tri_value_get(g, p->value)->dtype != p->dtype;
}

static tri_bucket_kind bucket_of(const tri_graph *g, const tri_parameter_info *p) {
    if (p->role == TRI_ROLE_STATISTIC) return TRI_BUCKET_STATISTIC;
    if (p->role == TRI_ROLE_FROZEN)
        return is_half(g, p) ? TRI_BUCKET_FROZEN_HALF : TRI_BUCKET_FROZEN;
    if (p->slice.count) return is_half(g, p) ? TRI_BUCKET_SLICED_HALF : TRI_BUCKET_SLICED;
    if (p->has_partial_gradient)
        return is_half(g, p) ? TRI_BUCKET_PARTIAL_HALF : TRI_BUCKET_PARTIAL;
    return is_half(g, p) ? TRI_BUCKET_TRAINED_HALF : TRI_BUCKET_TRAINED;
}

// readers[parameter * blocks + block]: whether the block reads it.
static bool *find_readers(tri_arena *arena, const tri_graph *g) {
    bool *readers = TRI_NEW_ARRAY(arena, bool, g->parameter_count * g->block_count);
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        for (int k = 0; k < node->input_count; k++) {
            const tri_value_info *info = tri_value_get(g, node->inputs[k]);
            if (info->kind != TRI_VALUE_PARAMETER) continue;
            readers[info->index * g->block_count + node->block] = true;
        }
    }
    return readers;
}

static void append(tri_flat *flat, const tri_graph *g, int parameter, int unit) {
    const tri_parameter_info *info = &g->parameters[parameter];
    tri_flat_parameter *p = &flat->parameters[parameter];
    p->unit = unit;
    p->bucket = bucket_of(g, info);
    tri_flat_bucket *bucket = &flat->units[unit].buckets[p->bucket];
    p->offset = bucket->elements;
    p->elements = tri_layout_elements(&info->layout, &info->shape);
    bucket->elements += round_up(p->elements, TRI_FLAT_ALIGNMENT);
    if (is_half(g, info)) flat->half_dtype = tri_value_get(g, info->value)->dtype;
}

tri_flat tri_flat_make(tri_arena *arena, const tri_flat_request *request) {
    const tri_graph *g = request->graph;
    int blocks = g->block_count, count = g->parameter_count;
    tri_flat flat = {.parameters = TRI_NEW_ARRAY(arena, tri_flat_parameter, count),
                     .units = TRI_NEW_ARRAY(arena, tri_flat_unit, blocks + count),
                     .parameter_count = count,
                     .unit_count = blocks,
                     .block_count = blocks,
                     .shards = request->shards,
                     .half_dtype = TRI_F32};
    bool *readers = find_readers(arena, g);
    for (int b = 0; b < blocks; b++) {
        flat.units[b].name = g->blocks[b];
        flat.units[b].here = request->blocks_here[b];
    }
    for (int i = 0; i < count; i++) {
        const tri_parameter_info *p = &g->parameters[i];
        flat.parameters[i].unit = -1;
        if (p->role == TRI_ROLE_COUNTER) continue;
        int unit = p->block, reading = 0;
        bool here = false;
        for (int b = 0; b < blocks; b++) {
            if (!readers[i * blocks + b]) continue;
            reading++;
            here = here || request->blocks_here[b];
        }
        if (reading > 1) {
            unit = flat.unit_count++;
            flat.units[unit] = (tri_flat_unit){.name = p->name, .here = here};
        }
        append(&flat, g, i, unit);
    }
    int64_t grain = request->is_chunked ? TRI_FLAT_CHUNK : TRI_FLAT_ALIGNMENT;
    for (int u = 0; u < flat.unit_count; u++)
        for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
            tri_flat_bucket *bucket = &flat.units[u].buckets[k];
            bucket->elements = round_up(bucket->elements, grain * flat.shards);
            bucket->own = bucket->elements / flat.shards;
            if (!flat.units[u].here) continue;
            int width = tri_bucket_is_half((tri_bucket_kind)k) ? TRI_FLAT_HALF : TRI_FLAT_STORED;
            bucket->offset = take(&flat.elements[width], bucket->elements);
            bucket->own_offset = take(&flat.own_elements[width], bucket->own);
            if (tri_bucket_has_gradients((tri_bucket_kind)k)) {
                bucket->gradient_offset = take(&flat.gradient_elements, bucket->elements);
                bucket->gradient_own_offset = take(&flat.gradient_own_elements, bucket->own);
            }
            if (tri_bucket_is_trained((tri_bucket_kind)k))
                bucket->state_offset = take(&flat.state_elements, bucket->own);
        }
    return flat;
}

int tri_flat_block_units(const tri_flat *flat, const tri_graph *graph, int block, int *units,
                         int most) {
    tri_arena *arena = tri_arena_create(NULL, "units");
    bool *known = TRI_NEW_ARRAY(arena, bool, flat->unit_count);
    int found = 0;
    units[found++] = block;
    known[block] = true;
    for (int i = 0; i < graph->node_count; i++) {
        const tri_node *node = &graph->nodes[i];
        if (node->block != block) continue;
        for (int k = 0; k < node->input_count; k++) {
            const tri_value_info *info = tri_value_get(graph, node->inputs[k]);
            if (info->kind != TRI_VALUE_PARAMETER) continue;
            int unit = flat->parameters[info->index].unit;
            if (unit < 0 || known[unit]) continue;
            known[unit] = true;
            if (found < most) units[found] = unit;
            found++;
        }
    }
    tri_arena_destroy(arena);
    return found;
}
