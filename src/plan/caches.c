// Places the caches, the values that live from call to call, in memory of their own. All programs
// of a plan have the same ones, so that what one has appended the others read.
#include "plan/memory.h"
#include "plan/plan.h"

#include <string.h>

static int64_t most_rows(const tri_plan *plan) {
    int64_t most = 0;
    for (int i = 0; i < TRI_STEP_SHAPE_COUNT; i++) {
        int64_t rows = 0;
        for (int k = 0; k < plan->steps[i].rounds; k++) rows += plan->steps[i].round_items[k].size;
        if (rows > most) most = rows;
    }
    return most;
}

static tri_status check_alike(const tri_program *a, const tri_program *b) {
    bool alike = a->cache_count == b->cache_count;
    int i = 0;
    for (; alike && i < a->cache_count; i++)
        alike = !strcmp(a->caches[i].name, b->caches[i].name) &&
                a->caches[i].row_bytes == b->caches[i].row_bytes;
    if (alike) return TRI_OK;
    const tri_program *more = a->cache_count > b->cache_count ? a : b;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "the model has another cache %s for another number of tokens: its build "
                    "function must not do that",
                    more->caches[i > 0 ? i - 1 : 0].name);
}

// Stages send each other no caches, and the engine checks the spans before a call.
static tri_status check_uses(const tri_plan *plan, const tri_program *p) {
    const tri_graph *g = p->graph;
    for (int i = 0; i < p->cache_count; i++)
        if (p->caches[i].spans < 0)
            return TRI_FAIL(TRI_BAD_INPUT, "cache %s: its spans must be a field of the data",
                            p->caches[i].name);
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].input_count; k++) {
            tri_location at = p->locations[g->nodes[i].inputs[k].id];
            if (at.kind != TRI_LOCATION_CACHE) continue;
            const tri_program_cache *cache = &p->caches[at.index];
            const int *stages = plan->stages.of_block;
            if (stages[g->nodes[i].block] != stages[cache->block])
                return TRI_FAIL(TRI_BAD_INPUT,
                                "cache %s of block %s is read in block %s, which is another stage "
                                "of the pipeline",
                                cache->name, g->blocks[cache->block], g->blocks[g->nodes[i].block]);
        }
    return TRI_OK;
}

tri_status tri_plan_place_caches(tri_plan *plan) {
    const tri_program *first = plan->programs[0];
    tri_plan_caches *c = &plan->caches;
    for (int i = 0; i < plan->program_count; i++) {
        TRI_TRY(check_alike(first, plan->programs[i]));
        TRI_TRY(check_uses(plan, plan->programs[i]));
    }
    c->rows = most_rows(plan);
    c->offsets = TRI_NEW_ARRAY(plan->arena, int64_t, first->cache_count);
    for (int i = 0; i < first->cache_count; i++) {
        int64_t bytes;
        c->offsets[i] = c->bytes;
        if (!plan->stages.blocks_here[first->caches[i].block]) continue;
        if (__builtin_mul_overflow(c->rows, first->caches[i].row_bytes, &bytes) ||
            bytes > INT64_MAX / 2 - c->bytes)
            return TRI_FAIL(TRI_BAD_INPUT, "cache %s: there is no memory for so many tokens",
                            first->caches[i].name);
        c->bytes += tri_memory_round_up(bytes, plan->device.alignment);
    }
    return TRI_OK;
}
