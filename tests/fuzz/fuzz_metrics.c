// Reads arbitrary bytes as the metrics.jsonl of a run, at once and in two parts.
#include "views/run.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_curves(const views_run *run) {
    for (int i = 0; i < run->curve_count; i++) {
        const views_curve *c = &run->curves[i];
        if (views_curve_find(run, c->name) != c) abort();
        (void)views_curve_best(c);
        for (int p = 0; p < c->count; p++) {
            if (c->points[p].step < 0) abort();
            if (p > 0 && c->points[p].step <= c->points[p - 1].step) abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tri_arena *arena = tri_arena_create(NULL, "input");
    const char *text = (const char *)data;
    views_run *whole = views_run_create(arena, "runs/a");
    views_run *parts = views_run_create(arena, "runs/a");
    size_t taken, first = size / 2, rest;
    bool is_accepted = views_run_take(whole, text, size, &taken) == TRI_OK;
    if (is_accepted) {
        check_curves(whole);
        // The same lines, read while they are written, give the same run.
        if (views_run_take(parts, text, first, &first) != TRI_OK) abort();
        if (views_run_take(parts, text + first, size - first, &rest) != TRI_OK) abort();
        check_curves(parts);
        if (first + rest != taken || parts->line_count != whole->line_count) abort();
        if (parts->damaged_lines != whole->damaged_lines) abort();
    }
    tri_arena_destroy(arena);
    return 0;
}
