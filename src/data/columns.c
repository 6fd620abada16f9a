// Finds the columns of each field of a table: see columns.h for the rule.
#include "data/columns.h"

#include "base/option.h"
#include "data/shapes.h"
#include "data/unused.h"

#include <stdlib.h>
#include <string.h>

typedef struct search {
    tri_dataset *dataset;
    const char *path;
    const char *const *names;
    int count;
    bool *is_used; // by column
    tri_columns *out;
} search;

static tri_status fail_unknown(const search *s, const char *name) {
    const char *nearest = tri_option_nearest(name, s->names, s->count);
    enum { MOST_NAMED = 12 };
    char *all = tri_arena_strdup(s->dataset->arena, s->names[0]);
    for (int i = 1; i < s->count && i < MOST_NAMED; i++)
        all = tri_arena_printf(s->dataset->arena, "%s, %s", all, s->names[i]);
    if (nearest)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: has no column '%s': did you mean '%s'?", s->path, name,
                        nearest);
    const char *other = s->count == 1 ? strpbrk(s->names[0], ";|\t") : NULL;
    if (other)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: has no column '%s', but one with the name '%s': if that is several, "
                        "say what separates them by data.delimiter='%s'",
                        s->path, name, all,
                        *other == ';'   ? ";"
                        : *other == '|' ? "|"
                                        : "tab");
    return TRI_FAIL(TRI_BAD_INPUT, "%s: has no column '%s' (its columns: %s%s)", s->path, name, all,
                    s->count > MOST_NAMED ? ", ..." : "");
}

static tri_status find_column(const search *s, const char *name, int *out) {
    *out = -1;
    for (int i = 0; i < s->count; i++) {
        if (strcmp(s->names[i], name) != 0) continue;
        if (*out >= 0)
            return TRI_FAIL(TRI_BAD_INPUT, "%s: two columns are named '%s'", s->path, name);
        *out = i;
    }
    if (*out < 0) return fail_unknown(s, name);
    s->is_used[*out] = true;
    return TRI_OK;
}

static tri_status new_field(const search *s, const char *name, int count, int **columns) {
    tri_field_row row;
    const tri_tree *extra = s->dataset->options->extra_fields;
    if (s->out->count == TRI_MAX_DATA_FIELDS)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: more than %d fields", s->path, TRI_MAX_DATA_FIELDS);
    if (!tri_field_find(extra, name, &row)) return tri_field_fail_name(extra, "data.fields", name);
    *columns = TRI_NEW_ARRAY(s->dataset->arena, int, count);
    s->out->fields[s->out->count++] =
        (tri_field_columns){.row = row, .columns = *columns, .count = count};
    return TRI_OK;
}

static tri_status add_one(const search *s, const char *field, const char *column) {
    int *columns;
    TRI_TRY(new_field(s, field, 1, &columns));
    return find_column(s, column, &columns[0]);
}

static bool has_column(const search *s, const char *name) {
    for (int i = 0; i < s->count; i++)
        if (!strcmp(s->names[i], name)) return true;
    return false;
}

// Whether the file has none of the columns of an entry of data.fields.
static bool lacks(const search *s, const tri_tree *entry) {
    if (entry->kind == TRI_TREE_SCALAR) return !has_column(s, entry->text);
    for (int i = 0; i < entry->count; i++)
        if (has_column(s, entry->items[i]->text)) return false;
    return true;
}

static tri_status add_entry(const search *s, const tri_tree *entry) {
    int *columns;
    if (s->dataset->options->may_lack_fields && lacks(s, entry)) return TRI_OK;
    if (entry->kind == TRI_TREE_SCALAR) return add_one(s, entry->key, entry->text);
    TRI_TRY(new_field(s, entry->key, entry->count, &columns));
    s->out->fields[s->out->count - 1].is_list = true;
    for (int i = 0; i < entry->count; i++)
        TRI_TRY(find_column(s, entry->items[i]->text, &columns[i]));
    return TRI_OK;
}

// Whether a field of the recipe's own (data.extra_fields) is mapped, which a model may take in
// place of the usual ones.
static bool has_own(const search *s) {
    tri_field_row row;
    for (int i = 0; i < s->out->count; i++)
        if (!tri_field_find(NULL, s->out->fields[i].row.name, &row)) return true;
    return false;
}

static bool has(const search *s, const char *field) {
    for (int i = 0; i < s->out->count; i++)
        if (!strcmp(s->out->fields[i].row.name, field)) return true;
    return false;
}

// Without data.fields: the columns with usual names.
static tri_status add_usual(const search *s) {
    static const struct {
        const char *column, *field;
    } usual[] = {{"label", "labels"},   {"labels", "labels"},   {"class", "labels"},
                 {"target", "targets"}, {"targets", "targets"}, {"image", "images"},
                 {"images", "images"},  {"inputs", "inputs"},   {"input_ids", "input_ids"}};
    for (int i = 0; i < s->count; i++) {
        for (size_t k = 0; k < sizeof usual / sizeof *usual; k++) {
            if (strcmp(s->names[i], usual[k].column) != 0) continue;
            // A second column of labels would be an input that tells the labels.
            if (has(s, usual[k].field))
                return TRI_FAIL(TRI_BAD_INPUT,
                                "%s: its column '%s' is not the only one that is named as '%s' "
                                "usually are: name the one in data.fields",
                                s->path, s->names[i], usual[k].field);
            TRI_TRY(add_one(s, usual[k].field, s->names[i]));
        }
    }
    if (s->out->count > 0) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: no column is named 'label' or 'target': name it, "
                    "data.fields='{labels: %s}', or {targets: ...} for regression; to predict "
                    "samples that have neither, name the others, {inputs: [...]}",
                    s->path,
                    tri_yaml_flow(s->dataset->arena,
                                  tri_tree_string(s->dataset->arena, s->names[s->count - 1])));
}

// Refuses the numbers of rows that pandas and R write beside the columns: in data in the order of
// their classes they tell the class.
static tri_status refuse_row_numbers(const search *s) {
    static const char *const names[] = {"", "Unnamed: 0", "__index_level_0__"};
    for (int i = 0; i < s->count; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names && !s->is_used[i]; k++)
            if (!strcmp(s->names[i], names[k]))
                return TRI_FAIL(TRI_BAD_INPUT,
                                "%s: its column %d, '%s', would be an input, but is what pandas "
                                "names the number of a row: write the file without it "
                                "(index=False), or name the inputs, data.fields='{inputs: [...]}'",
                                s->path, i + 1, s->names[i]);
    return TRI_OK;
}

// The columns that belong to no field are the inputs.
static tri_status add_others(const search *s) {
    int count = 0, *columns;
    TRI_TRY(refuse_row_numbers(s));
    for (int i = 0; i < s->count; i++) count += !s->is_used[i];
    if (count == 0 && has_own(s)) return TRI_OK;
    if (count == 0) return TRI_FAIL(TRI_BAD_INPUT, "%s: no column is left for inputs", s->path);
    TRI_TRY(new_field(s, "inputs", count, &columns));
    s->out->fields[s->out->count - 1].is_list = true;
    for (int i = 0, k = 0; i < s->count; i++)
        if (!s->is_used[i]) columns[k++] = i;
    return TRI_OK;
}

// Where `inputs` are named, as which a file's other columns would be used: takes the other columns
// that are named as fields, and looks at the rest.
static tri_status see_unused(const search *s) {
    tri_arena *arena = s->dataset->arena;
    const char **others = TRI_NEW_ARRAY(arena, const char *, s->count), *taken[TRI_MAX_DATA_FIELDS];
    int count = 0;
    tri_field_row row;
    for (int i = 0; i < s->count; i++) {
        if (s->is_used[i]) continue;
        if (tri_field_find(s->dataset->options->extra_fields, s->names[i], &row))
            TRI_TRY(add_one(s, s->names[i], s->names[i]));
        else
            others[count++] = tri_arena_strdup(arena, s->names[i]);
    }
    for (int i = 0; i < s->out->count; i++) taken[i] = s->out->fields[i].row.name;
    return tri_data_unused(s->dataset, s->path, "column", &(tri_strings){others, count},
                           &(tri_strings){taken, s->out->count});
}

static int compare_fields(const void *a, const void *b) {
    return strcmp(((const tri_field_columns *)a)->row.name,
                  ((const tri_field_columns *)b)->row.name);
}

static tri_status find_fields(const search *s, const tri_tree *fields) {
    if (tri_tree_is_null(fields)) TRI_TRY(add_usual(s));
    for (int i = 0; !tri_tree_is_null(fields) && i < fields->count; i++)
        TRI_TRY(add_entry(s, fields->items[i]));
    if (!has(s, "inputs") && !has(s, "images") && !has(s, "input_ids")) return add_others(s);
    return tri_tree_is_null(fields) ? see_unused(s) : TRI_OK;
}

// Notes the names of the columns.
static void name_columns(const search *s, const tri_tree *fields) {
    for (int i = 0; i < s->out->count; i++) {
        tri_field_columns *field = &s->out->fields[i];
        field->names.columns_are_chosen =
            !tri_tree_is_null(fields) && tri_tree_get(fields, field->row.name);
        const char **names = TRI_NEW_ARRAY(s->dataset->arena, const char *, field->count);
        for (int k = 0; k < field->count; k++)
            names[k] = tri_arena_strdup(s->dataset->arena, s->names[field->columns[k]]);
        field->names.columns = (tri_strings){names, field->count};
    }
}

tri_status tri_columns_find(tri_dataset *dataset, const char *path, const char *const *names,
                            int count, tri_columns *out) {
    const tri_tree *fields = dataset->options->fields;
    search s = {.dataset = dataset, .path = path, .names = names, .count = count, .out = out};
    *out = (tri_columns){0};
    s.is_used = TRI_NEW_ARRAY(dataset->arena, bool, count);
    TRI_TRY(find_fields(&s, fields));
    // The columns of another split's file may be in another order.
    qsort(out->fields, (size_t)out->count, sizeof *out->fields, compare_fields);
    name_columns(&s, fields);
    return TRI_OK;
}

static const tri_field_columns *find_field(const tri_columns *columns, const char *name) {
    for (int i = 0; i < columns->count; i++)
        if (!strcmp(columns->fields[i].row.name, name)) return &columns->fields[i];
    return NULL;
}

tri_status tri_columns_compare(const tri_dataset *dataset, const tri_columns *known,
                               const char *known_path, const tri_columns *columns,
                               const char *path) {
    bool may_lack = dataset->options->may_lack_fields;
    for (int i = 0; i < columns->count; i++) {
        const tri_field_columns *field = &columns->fields[i],
                                *other = find_field(known, field->row.name);
        if (!other || (known->count != columns->count && !may_lack))
            return TRI_FAIL(TRI_BAD_INPUT, "%s: its columns are for other fields than those of %s",
                            path, known_path);
        TRI_TRY(tri_number_names_compare(field->row.name, known_path, &other->names, path,
                                         &field->names));
    }
    return TRI_OK;
}

void tri_columns_name_fields(tri_dataset *dataset, const tri_columns *columns) {
    for (int i = 0; i < columns->count; i++) dataset->fields[i].names = columns->fields[i].names;
}

tri_shape tri_columns_shape(const tri_dataset *dataset, const tri_field_columns *field) {
    tri_shapes declared;
    if (tri_shapes_read(dataset->options->shapes, &declared) == TRI_OK)
        for (int i = 0; i < declared.count; i++)
            if (!strcmp(declared.names[i], field->row.name) && declared.shapes[i].dims[1] >= 0 &&
                tri_shape_count(&declared.shapes[i]) == field->count)
                return declared.shapes[i];
    if (!strcmp(field->row.name, "images")) return tri_shape_of(1, 1, field->count);
    if (!field->is_list && field->row.min_rank == 0) return (tri_shape){0};
    return (tri_shape){.rank = 1, .dims = {field->count}};
}
