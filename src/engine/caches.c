// Caches: values that live from call to call, in memory that no step uses for anything else. A row
// is what a cache keeps of one sequence; micro-batch after micro-batch has the next rows.
#include "engine/caches.h"

#include <stdlib.h>

int64_t engine_cache_row(const tri_engine *e, const tri_program *p, int cache, int round) {
    int64_t row = 0;
    for (int i = 0; i < round; i++) row += e->run.step->round_items[i].size;
    return e->plan->caches.offsets[cache] + row * p->caches[cache].row_bytes;
}

tri_status engine_check_spans(const tri_program *p, int input, const int64_t *spans,
                              const tri_step_round *round) {
    int64_t length = INT64_MAX;
    for (int i = 0; i < p->cache_count; i++)
        if (p->caches[i].spans == input && p->caches[i].length < length)
            length = p->caches[i].length;
    if (length == INT64_MAX) return TRI_OK; // no cache reads this input
    for (int64_t n = 0; n < round->size; n++) {
        int64_t first = spans[2 * n], count = spans[2 * n + 1];
        if (first >= 0 && count >= 0 && first <= length && count <= length - first) continue;
        return TRI_FAIL(
            TRI_BAD_INPUT, "sequence %lld: %lld tokens after %lld do not fit into a cache of %lld",
            (long long)(round->first + n), (long long)count, (long long)first, (long long)length);
    }
    return TRI_OK;
}

// Moves the rows of one cache through the host's memory, since a row may be read and written.
static tri_status move_rows(tri_engine *e, char *rows, int64_t bytes, const int64_t *from,
                            int64_t count, char *host) {
    const tri_device_backend *device = e->device->backend;
    tri_ticket ticket = {0};
    for (int64_t i = 0; i < count; i++)
        if (from[i] != i)
            TRI_TRY(device->copy_out(e->queue, host + i * bytes, rows + from[i] * bytes,
                                     (size_t)bytes));
    for (int64_t i = 0; i < count; i++)
        if (from[i] != i)
            TRI_TRY(device->copy_in(e->queue, rows + i * bytes, host + i * bytes, (size_t)bytes));
    TRI_TRY(device->record(e->queue, &ticket));
    return tri_ticket_wait(&ticket);
}

tri_status tri_engine_move_caches(tri_engine *e, const int64_t *from, int64_t rows) {
    const tri_plan *plan = e->plan;
    const tri_program *p = plan->programs[0];
    tri_status status = TRI_OK;
    TRI_ASSERT(rows <= plan->caches.rows && e->flights.count == 0);
    for (int i = 0; i < p->cache_count && status == TRI_OK; i++) {
        int64_t bytes = p->caches[i].row_bytes;
        if (!plan->stages.blocks_here[p->caches[i].block]) continue;
        char *host = malloc((size_t)(rows * bytes));
        status =
            host ? move_rows(e, e->memory.caches + plan->caches.offsets[i], bytes, from, rows, host)
                 : TRI_FAIL(TRI_NO_MEMORY, "no memory for the rows of cache %s", p->caches[i].name);
        free(host);
    }
    return status;
}
