// A program for tests that compare trained weights (tests/support/products.py). Its arguments are
// pairs of safetensors files with weights: A1 B1 [A2 B2 ...]. For each tensor it prints a line of
// JSON with a matrix: the inner products of all pairs of the differences A1-B1, A2-B2 and so on.
#include "base/arena.h"
#include "checkpoint/convert.h"
#include "checkpoint/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PAIRS = 24, BLOCK = 4096 }; // the most pairs of files; how many elements are read at once

typedef struct products {
    tri_arena *arena;
    int pairs;
    checkpoint_weights sets[PAIRS][2];
    double difference[PAIRS][BLOCK];
    double sums[PAIRS][PAIRS];
    double size; // sum of the squares of the current tensor's elements in the file B1
} products;

static tri_status read_block(const checkpoint_weights *set, const tri_safetensors_entry *like,
                             int64_t first, int64_t count, double *to) {
    static char raw[BLOCK * 8];
    int i = checkpoint_weights_find(set, like->name);
    if (i < 0) return TRI_FAIL(TRI_NOT_FOUND, "%s has no tensor %s", set->path, like->name);
    if (!tri_shape_equal(&set->entries[i].shape, &like->shape))
        return TRI_FAIL(TRI_MISMATCH, "%s: %s has another shape", set->path, like->name);
    if (!checkpoint_has_f64(set->entries[i].dtype))
        return TRI_FAIL(TRI_UNSUPPORTED, "%s: %s is of another type", set->path, like->name);
    TRI_TRY(checkpoint_weights_read(set, i, first, count, raw));
    checkpoint_to_f64(set->entries[i].dtype, raw, count, to);
    for (int64_t k = 0; k < count; k++)
        if (!isfinite(to[k]))
            return TRI_FAIL(TRI_NOT_FINITE, "%s: %s is not finite", set->path, like->name);
    return TRI_OK;
}

static void add_block(products *p, int64_t count) {
    for (int i = 0; i < p->pairs; i++)
        for (int j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t k = 0; k < count; k++) sum += p->difference[i][k] * p->difference[j][k];
            p->sums[i][j] += sum;
            if (i != j) p->sums[j][i] += sum;
        }
}

static tri_status sum(products *p, const tri_safetensors_entry *entry) {
    static double other[BLOCK];
    int64_t total = tri_shape_count(&entry->shape);
    memset(p->sums, 0, sizeof p->sums);
    p->size = 0;
    for (int64_t done = 0; done < total; done += BLOCK) {
        int64_t count = total - done < BLOCK ? total - done : BLOCK;
        for (int i = 0; i < p->pairs; i++) {
            TRI_TRY(read_block(&p->sets[i][0], entry, done, count, p->difference[i]));
            TRI_TRY(read_block(&p->sets[i][1], entry, done, count, other));
            for (int64_t k = 0; k < count; k++) p->difference[i][k] -= other[k];
            for (int64_t k = 0; i == 0 && k < count; k++) p->size += other[k] * other[k];
        }
        add_block(p, count);
    }
    return TRI_OK;
}

static void print(const products *p, const char *name) {
    printf("{\"name\": \"%s\", \"size\": %.17g, \"products\": [", name, p->size);
    for (int i = 0; i < p->pairs; i++)
        for (int j = 0; j < p->pairs; j++)
            printf("%s%.17g%s", j ? ", " : "[", p->sums[i][j],
                   j + 1 < p->pairs ? "" : (i + 1 < p->pairs ? "], " : "]"));
    printf("]}\n");
}

static tri_status run(products *p, char **paths) {
    const checkpoint_weights *first = &p->sets[0][0];
    for (int i = 0; i < 2 * p->pairs; i++) {
        checkpoint_weights *set = &p->sets[i / 2][i % 2];
        TRI_TRY(checkpoint_weights_open_file(p->arena, paths[i], set));
        if (set->count != first->count)
            return TRI_FAIL(TRI_MISMATCH, "%s has %d tensors, not %d", paths[i], set->count,
                            first->count);
    }
    for (int i = 0; i < first->count; i++) {
        TRI_TRY(sum(p, &first->entries[i]));
        print(p, first->entries[i].name);
    }
    return TRI_OK;
}

int main(int argc, char **argv) {
    static products p;
    p.pairs = (argc - 1) / 2;
    if (argc < 3 || argc % 2 == 0 || p.pairs > PAIRS) {
        fprintf(stderr, "usage: A1 B1 [A2 B2 ...]\n");
        return 2;
    }
    p.arena = tri_arena_create(NULL, "products");
    tri_status status = run(&p, argv + 1);
    if (status) fprintf(stderr, "%s\n", tri_error_message());
    for (int i = 0; i < p.pairs; i++)
        for (int side = 0; side < 2; side++) checkpoint_weights_close(&p.sets[i][side]);
    tri_arena_destroy(p.arena);
    return status ? 1 : 0;
}
