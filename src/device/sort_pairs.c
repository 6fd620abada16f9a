// Sorts pairs by their keys: short runs by insertion, then runs by merging, which keeps the order
// of equal keys. Where only a few of many are wanted, they are inserted into a short list.
#include "device/sort_pairs.h"

#include <string.h>

enum { SORT_RUN = 16, SORT_FEW = 32 };

// Inserts a pair behind all `count` pairs that are not larger.
static void insert(tri_sort_pair *sorted, int64_t count, tri_sort_pair pair) {
    int64_t at = count;
    for (; at > 0 && sorted[at - 1].key > pair.key; at--) sorted[at] = sorted[at - 1];
    sorted[at] = pair;
}

static void take_few(tri_sort_pair *pairs, tri_sort_pair *room, int64_t size, int64_t count) {
    int64_t taken = 0;
    for (int64_t i = 0; i < size; i++) {
        if (taken == count && pairs[i].key >= room[count - 1].key) continue;
        if (taken < count) taken++;
        insert(room, taken - 1, pairs[i]);
    }
    memcpy(pairs, room, (size_t)taken * sizeof *pairs);
}

// Joins the sorted pairs [0, middle) and [middle, size).
static void merge(const tri_sort_pair *from, int64_t middle, int64_t size, tri_sort_pair *to) {
    int64_t a = 0, b = middle;
    for (int64_t i = 0; i < size; i++)
        to[i] = b == size || (a < middle && from[a].key <= from[b].key) ? from[a++] : from[b++];
}

void tri_sort_pairs(tri_sort_pair *pairs, tri_sort_pair *room, int64_t size, int64_t count) {
    if (count == 0) return;
    if (count <= SORT_FEW && count < size / 4) {
        take_few(pairs, room, size, count);
        return;
    }
    for (int64_t first = 0; first < size; first += SORT_RUN)
        for (int64_t i = 1; i < SORT_RUN && first + i < size; i++)
            insert(pairs + first, i, pairs[first + i]);
    tri_sort_pair *from = pairs, *to = room;
    for (int64_t run = SORT_RUN; run < size; run *= 2) {
        for (int64_t first = 0; first < size; first += 2 * run) {
            int64_t both = size - first < 2 * run ? size - first : 2 * run;
            merge(from + first, both < run ? both : run, both, to + first);
        }
        tri_sort_pair *other = from;
        from = to;
        to = other;
    }
    if (from != pairs) memcpy(pairs, from, (size_t)size * sizeof *pairs);
}
