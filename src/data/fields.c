// The table of fields that the program knows, and the rows that a recipe adds to it.
#include "data/fields.h"

#include "base/option.h"

#include <ctype.h>
#include <string.h>

enum { MOST_AXES = TRI_MAX_RANK - 1, NAME_BYTES = 64 };

#define ROWS(ROW)                                                                                  \
    ROW(images, TRI_F32, 3, 3, .shape = "[N, C, H, W]")                                            \
    ROW(labels, TRI_I64, 0, MOST_AXES, .shape = "[N, ...]")                                        \
    ROW(inputs, TRI_F32, 1, MOST_AXES, .shape = "[N, ...]")                                        \
    ROW(targets, TRI_F32, 1, MOST_AXES, .shape = "[N, ...]")                                       \
    ROW(input_ids, TRI_I64, 1, 1, .shape = "[N, T]", .is_per_token = true, .is_token = true)       \
    ROW(attention_mask, TRI_F32, 1, 1, .shape = "[N, T]", .is_per_token = true)                    \
    ROW(masks, TRI_I64, 2, 3, .shape = "[N, H, W] or [N, C, H, W]", .is_per_pixel = true)          \
    ROW(soft_labels, TRI_F32, 1, MOST_AXES, .shape = "[N, ...]")

static const tri_field_row rows[] = {
#define ROW(word, type, least, most, ...)                                                          \
    {.name = #word, .dtype = (type), .min_rank = (least), .max_rank = (most), __VA_ARGS__},
    ROWS(ROW)
#undef ROW
};

enum { ROW_COUNT = sizeof rows / sizeof *rows };

static const char *const names[] = {
#define ROW(word, ...) #word,
    ROWS(ROW)
#undef ROW
};

_Static_assert(ROW_COUNT + TRI_MAX_DATA_FIELDS == TRI_MAX_FIELD_NAMES, "a list has all names");

int tri_field_list(const tri_tree *extra_fields, const char *out[TRI_MAX_FIELD_NAMES]) {
    int count = 0;
    for (; count < ROW_COUNT; count++) out[count] = names[count];
    for (int i = 0; !tri_tree_is_null(extra_fields) && i < extra_fields->count; i++)
        out[count++] = extra_fields->items[i]->key;
    return count;
}

const char *tri_field_names(void) {
#define ROW(word, ...) ", " #word
    return &ROWS(ROW)[2];
#undef ROW
}

static const tri_field_row *row_of(const char *name) {
    for (int i = 0; i < ROW_COUNT; i++)
        if (!strcmp(rows[i].name, name)) return &rows[i];
    return NULL;
}

// Reads a value of data.extra_fields: `f32`, `i64`, or {type: f32, per: token}.
static tri_status read_extra(const tri_tree *entry, tri_field_row *out) {
    bool is_map = entry->kind == TRI_TREE_MAP;
    const tri_tree *type = is_map ? tri_tree_get(entry, "type") : entry;
    const tri_tree *per = is_map ? tri_tree_get(entry, "per") : NULL;
    bool is_type = type && type->kind == TRI_TREE_SCALAR &&
                   (!strcmp(type->text, "f32") || !strcmp(type->text, "i64"));
    bool is_per = !per || (per->kind == TRI_TREE_SCALAR &&
                           (!strcmp(per->text, "sample") || !strcmp(per->text, "token") ||
                            !strcmp(per->text, "pixel")));
    if (!is_type || !is_per || (is_map && entry->count != 1 + (per != NULL)))
        return tri_tree_fail(entry,
                             "'data.extra_fields.%s' has to be f32, i64, or such as {type: f32, "
                             "per: token} (per: sample, token or pixel)",
                             entry->key);
    bool is_per_token = per && !strcmp(per->text, "token"),
         is_per_pixel = per && !strcmp(per->text, "pixel");
    *out = (tri_field_row){.name = entry->key,
                           .dtype = !strcmp(type->text, "f32") ? TRI_F32 : TRI_I64,
                           .min_rank = is_per_pixel   ? 2
                                       : is_per_token ? 1
                                                      : 0,
                           .max_rank = is_per_pixel ? 3 : MOST_AXES,
                           .shape = is_per_pixel   ? "[N, H, W] or [N, C, H, W]"
                                    : is_per_token ? "[N, T, ...]"
                                                   : "[N, ...]",
                           .is_per_pixel = is_per_pixel,
                           .is_per_token = is_per_token};
    return TRI_OK;
}

bool tri_field_find(const tri_tree *extra_fields, const char *name, tri_field_row *out) {
    const tri_field_row *row = row_of(name);
    if (row) {
        *out = *row;
        return true;
    }
    if (tri_tree_is_null(extra_fields)) return false;
    const tri_tree *entry = tri_tree_get(extra_fields, name);
    return entry && read_extra(entry, out) == TRI_OK;
}

tri_status tri_field_fail_name(const tri_tree *extra_fields, const char *source, const char *name) {
    const char *known[TRI_MAX_FIELD_NAMES];
    const char *nearest = tri_option_nearest(name, known, tri_field_list(extra_fields, known));
    if (nearest)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: '%s' is not an input of a model (%s); did you mean '%s'? If it is a "
                        "field of your own model, declare it: data.extra_fields='{%s: f32}'; else "
                        "leave it out",
                        source, name, tri_field_names(), nearest, name);
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: '%s' is not an input of a model (%s); if it is a field of your own model, "
                    "declare it: data.extra_fields='{%s: f32}'; else leave it out",
                    source, name, tri_field_names(), name);
}

static bool is_name(const char *text) {
    size_t length = strlen(text);
    if (length == 0 || length > NAME_BYTES) return false;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '_') return false;
    return true;
}

tri_status tri_fields_check(const tri_tree *extra_fields) {
    if (tri_tree_is_null(extra_fields)) return TRI_OK;
    if (extra_fields->kind != TRI_TREE_MAP || extra_fields->count > TRI_MAX_DATA_FIELDS)
        return tri_tree_fail(extra_fields,
                             "'data.extra_fields' has to be a map from at most %d names to types: "
                             "{token_weights: {type: f32, per: token}}",
                             TRI_MAX_DATA_FIELDS);
    for (int i = 0; i < extra_fields->count; i++) {
        const tri_tree *entry = extra_fields->items[i];
        tri_field_row row;
        if (row_of(entry->key))
            return tri_tree_fail(entry, "'%s' is a field that every recipe has: leave it out",
                                 entry->key);
        // A user's field may not be called "position", because the graph has an input of this name
        // already: the engine fills it, and dropout derives its random numbers from it.
        if (!is_name(entry->key) || !strcmp(entry->key, "position"))
            return tri_tree_fail(entry,
                                 "'%s' is no name for a field: up to %d letters, digits and '_', "
                                 "and not 'position'",
                                 entry->key, NAME_BYTES);
        TRI_TRY(read_extra(entry, &row));
    }
    return TRI_OK;
}
