// Compares what the numbers of a field mean in two data sets: see names.h.
#include "data/names.h"

#include <string.h>

static bool is_same(const tri_strings *a, const tri_strings *b) {
    bool is_same = a->count == b->count;
    for (int i = 0; is_same && i < a->count; i++) is_same = !strcmp(a->items[i], b->items[i]);
    return is_same;
}

// Compares sorted names of classes, of which each list has to have all of the other.
static tri_status compare_classes(const char *field, const char *a_name, const tri_strings *a,
                                  const char *b_name, const tri_strings *b) {
    int i = 0;
    while (i < a->count && i < b->count && !strcmp(a->items[i], b->items[i])) i++;
    if (i == a->count && i == b->count) return TRI_OK;
    bool lacks = i == b->count || (i < a->count && strcmp(a->items[i], b->items[i]) < 0);
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: its '%s' have %s class '%s', unlike those of %s: classes are numbered by "
                    "their names, so both have to have the same",
                    b_name, field, lacks ? "no" : "the", lacks ? a->items[i] : b->items[i], a_name);
}

bool tri_number_names_differ(const tri_number_names *a, const tri_number_names *b) {
    return a->columns.count > 0 && b->columns.count > 0 && !is_same(&a->columns, &b->columns);
}

const char *tri_number_names_doubt(tri_arena *arena, const char *a_name, const tri_number_names *a,
                                   const char *b_name, const tri_number_names *b) {
    if (!a->tokenizer || !b->tokenizer) return NULL;
    if (strcmp(a->tokenizer, b->tokenizer) != 0)
        return tri_arena_printf(arena,
                                "%s: data.tokenizer has another content than that of %s: one "
                                "number may mean two tokens",
                                b_name, a_name);
    if (!a->end_mark || !b->end_mark || !strcmp(a->end_mark, b->end_mark)) return NULL;
    return tri_arena_printf(arena,
                            "%s: its texts end with the token %s, those of %s with %s: the files "
                            "tokenizer_config.json or config.json beside data.tokenizer have "
                            "changed",
                            b_name, b->end_mark, a_name, a->end_mark);
}

tri_status tri_number_names_compare(const char *field, const char *a_name,
                                    const tri_number_names *a, const char *b_name,
                                    const tri_number_names *b) {
    bool is_chosen = a->columns_are_chosen || b->columns_are_chosen;
    if (!is_chosen && tri_number_names_differ(a, b))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: its columns for '%s' are others than those of %s, or in another "
                        "order: name them in data.fields",
                        b_name, field, a_name);
    if ((a->classes.count > 0) != (b->classes.count > 0))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: its '%s' are %s, but those of %s are %s: whether a number means the "
                        "same class in both cannot be seen",
                        b_name, field, b->classes.count > 0 ? "names" : "numbers", a_name,
                        a->classes.count > 0 ? "names" : "numbers");
    return compare_classes(field, a_name, &a->classes, b_name, &b->classes);
}
