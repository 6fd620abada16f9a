// Sums up what ranks have spent their time in.
#include "observe/actions.h"

#include "base/ledger.h"
#include "base/limits.h"

#include <stdlib.h>

typedef struct action_time {
    const char *name;
    int64_t count, busy_ns;
} action_time;

static int compare_times(const void *a, const void *b) {
    const action_time *x = a, *y = b;
    return (x->busy_ns < y->busy_ns) - (x->busy_ns > y->busy_ns);
}

static void add_rank(tri_arena *arena, tri_tree *list, int rank, const tri_ledger_ring *ring) {
    action_time times[TRI_MAX_LEDGER_KINDS];
    int kinds = atomic_load(&ring->kinds), count = 0;
    for (int i = 0; i < kinds && i < TRI_MAX_LEDGER_KINDS; i++) {
        action_time time = {.name = ring->kind_names[i],
                            .count = atomic_load(&ring->totals[i].count),
                            .busy_ns = atomic_load(&ring->totals[i].busy_ns)};
        if (time.count > 0 && time.busy_ns > 0) times[count++] = time;
    }
    if (count > 0) qsort(times, (size_t)count, sizeof *times, compare_times);
    for (int i = 0; i < count; i++) {
        tri_tree *map = tri_tree_map(arena);
        tri_tree_put_int(arena, map, "rank", rank);
        tri_tree_put_string(arena, map, "action", times[i].name);
        tri_tree_put_int(arena, map, "count", times[i].count);
        tri_tree_put_digits(arena, map, "seconds", 1e-9 * (double)times[i].busy_ns, 6);
        tri_tree_append(arena, list, map);
    }
}

tri_tree *tri_actions_tree(tri_arena *arena, tri_comm *comm) {
    tri_tree *list = tri_tree_list(arena);
    for (int r = 0; r < comm->size && r < TRI_MAX_SHOWN_RANKS; r++) {
        const tri_ledger_ring *ring = tri_comm_ledger_of(comm, r);
        if (ring) add_rank(arena, list, r, ring);
    }
    return list;
}
