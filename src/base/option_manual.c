// Makes the manual of option tables, whose rows describe the keys of a recipe (base/option.h):
// visits every key that a table allows, including those of nested tables, and prints the keys with
// their defaults and help.
#include "base/option_manual.h"

#include <string.h>

typedef struct walk {
    tri_arena *arena;
    tri_option_visit *visit;
    void *data;
    bool is_element;
} walk;

static void walk_table(const walk *w, const char *prefix, const tri_option_table *table);

static void walk_rows(const walk *w, const char *prefix, const tri_option *rows, int count,
                      const tri_option_variant *variant);

// Visits the kinds of a row, each with its keys. A row has kinds (tri_option.kinds) if the keys
// below it depend on a name that the user chooses. There are two forms:
// - The row is a list, such as data.transform, and each element is of one kind. The key `size` of
//   the kind `random_crop` is shown as data.transform.random_crop.size.
// - The row is TRI_OPTION_IS_REST, as in the section `model`. Its key `name` chooses the kind, and
//   the kind's keys stand beside it: model.name, model.dropout.
static void walk_kinds(const walk *w, const char *prefix, const char *key, const tri_option *row) {
    bool is_rest = row->type == TRI_OPTION_IS_REST;
    walk inner = {w->arena, w->visit, w->data, !is_rest};
    for (const tri_option_table *const *kind = row->kinds; *kind; kind++) {
        const tri_option_table *table = *kind;
        tri_option_variant variant = {table->section, table->rows, table->count, table->help};
        const char *head = is_rest ? tri_arena_printf(w->arena, "%sname", prefix) : key;
        const char *below =
            is_rest ? prefix : tri_arena_printf(w->arena, "%s.%s.", key, table->section);
        w->visit(w->data, &(tri_option_entry){
                              .key = head, .variant = &variant, .is_element = inner.is_element});
        walk_rows(&inner, below, table->rows, table->count, &variant);
    }
}

static void walk_rows(const walk *w, const char *prefix, const tri_option *rows, int count,
                      const tri_option_variant *variant) {
    for (int i = 0; i < count; i++) {
        const tri_option *row = &rows[i];
        bool is_rest = row->type == TRI_OPTION_IS_REST;
        const char *key = tri_arena_printf(w->arena, "%s%s", prefix, is_rest ? "*" : row->key);
        if (row->type == TRI_OPTION_IS_TABLE) {
            walk_table(w, tri_arena_printf(w->arena, "%s.", key), row->table);
            continue;
        }
        bool is_free = is_rest || row->type == TRI_OPTION_IS_STRING ||
                       row->type == TRI_OPTION_IS_TREE || row->type == TRI_OPTION_IS_NAME;
        w->visit(w->data,
                 &(tri_option_entry){key, row, variant,
                                     is_free ? NULL : tri_option_allowed(w->arena, row, NULL),
                                     w->is_element});
        if (row->kinds) walk_kinds(w, prefix, key, row);
    }
}

static void walk_table(const walk *w, const char *prefix, const tri_option_table *table) {
    const tri_option *name = tri_option_row_of_type(table, TRI_OPTION_IS_NAME);
    walk_rows(w, prefix, table->rows, table->count, NULL);
    for (int i = 0; i < table->variant_count; i++) {
        const tri_option_variant *variant = &table->variants[i];
        const char *key = tri_arena_printf(w->arena, "%s%s", prefix, name->key);
        w->visit(w->data, &(tri_option_entry){.key = key, .variant = variant});
        walk_rows(w, prefix, variant->rows, variant->count, variant);
    }
}

void tri_option_walk(const tri_option_table *table, tri_option_visit *visit, void *data) {
    tri_arena *arena = tri_arena_create(NULL, "option help");
    const char *prefix = *table->section ? tri_arena_printf(arena, "%s.", table->section) : "";
    walk_table(&(walk){arena, visit, data, false}, prefix, table);
    tri_arena_destroy(arena);
}

typedef struct printing {
    const tri_option_table *table;
    const char *prefix;
    FILE *out;
    bool any;
} printing;

static void print_entry(void *data, const tri_option_entry *e) {
    printing *p = data;
    if (strncmp(e->key, p->prefix, strlen(p->prefix)) != 0) return;
    p->any = true;
    const char *indent = e->row && e->variant ? "  " : "";
    if (!e->row) {
        fprintf(p->out, "  %s: %s\n      %s\n", e->key, e->variant->name, e->variant->help);
        return;
    }
    fprintf(p->out, "  %s%s%s%s\n      %s%s", indent, e->key, e->row->default_yaml ? " = " : "",
            e->row->default_yaml ? e->row->default_yaml : "", indent, e->row->help);
    if (e->allowed) fprintf(p->out, " (%s)", e->allowed);
    tri_option_change change;
    tri_option_find(p->table, e->key, &change);
    if (change == TRI_CHANGE_ON_ORDER) fputs(" [--resume-with]", p->out);
    fputc('\n', p->out);
}

bool tri_option_print(const tri_option_table *table, const char *prefix, FILE *out) {
    printing p = {.table = table, .prefix = prefix, .out = out};
    if (table->help && !*prefix)
        fprintf(out, "%s: %s\n", *table->section ? table->section : "recipe", table->help);
    tri_option_walk(table, print_entry, &p);
    return p.any;
}
