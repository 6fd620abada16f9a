// Compares files by device and number of the file, which all links and paths to one share.
#include "data/repeated.h"

#include "base/quantity.h"
#include "data/kind.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct item {
    dev_t device;
    ino_t inode;
    int set, place; // in the order of the recipe
    const char *path;
} item;

static int compare(const void *a, const void *b) {
    const item *x = a, *y = b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode) return x->inode < y->inode ? -1 : 1;
    return x->place - y->place;
}

static bool is_same(const item *a, const item *b) {
    return a->device == b->device && a->inode == b->inode;
}

static int list_files(tri_arena *arena, const tri_dataset *const *sets, int count, item **out) {
    item *items = NULL;
    int found = 0, capacity = 0;
    for (int s = 0; s < count; s++) {
        const tri_data_facts *facts = &sets[s]->facts;
        bool is_part = s > 0 && sets[s]->file_split == sets[0]->file_split;
        for (int i = 0; i < facts->source_count && !is_part; i++) {
            struct stat info;
            if (stat(facts->sources[i], &info) != 0) continue;
            TRI_PUSH(arena, items, found, capacity) =
                (item){info.st_dev, info.st_ino, s, found, facts->sources[i]};
        }
    }
    *out = items;
    return found;
}

const char *tri_dataset_find_repeated(tri_arena *arena, const tri_dataset *const *sets, int count) {
    item *items;
    // Of both sorts of pairs, within a split and of two splits, the one that comes first in the
    // recipe, and how many there are.
    const item *firsts[2] = {NULL}, *agains[2] = {NULL};
    int found = list_files(arena, sets, count, &items), repeated[2] = {0};
    if (found < 2) return NULL;
    qsort(items, (size_t)found, sizeof *items, compare);
    for (int i = 1; i < found; i++) {
        const item *a = &items[i - 1], *b = &items[i];
        bool is_mixture = a->set == b->set && !strcmp(sets[a->set]->options->name, "mixture");
        if (!is_same(a, b) || is_mixture) continue;
        int sort = a->set != b->set;
        repeated[sort]++;
        if (agains[sort] && agains[sort]->place < b->place) continue;
        firsts[sort] = a;
        agains[sort] = b;
    }
    int sort = agains[1] ? 1 : 0; // a file of two splits is worse
    const item *first = firsts[sort], *again = agains[sort];
    if (!again) return NULL;
    const char *others =
        repeated[sort] > 1
            ? tri_arena_printf(arena, ", and %s more", tri_counted(repeated[sort] - 1, "file"))
            : "";
    const char *key = tri_data_split_key(sets[first->set]->split);
    if (first->set == again->set)
        return tri_arena_printf(arena,
                                "data.%s has %s twice%s: an epoch has these samples more than once",
                                key, again->path, others);
    return tri_arena_printf(arena,
                            "data.%s and data.%s both have %s%s: what is measured there is no "
                            "measure for other data",
                            key, tri_data_split_key(sets[again->set]->split), again->path, others);
}
