#include "plan/memory.h"

#include <stdlib.h>

static int by_size(const void *left, const void *right) {
    const tri_interval *a = *(const tri_interval *const *)left;
    const tri_interval *b = *(const tri_interval *const *)right;
    if (a->size_bytes != b->size_bytes) return a->size_bytes < b->size_bytes ? 1 : -1;
    return a < b ? -1 : 1;
}

static int by_offset(const void *left, const void *right) {
    const tri_interval *a = *(const tri_interval *const *)left;
    const tri_interval *b = *(const tri_interval *const *)right;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    return a < b ? -1 : 1;
}

static int64_t round_up(int64_t size) {
    return (size + TRI_MEMORY_ALIGNMENT - 1) / TRI_MEMORY_ALIGNMENT * TRI_MEMORY_ALIGNMENT;
}

int64_t tri_memory_place(tri_arena *scratch, tri_interval *intervals, int count) {
    tri_interval **order = TRI_NEW_ARRAY(scratch, tri_interval *, count);
    tri_interval **near = TRI_NEW_ARRAY(scratch, tri_interval *, count);
    int64_t end = 0;
    for (int i = 0; i < count; i++) order[i] = &intervals[i];
    qsort(order, (size_t)count, sizeof *order, by_size);
    for (int i = 0; i < count; i++) {
        tri_interval *item = order[i];
        int neighbours = 0;
        for (int k = 0; k < i; k++)
            if (order[k]->first <= item->last && item->first <= order[k]->last)
                near[neighbours++] = order[k];
        qsort(near, (size_t)neighbours, sizeof *near, by_offset);
        int64_t at = 0;
        for (int k = 0; k < neighbours; k++) {
            if (near[k]->offset >= at + item->size_bytes) break;
            int64_t after = round_up(near[k]->offset + near[k]->size_bytes);
            if (after > at) at = after;
        }
        item->offset = at;
        if (at + item->size_bytes > end) end = at + item->size_bytes;
    }
    return round_up(end);
}
