// Assigns every parameter to a unit (what is gathered and reduced together) and to one of its
// buckets (contiguous ranges of parameters that are handled alike), and every bucket to its offsets
// in the flat buffers, where buckets lie one after the other. Read next: step.c.
#include "plan/flat.h"

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

// Reserves `count` elements at the end of a buffer, whose end is *end, and returns their offset.
static int64_t reserve(int64_t *end, int64_t count) {
    *end += count;
    return *end - count;
}

static bool is_half(const tri_graph *g, const tri_parameter_info *p) {
    return tri_value_get(g, p->value)->dtype != p->dtype;
}

static tri_bucket_kind bucket_of(const tri_graph *g, const tri_parameter_info *p) {
    if (tri_role_is_average(p->role)) return TRI_BUCKET_STATISTIC;
    if (p->role != TRI_ROLE_TRAINED)
        return is_half(g, p) ? TRI_BUCKET_FROZEN_HALF : TRI_BUCKET_FROZEN;
    if (p->slice.count) return is_half(g, p) ? TRI_BUCKET_SLICED_HALF : TRI_BUCKET_SLICED;
    if (p->has_partial_gradient)
        return is_half(g, p) ? TRI_BUCKET_PARTIAL_HALF : TRI_BUCKET_PARTIAL;
    return is_half(g, p) ? TRI_BUCKET_TRAINED_HALF : TRI_BUCKET_TRAINED;
}

// A block that reads a parameter, as an entry of a linked list: each parameter has a list of its
// readers, in the order in which they first read it. A parameter with one reader goes into that
// block's unit; a parameter with several gets a unit of its own.
typedef struct reader {
    int block, next; // the block, and the parameter's next reader as index + 1; 0: it is the last
} reader;

typedef struct readers {
    int *first, *last; // by parameter: its first and its last reader, as index + 1; 0: none
    reader *items;
    int count, capacity;
} readers;

static void add_reader(tri_arena *arena, readers *r, int parameter, int block) {
    for (int i = r->first[parameter]; i > 0; i = r->items[i - 1].next)
        if (r->items[i - 1].block == block) return;
    TRI_PUSH(arena, r->items, r->count, r->capacity) = (reader){.block = block};
    if (r->last[parameter])
        r->items[r->last[parameter] - 1].next = r->count;
    else
        r->first[parameter] = r->count;
    r->last[parameter] = r->count;
}

static void add_readers(tri_arena *arena, readers *r, const tri_graph *g) {
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        for (int k = 0; k < node->input_count; k++) {
            const tri_value_info *info = tri_value_get(g, node->inputs[k]);
            if (info->kind == TRI_VALUE_PARAMETER) add_reader(arena, r, info->index, node->block);
        }
    }
}

// A pass may have removed nodes whose outputs nothing needs in training, but in evaluation, or on
// ranks that do not train, they are there. So all graphs count: every rank has to find the same
// readers, and no program may read a parameter that is not gathered for its block.
static readers find_readers(tri_arena *arena, const tri_flat_request *request) {
    const tri_graph *g = request->graph;
    readers r = {.first = TRI_NEW_ARRAY(arena, int, g->parameter_count),
                 .last = TRI_NEW_ARRAY(arena, int, g->parameter_count)};
    add_readers(arena, &r, g);
    for (int i = 0; i < 2 && request->plain_graphs; i++)
        if (request->plain_graphs[i]) add_readers(arena, &r, request->plain_graphs[i]);
    return r;
}

static void append(tri_flat *flat, const tri_graph *g, int64_t alignment, int parameter) {
    const tri_parameter_info *info = &g->parameters[parameter];
    tri_flat_parameter *p = &flat->parameters[parameter];
    p->bucket = bucket_of(g, info);
    tri_flat_bucket *bucket = &flat->units[p->unit].buckets[p->bucket];
    p->offset = bucket->elements;
    p->elements = tri_layout_elements(&info->layout, &info->shape);
    bucket->elements += round_up(p->elements, alignment);
    if (is_half(g, info)) flat->half_dtype = tri_value_get(g, info->value)->dtype;
}

// Lists the units (parameters that are gathered together) that each block reads: its own first,
// then those of the shared parameters that it reads, in the order of the parameters. All ranks need
// the same order, because they gather and reduce units in it.
static void list_units(tri_arena *arena, const readers *r, tri_flat *flat) {
    int blocks = flat->block_count, total = blocks;
    int *next = TRI_NEW_ARRAY(arena, int, blocks);
    flat->first_unit = TRI_NEW_ARRAY(arena, int, blocks + 1);
    // In turn 0 the loop counts the entries of block_units, in turn 1 it fills them in.
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < flat->parameter_count; i++) {
            int unit = flat->parameters[i].unit;
            for (int k = r->first[i]; k > 0 && unit >= 0; k = r->items[k - 1].next) {
                int block = r->items[k - 1].block;
                if (unit == block) continue;
                if (turn == 0)
                    next[block]++, total++;
                else
                    flat->block_units[next[block]++] = unit;
            }
        }
        if (turn == 1) break;
        flat->block_units = TRI_NEW_ARRAY(arena, int, total);
        for (int b = 0, at = 0; b < blocks; b++) {
            int shared = next[b];
            flat->first_unit[b] = at;
            flat->block_units[at] = b;
            next[b] = at + 1;
            at += shared + 1;
            flat->first_unit[b + 1] = at;
        }
    }
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
    int64_t alignment = request->alignment / 2; // in elements of a half type, of 2 bytes each
    if (alignment < TRI_FLAT_ALIGNMENT) alignment = TRI_FLAT_ALIGNMENT;
    readers r = find_readers(arena, request);
    int last_group = 0;
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
        for (int k = r.first[i]; k > 0; k = r.items[k - 1].next) {
            if (reading++ == 0) unit = r.items[k - 1].block;
            here = here || request->blocks_here[r.items[k - 1].block];
        }
        if (reading > 1) {
            unit = flat.unit_count++;
            flat.units[unit] = (tri_flat_unit){.name = p->name, .here = here};
        }
        flat.parameters[i].unit = unit;
        if (p->group > last_group) last_group = p->group;
    }
    // Group by group, so that one kernel updates all parameters of a group in a bucket.
    for (int group = 0; group <= last_group; group++)
        for (int i = 0; i < count; i++)
            if (flat.parameters[i].unit >= 0 && g->parameters[i].group == group)
                append(&flat, g, alignment, i);
    list_units(arena, &r, &flat);
    int64_t grain = request->is_chunked ? TRI_FLAT_CHUNK : alignment;
    for (int u = 0; u < flat.unit_count; u++)
        for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
            tri_flat_bucket *bucket = &flat.units[u].buckets[k];
            bucket->elements = round_up(bucket->elements, grain * flat.shards);
            bucket->own = bucket->elements / flat.shards;
            if (!flat.units[u].here) continue;
            int width = tri_bucket_is_half((tri_bucket_kind)k) ? TRI_FLAT_HALF : TRI_FLAT_STORED;
            bucket->offset = reserve(&flat.elements[width], bucket->elements);
            bucket->own_offset = reserve(&flat.own_elements[width], bucket->own);
            if (!request->trains) continue;
            if (tri_bucket_has_gradients((tri_bucket_kind)k)) {
                bucket->gradient_offset = reserve(&flat.gradient_elements, bucket->elements);
                bucket->gradient_own_offset = reserve(&flat.gradient_own_elements, bucket->own);
            }
            if (tri_bucket_is_trained((tri_bucket_kind)k))
                bucket->state_offset = reserve(&flat.state_elements, bucket->own);
        }
    return flat;
}

int tri_flat_block_units(const tri_flat *flat, int block, int *units, int most) {
    int first = flat->first_unit[block], count = flat->first_unit[block + 1] - first;
    for (int i = 0; i < count && i < most; i++) units[i] = flat->block_units[first + i];
    return count;
}
