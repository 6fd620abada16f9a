// Prints metrics that have a number for each class, and confusion matrices, in few lines.
#include "cli/class_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 20, MOST_MISTAKES = 10, LEAST_WIDTH = 8 };

// A class, or a cell of a matrix, and the figure by which it is sorted.
typedef struct place {
    int64_t at;
    double figure;
} place;

static int by_figure(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->figure != y->figure) return x->figure < y->figure ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_place(const void *a, const void *b) {
    const place *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static const char *class_name(tri_arena *arena, const tri_metric_value *m, int64_t k) {
    return k < m->names.count ? m->names.items[k] : tri_arena_printf(arena, "%lld", (long long)k);
}

static bool is_list(const tri_metric_value *m, int64_t classes) {
    return m->figures && m->shape.rank == 1 && m->shape.dims[0] == classes;
}

static void print_rows(tri_arena *arena, const tri_train_result *r, const tri_metric_value *first,
                       const place *rows, int64_t count) {
    int64_t classes = first->shape.dims[0];
    size_t width = LEAST_WIDTH;
    for (int64_t i = 0; i < count; i++) {
        size_t bytes = strlen(class_name(arena, first, rows[i].at));
        if (bytes > width) width = bytes;
    }
    printf("%-*s", (int)width, "class");
    for (int i = 0; i < r->val_count; i++)
        if (is_list(&r->val[i], classes)) printf("  %*s", LEAST_WIDTH, r->val[i].name);
    for (int64_t row = 0; row < count; row++) {
        printf("\n%-*s", (int)width, class_name(arena, first, rows[row].at));
        for (int i = 0; i < r->val_count; i++) {
            const tri_metric_value *m = &r->val[i];
            size_t bytes = is_list(m, classes) ? strlen(m->name) : 0;
            int cell = (int)(bytes < LEAST_WIDTH ? LEAST_WIDTH : bytes);
            if (bytes > 0) printf("  %*.4g", cell, m->figures[rows[row].at]);
        }
    }
    printf("\n");
}

static void print_lists(tri_arena *arena, const tri_train_result *r,
                        const tri_metric_value *first) {
    const tri_metric_value *by = first;
    int64_t classes = first->shape.dims[0], count = classes < MOST_ROWS ? classes : MOST_ROWS;
    for (int i = 0; i < r->val_count; i++)
        if (is_list(&r->val[i], classes) && !r->val[i].are_counts) by = &r->val[i];
    place *rows = TRI_NEW_ARRAY(arena, place, classes);
    for (int64_t k = 0; k < classes; k++) rows[k] = (place){k, by->figures[k]};
    qsort(rows, (size_t)classes, sizeof *rows, by_figure);
    if (count == classes) qsort(rows, (size_t)classes, sizeof *rows, by_place);
    print_rows(arena, r, first, rows, count);
    if (count < classes)
        printf("these %lld of %lld classes have the lowest %s; --json has all\n", (long long)count,
               (long long)classes, by->name);
}

static void print_mistakes(tri_arena *arena, const tri_metric_value *m) {
    int64_t side = m->shape.dims[0], count = 0, most = MOST_MISTAKES;
    place found[MOST_MISTAKES + 1];
    for (int64_t at = 0; at < side * side; at++) {
        if (at / side == at % side || !(m->figures[at] > 0)) continue;
        found[count++] = (place){at, -m->figures[at]};
        qsort(found, (size_t)count, sizeof *found, by_figure);
        if (count > most) count = most;
    }
    printf("%s: %s\n", m->name,
           count > 0 ? "the most frequent mistakes; --json has all of it" : "no mistakes");
    for (int64_t i = 0; i < count; i++)
        printf("  %s is taken for %s: %.0f\n", class_name(arena, m, found[i].at / side),
               class_name(arena, m, found[i].at % side), -found[i].figure);
}

void cli_print_classes(tri_arena *arena, const tri_train_result *result) {
    bool has_lists = false;
    for (int i = 0; i < result->val_count; i++) {
        const tri_metric_value *m = &result->val[i];
        if (!m->figures || m->shape.dims[0] == 0) continue;
        if (m->shape.rank == 1 && !has_lists) print_lists(arena, result, m);
        has_lists = has_lists || m->shape.rank == 1;
        if (m->shape.rank == 2) print_mistakes(arena, m);
    }
}
