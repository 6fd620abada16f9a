// Cuts a model's blocks into stages of a pipeline: by cost, so that all ranks have about as much to
// do, or by the names that the recipe gives.
#include "plan/stages.h"

#include "base/quantity.h"

#include <string.h>

// Tries to cut the blocks into exactly this number of stages, none of which costs more than
// `limit`, and sets stage_of. False: that is not possible. A block goes to the earliest stage with
// room, but one block is left for each later stage, because no stage may be empty.
static bool fits(const double *costs, int blocks, int stages, double limit, int *stage_of) {
    int stage = 0;
    double sum = 0;
    for (int b = 0; b < blocks; b++) {
        if (costs[b] > limit) return false;
        // The later stages still need one block each.
        bool needed_later = blocks - b < stages - stage;
        bool has_block = b > 0 && stage_of[b - 1] == stage;
        if (has_block && (sum + costs[b] > limit || needed_later)) {
            if (++stage == stages) return false;
            sum = 0;
        }
        sum += costs[b];
        stage_of[b] = stage;
    }
    return stage == stages - 1;
}

static tri_status check_count(int blocks, int stages) {
    if (stages <= blocks) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "strategy.mesh.pipeline: %d stages, but the model has %s; at most %d are "
                    "possible",
                    stages, tri_counted(blocks, "block"), blocks);
}

tri_status tri_stages_cut(const double *costs, int blocks, int stages, int *stage_of) {
    TRI_TRY(check_count(blocks, stages));
    // Finds by bisection the lowest limit on the cost of a stage with which the blocks fit into the
    // stages. It ends when no floating-point number lies between `low`, which is too low, and
    // `high`, with which they fit.
    double low = -1, high = 0;
    for (int b = 0; b < blocks; b++) high += costs[b];
    for (;;) {
        double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high) break;
        *(fits(costs, blocks, stages, middle, stage_of) ? &high : &low) = middle;
    }
    bool found = fits(costs, blocks, stages, high, stage_of);
    TRI_ASSERT(found);
    return TRI_OK;
}

tri_status tri_stages_named(const tri_graph *graph, const char *const *names, int count, int stages,
                            int *stage_of) {
    TRI_TRY(check_count(graph->block_count, stages));
    if (count != stages - 1)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "strategy.stages: names %s, but %s need %d (the first stage "
                        "begins with the first block)",
                        tri_counted(count, "block"), tri_counted(stages, "stage"), stages - 1);
    int block = 0;
    for (int s = 0; s < stages; s++) {
        int end = graph->block_count;
        if (s < count) {
            end = 0;
            while (end < graph->block_count && strcmp(graph->blocks[end], names[s]) != 0) end++;
            if (end == graph->block_count || end <= block)
                return TRI_FAIL(
                    TRI_BAD_INPUT, "strategy.stages: '%s' is %s; the blocks are %s to %s", names[s],
                    end <= block ? "not behind the one before" : "no block of the model",
                    graph->blocks[0], graph->blocks[graph->block_count - 1]);
        }
        for (; block < end; block++) stage_of[block] = s;
    }
    return TRI_OK;
}
