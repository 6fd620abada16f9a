// Reads the options of a struct from a parsed YAML file (tri_tree), as an option table describes
// them, and makes such a tree from a struct. An option table has one row for each member of the
// struct: key, type, default and limits. A table may also have variants, each with rows of its own,
// of which the user chooses one by name (optimizer: sgd, adam …).
#include "base/option.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The position in the document at which a table is read, so that messages can name the key and the
// line.
typedef struct context {
    tri_arena *arena;
    const tri_option_table *table;
    const char *prefix;  // prefix of the table's keys, for example "trainer."
    const char *variant; // name of the chosen variant; NULL: none
    // The table's map or, if the document does not have it, the nearest enclosing map.
    const tri_tree *nearest_map;
} context;

static tri_status decode(tri_arena *arena, const tri_option_table *table, const char *prefix,
                         const tri_tree *map, const tri_tree *enclosing, void *options);

// Formats a value for an error message, shortened so that the message stays one line.
static const char *value_text(const context *c, const tri_tree *node) {
    char *text = tri_yaml_flow(c->arena, node);
    if (strlen(text) > 60) memcpy(text + 57, "...", sizeof "...");
    return text;
}

static const char *join(tri_arena *arena, const char *const *words) {
    const char *text = "";
    for (int i = 0; words && words[i]; i++)
        text = tri_arena_printf(arena, "%s%s%s", text, i ? ", " : "", words[i]);
    return text;
}

// Formats the allowed range of a row for messages. A very large maximum would distract, so it is
// named only if the value is above it.
static const char *range_text(tri_arena *arena, const tri_option *row, const tri_tree *node) {
    double value;
    bool is_above = tri_tree_to_double(node, &value) && value > row->max;
    bool has_least = row->min > -1e300, has_most = row->max < 1e12 || is_above;
    if (has_least && has_most)
        return tri_arena_printf(arena, " from %.15g to %.15g", row->min, row->max);
    if (has_least) return tri_arena_printf(arena, " of at least %.15g", row->min);
    if (has_most) return tri_arena_printf(arena, " of at most %.15g", row->max);
    return "";
}

static const char *length_text(tri_arena *arena, const tri_option *row) {
    return row->length ? tri_arena_printf(arena, "%d ", row->length) : "";
}

const char *tri_option_allowed(tri_arena *arena, const tri_option *row, const tri_tree *node) {
    const char *range = range_text(arena, row, node);
    switch (row->type) {
    case TRI_OPTION_IS_BOOL:
        return "true or false";
    case TRI_OPTION_IS_INT:
        return tri_arena_printf(arena, "a whole number%s", range);
    case TRI_OPTION_IS_INT_OR_AUTO:
        return tri_arena_printf(arena, "auto or a whole number%s", range);
    case TRI_OPTION_IS_BOOL_OR_INT:
        return tri_arena_printf(arena, "true, false or a whole number%s", range);
    case TRI_OPTION_IS_FLOAT:
    case TRI_OPTION_IS_FLOAT_OR_NULL:
        return tri_arena_printf(arena, "a number%s", range);
    case TRI_OPTION_IS_AMOUNT:
        return "a count (10) or a fraction from 0.0 to 1.0 (0.5)";
    case TRI_OPTION_IS_DURATION:
        return "a time: seconds, 30s, 10m, 2h or DD:HH:MM:SS";
    case TRI_OPTION_IS_STRING:
        return "text";
    case TRI_OPTION_IS_CHOICE:
        return tri_arena_printf(arena, "one of: %s", join(arena, row->choices));
    case TRI_OPTION_IS_INTS:
        return tri_arena_printf(arena, "a list of %swhole numbers%s", length_text(arena, row),
                                range);
    case TRI_OPTION_IS_FLOATS:
        return tri_arena_printf(arena, "a list of %snumbers%s", length_text(arena, row), range);
    case TRI_OPTION_IS_STRINGS:
        return "a list of texts";
    case TRI_OPTION_IS_TABLE:
        return "a mapping with keys of its own";
    default:
        return "text";
    }
}

static tri_status refuse(const context *c, const tri_option *row, const tri_tree *node) {
    return tri_tree_fail(node, "'%s%s' has to be %s, not %s", c->prefix, row->key,
                         tri_option_allowed(c->arena, row, node), value_text(c, node));
}

static bool in_bounds(const tri_option *row, double value) {
    return value >= row->min && value <= row->max;
}

int64_t tri_amount_of(tri_amount amount, int64_t whole) {
    double count = amount.is_fraction ? amount.value * (double)whole : amount.value;
    return count < (double)whole ? (int64_t)count : whole;
}

static bool read_amount(const tri_tree *node, tri_amount *out) {
    int64_t count;
    out->is_fraction = !tri_tree_to_int(node, &count);
    if (!out->is_fraction) {
        out->value = (double)count;
        return count >= 0 && count <= 1000000000000000;
    }
    return tri_tree_to_double(node, &out->value) && out->value >= 0 && out->value <= 1;
}

static bool read_duration(const tri_tree *node, double *out) {
    if (node->kind != TRI_TREE_SCALAR) return false;
    tri_tree plain = *node;
    plain.quoted = false; // because "00:12:00:00" is often written in quotes
    if (tri_tree_to_double(&plain, out)) return *out >= 0 && *out <= 1e9;
    char *end;
    if (*node->text < '0' || *node->text > '9') return false;
    double value = strtod(node->text, &end);
    static const struct {
        char unit;
        double seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (end[0] != units[i].unit || end[1]) continue;
        *out = value * units[i].seconds;
        return *out <= 1e9;
    }
    int days, hours, minutes, seconds, used = 0;
    if (sscanf(node->text, "%4d:%2d:%2d:%2d%n", &days, &hours, &minutes, &seconds, &used) != 4 ||
        node->text[used] || days < 0 || hours < 0 || minutes < 0 || seconds < 0)
        return false;
    *out = ((days * 24.0 + hours) * 60.0 + minutes) * 60.0 + seconds;
    return true;
}

static bool read_choice(const tri_option *row, const tri_tree *node, int *out) {
    if (node->kind != TRI_TREE_SCALAR) return false;
    for (int i = 0; row->choices[i]; i++) {
        if (strcmp(row->choices[i], node->text) != 0) continue;
        *out = i;
        return true;
    }
    return false;
}

static bool read_list(const context *c, const tri_option *row, const tri_tree *node, void *member) {
    // A list of any length may be written as its only element.
    bool is_element = node->kind == TRI_TREE_SCALAR && row->type != TRI_OPTION_IS_STRINGS;
    int count = is_element ? 1 : node->count;
    if (node->kind != TRI_TREE_LIST && !is_element) return false;
    if (row->length && count != row->length) return false;
    int64_t *ints = TRI_NEW_ARRAY(c->arena, int64_t, count);
    double *doubles = TRI_NEW_ARRAY(c->arena, double, count);
    const char **texts = TRI_NEW_ARRAY(c->arena, const char *, count);
    for (int i = 0; i < count; i++) {
        const tri_tree *item = is_element ? node : node->items[i];
        bool good = false;
        if (row->type == TRI_OPTION_IS_INTS)
            good = tri_tree_to_int(item, &ints[i]) && in_bounds(row, (double)ints[i]);
        else if (row->type == TRI_OPTION_IS_FLOATS)
            good = tri_tree_to_double(item, &doubles[i]) && in_bounds(row, doubles[i]);
        else if ((good = item->kind == TRI_TREE_SCALAR))
            texts[i] = item->text;
        if (!good) return false;
    }
    if (row->type == TRI_OPTION_IS_INTS) *(tri_ints *)member = (tri_ints){ints, count};
    if (row->type == TRI_OPTION_IS_FLOATS) *(tri_doubles *)member = (tri_doubles){doubles, count};
    if (row->type == TRI_OPTION_IS_STRINGS) *(tri_strings *)member = (tri_strings){texts, count};
    return true;
}

static bool read_int(const tri_option *row, const tri_tree *node, int64_t *out) {
    bool truth;
    if (row->type == TRI_OPTION_IS_BOOL_OR_INT && tri_tree_to_bool(node, &truth)) {
        *out = truth;
        return true;
    }
    if (row->type == TRI_OPTION_IS_INT_OR_AUTO && node->kind == TRI_TREE_SCALAR &&
        !strcmp(node->text, "auto")) {
        *out = TRI_AUTO;
        return true;
    }
    return tri_tree_to_int(node, out) && in_bounds(row, (double)*out);
}

// Reads one value that is not null. False: the row does not allow it.
static bool read_value(const context *c, const tri_option *row, const tri_tree *node,
                       void *member) {
    tri_number *number = member;
    switch (row->type) {
    case TRI_OPTION_IS_BOOL:
        return tri_tree_to_bool(node, member);
    case TRI_OPTION_IS_INT:
    case TRI_OPTION_IS_INT_OR_AUTO:
    case TRI_OPTION_IS_BOOL_OR_INT:
        return read_int(row, node, member);
    case TRI_OPTION_IS_FLOAT:
        return tri_tree_to_double(node, member) && in_bounds(row, *(double *)member);
    case TRI_OPTION_IS_FLOAT_OR_NULL:
        number->is_set = true;
        return tri_tree_to_double(node, &number->value) && in_bounds(row, number->value);
    case TRI_OPTION_IS_AMOUNT:
        return read_amount(node, member);
    case TRI_OPTION_IS_DURATION:
        return read_duration(node, member);
    case TRI_OPTION_IS_CHOICE:
        return read_choice(row, node, member);
    case TRI_OPTION_IS_STRING:
        if (node->kind != TRI_TREE_SCALAR) return false;
        *(const char **)member = node->text;
        return true;
    case TRI_OPTION_IS_TREE:
        *(const tri_tree **)member = node;
        return true;
    default:
        return read_list(c, row, node, member);
    }
}

static tri_status read_row(const context *c, const tri_option *row, const tri_tree *map,
                           void *options) {
    void *member = (char *)options + row->offset;
    const tri_tree *node = tri_tree_get(map, row->key);
    if (row->type == TRI_OPTION_IS_NAME) return TRI_OK; // choose_variant has read it already
    if (row->type == TRI_OPTION_IS_TABLE) {
        const char *prefix = tri_arena_printf(c->arena, "%s%s.", c->prefix, row->key);
        return decode(c->arena, row->table, prefix, node, c->nearest_map, member);
    }
    if (tri_tree_is_null(node)) {
        if (!row->default_yaml) return TRI_OK;
        tri_tree *preset;
        TRI_TRY(tri_yaml_parse_value(c->arena, row->default_yaml, "default", &preset));
        if (tri_tree_is_null(preset)) return TRI_OK;
        bool good = read_value(c, row, preset, member);
        TRI_ASSERT(good && "a table's own default has to fit its row");
        return TRI_OK;
    }
    return read_value(c, row, node, member) ? TRI_OK : refuse(c, row, node);
}

static const tri_option *find_row(const tri_option *rows, int count, const char *key) {
    for (int i = 0; i < count; i++)
        if (rows[i].type != TRI_OPTION_IS_REST && !strcmp(rows[i].key, key)) return &rows[i];
    return NULL;
}

const tri_option *tri_option_row_of_type(const tri_option_table *table, tri_option_type type) {
    for (int i = 0; i < table->count; i++)
        if (table->rows[i].type == type) return &table->rows[i];
    return NULL;
}

// Finds the row of one key, in the table or in any of its variants.
static const tri_option *find_any_row(const tri_option_table *table, const char *key) {
    const tri_option *row = find_row(table->rows, table->count, key);
    for (int i = 0; !row && i < table->variant_count; i++)
        row = find_row(table->variants[i].rows, table->variants[i].count, key);
    return row;
}

const tri_option *tri_option_find(const tri_option_table *table, const char *path,
                                  tri_option_change *change) {
    const tri_option *row = NULL;
    *change = TRI_CHANGE_NEVER;
    while (table) {
        char key[128];
        size_t length = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)length, path);
        row = find_any_row(table, key);
        if (row && row->change > *change) *change = row->change;
        if (!row || !path[length]) break;
        table = row->table;
        path += length + 1;
    }
    return row;
}

static const tri_option_variant *find_variant(const tri_option_table *table, const char *name) {
    for (int i = 0; name && i < table->variant_count; i++)
        if (!strcmp(table->variants[i].name, name)) return &table->variants[i];
    return NULL;
}

static tri_status fail_variant(const context *c, const tri_option *row, const tri_tree *node) {
    const tri_option_table *table = c->table;
    const char **names = TRI_NEW_ARRAY(c->arena, const char *, table->variant_count + 1);
    for (int i = 0; i < table->variant_count; i++) names[i] = table->variants[i].name;
    if (node->kind != TRI_TREE_SCALAR)
        return tri_tree_fail(node, "'%s%s' has to be one of: %s", c->prefix, row->key,
                             join(c->arena, names));
    const char *near = tri_option_nearest(node->text, names, table->variant_count);
    if (near)
        return tri_tree_fail(node, "'%s%s' has to be one of: %s; not %s (did you mean '%s'?)",
                             c->prefix, row->key, join(c->arena, names), value_text(c, node), near);
    return tri_tree_fail(node, "'%s%s' has to be one of: %s; not %s", c->prefix, row->key,
                         join(c->arena, names), value_text(c, node));
}

static tri_status choose_variant(context *c, const tri_tree *map, void *options,
                                 const tri_option_variant **out) {
    *out = NULL;
    const tri_option *row = tri_option_row_of_type(c->table, TRI_OPTION_IS_NAME);
    if (!row) return TRI_OK;
    const tri_tree *node = tri_tree_get(map, row->key);
    const char *name = row->default_yaml;
    if (!tri_tree_is_null(node)) {
        name = node->kind == TRI_TREE_SCALAR ? node->text : NULL;
        if (!find_variant(c->table, name)) return fail_variant(c, row, node);
    }
    if (!name) {
        const char **names = TRI_NEW_ARRAY(c->arena, const char *, c->table->variant_count + 1);
        for (int i = 0; i < c->table->variant_count; i++) names[i] = c->table->variants[i].name;
        return tri_tree_fail(c->nearest_map, "'%s%s' is missing; one of: %s", c->prefix, row->key,
                             join(c->arena, names));
    }
    *out = find_variant(c->table, name);
    TRI_ASSERT(*out);
    c->variant = (*out)->name;
    *(const char **)((char *)options + row->offset) = (*out)->name;
    return TRI_OK;
}

static tri_status fail_unknown(const context *c, const tri_option_variant *variant,
                               const tri_tree *node) {
    const tri_option_table *table = c->table;
    int count = table->count + (variant ? variant->count : 0), used = 0;
    const char **known = TRI_NEW_ARRAY(c->arena, const char *, count + 1);
    for (int i = 0; i < table->count; i++)
        if (table->rows[i].type != TRI_OPTION_IS_REST) known[used++] = table->rows[i].key;
    for (int i = 0; variant && i < variant->count; i++) known[used++] = variant->rows[i].key;
    if (!strcmp(node->key, "<<"))
        return tri_tree_fail(node, "YAML's merge key << is not supported: write its keys out");
    const char *near = tri_option_nearest(node->key, known, used);
    const char *of = c->variant ? tri_arena_printf(c->arena, " of %s", c->variant) : "";
    if (near)
        return tri_tree_fail(node, "unknown key '%s%.100s' (did you mean '%s'?)", c->prefix,
                             node->key, near);
    return tri_tree_fail(node, "unknown key '%s%.100s'%s (known: %s)", c->prefix, node->key, of,
                         join(c->arena, known));
}

// Rejects unknown keys, so that no misspelt key is ignored. If the table has a row
// TRI_OPTION_IS_REST, stores the unknown keys in the member of that row instead.
static tri_status check_keys(const context *c, const tri_option_variant *variant,
                             const tri_tree *map, void *options) {
    const tri_option *rest_row = tri_option_row_of_type(c->table, TRI_OPTION_IS_REST);
    tri_tree *rest = tri_tree_map(c->arena);
    for (int i = 0; map && i < map->count; i++) {
        const tri_tree *node = map->items[i];
        if (find_row(c->table->rows, c->table->count, node->key)) continue;
        if (variant && find_row(variant->rows, variant->count, node->key)) continue;
        if (!rest_row) return fail_unknown(c, variant, node);
        tri_tree_put(c->arena, rest, node->key, tri_tree_copy(c->arena, node));
    }
    if (rest_row) {
        if (map) rest->file = map->file, rest->line = map->line;
        *(const tri_tree **)((char *)options + rest_row->offset) = rest;
    }
    return TRI_OK;
}

// Explains, for a section that is only a name ("optimizer: adam"), how to write it as a map. "":
// `node` is not such a name.
static const char *named_mapping(const context *c, const tri_tree *node) {
    const tri_option *row = find_row(c->table->rows, c->table->count, "name");
    bool is_name = row && node->kind == TRI_TREE_SCALAR &&
                   (!tri_option_row_of_type(c->table, TRI_OPTION_IS_NAME) ||
                    find_variant(c->table, node->text));
    return is_name ? tri_arena_printf(c->arena, "; write {name: %s}", node->text) : "";
}

static tri_status decode(tri_arena *arena, const tri_option_table *table, const char *prefix,
                         const tri_tree *map, const tri_tree *enclosing, void *options) {
    context c = {.arena = arena, .table = table, .prefix = prefix, .nearest_map = enclosing};
    memset(options, 0, table->size);
    if (tri_tree_is_null(map)) map = NULL;
    if (map && map->kind != TRI_TREE_MAP) {
        if (!*prefix) return tri_tree_fail(map, "has to be a mapping of keys to values");
        return tri_tree_fail(map, "'%.*s' has to be a mapping with keys of its own, not %s%s",
                             (int)strlen(prefix) - 1, prefix, value_text(&c, map),
                             named_mapping(&c, map));
    }
    if (map) c.nearest_map = map;
    const tri_option_variant *variant;
    TRI_TRY(choose_variant(&c, map, options, &variant));
    TRI_TRY(check_keys(&c, variant, map, options));
    for (int i = 0; i < table->count; i++)
        if (table->rows[i].type != TRI_OPTION_IS_REST)
            TRI_TRY(read_row(&c, &table->rows[i], map, options));
    for (int i = 0; variant && i < variant->count; i++)
        TRI_TRY(read_row(&c, &variant->rows[i], map, options));
    return table->check ? table->check(options, map) : TRI_OK;
}

tri_status tri_option_decode(tri_arena *arena, const tri_option_table *table, const tri_tree *map,
                             void *options) {
    return tri_option_decode_under(arena, table->section, table, map, options);
}

tri_status tri_option_decode_under(tri_arena *arena, const char *prefix,
                                   const tri_option_table *table, const tri_tree *map,
                                   void *options) {
    if (*prefix) prefix = tri_arena_printf(arena, "%s.", prefix);
    return decode(arena, table, prefix, map, NULL, options);
}

static tri_tree *encode_list(tri_arena *arena, const tri_option *row, const void *member) {
    tri_tree *list = tri_tree_list(arena);
    const tri_ints *ints = member;
    const tri_doubles *doubles = member;
    const tri_strings *texts = member;
    if (row->type == TRI_OPTION_IS_INTS)
        for (int i = 0; i < ints->count; i++)
            tri_tree_append(arena, list, tri_tree_int(arena, ints->items[i]));
    else if (row->type == TRI_OPTION_IS_FLOATS)
        for (int i = 0; i < doubles->count; i++)
            tri_tree_append(arena, list, tri_tree_double(arena, doubles->items[i]));
    else
        for (int i = 0; i < texts->count; i++)
            tri_tree_append(arena, list, tri_tree_string(arena, texts->items[i]));
    return list;
}

static tri_tree *encode_text(tri_arena *arena, const char *text) {
    return text ? tri_tree_string(arena, text) : tri_tree_null(arena);
}

static tri_tree *encode_row(tri_arena *arena, const tri_option *row, const void *options) {
    const void *member = (const char *)options + row->offset;
    const tri_amount *amount = member;
    const tri_number *number = member;
    switch (row->type) {
    case TRI_OPTION_IS_BOOL:
        return tri_tree_bool(arena, *(const bool *)member);
    case TRI_OPTION_IS_INT_OR_AUTO:
        if (*(const int64_t *)member == TRI_AUTO) return tri_tree_plain(arena, "auto");
        return tri_tree_int(arena, *(const int64_t *)member);
    case TRI_OPTION_IS_INT:
    case TRI_OPTION_IS_BOOL_OR_INT:
        return tri_tree_int(arena, *(const int64_t *)member);
    case TRI_OPTION_IS_FLOAT:
    case TRI_OPTION_IS_DURATION:
        return tri_tree_double(arena, *(const double *)member);
    case TRI_OPTION_IS_FLOAT_OR_NULL:
        return number->is_set ? tri_tree_double(arena, number->value) : tri_tree_null(arena);
    case TRI_OPTION_IS_AMOUNT:
        if (amount->is_fraction) return tri_tree_double(arena, amount->value);
        return tri_tree_int(arena, (int64_t)amount->value);
    case TRI_OPTION_IS_NAME:
    case TRI_OPTION_IS_STRING:
        return encode_text(arena, *(const char *const *)member);
    case TRI_OPTION_IS_CHOICE:
        return tri_tree_string(arena, row->choices[*(const int *)member]);
    case TRI_OPTION_IS_TABLE:
        return tri_option_encode(arena, row->table, member);
    case TRI_OPTION_IS_TREE:
        if (!*(const tri_tree *const *)member) return tri_tree_null(arena);
        return tri_tree_copy(arena, *(const tri_tree *const *)member);
    default:
        return encode_list(arena, row, member);
    }
}

static void encode_rows(tri_arena *arena, const tri_option *rows, int count, const void *options,
                        tri_tree *map) {
    for (int i = 0; i < count; i++) {
        if (rows[i].type != TRI_OPTION_IS_REST) {
            tri_tree_put(arena, map, rows[i].key, encode_row(arena, &rows[i], options));
            continue;
        }
        const tri_tree *rest = *(const tri_tree *const *)((const char *)options + rows[i].offset);
        for (int k = 0; rest && k < rest->count; k++)
            tri_tree_put(arena, map, rest->items[k]->key, tri_tree_copy(arena, rest->items[k]));
    }
}

tri_tree *tri_option_encode(tri_arena *arena, const tri_option_table *table, const void *options) {
    tri_tree *map = tri_tree_map(arena);
    encode_rows(arena, table->rows, table->count, options, map);
    const tri_option *row = tri_option_row_of_type(table, TRI_OPTION_IS_NAME);
    if (!row) return map;
    const tri_option_variant *variant =
        find_variant(table, *(const char *const *)((const char *)options + row->offset));
    if (variant) encode_rows(arena, variant->rows, variant->count, options, map);
    return map;
}

enum { LONGEST_WORD = 64 };

static bool is_same(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

// The restricted Damerau-Levenshtein distance, which counts typing errors: an inserted letter, a
// missing letter, a changed letter and two swapped letters count one each. distances[i % 3][j] is
// the distance of the first i letters of a and the first j letters of b. Upper and lower case count
// as equal.
static int distance(const char *a, const char *b) {
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST_WORD || m > LONGEST_WORD) return LONGEST_WORD;
    int distances[3][LONGEST_WORD + 1];
    for (int j = 0; j <= m; j++) distances[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = distances[i % 3], *last = distances[(i - 1) % 3];
        const int *last_but_one = distances[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = last[j - 1] + !is_same(a[i - 1], b[j - 1]);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            bool swapped =
                i > 1 && j > 1 && is_same(a[i - 1], b[j - 2]) && is_same(a[i - 2], b[j - 1]);
            if (swapped && last_but_one[j - 2] + 1 < best) best = last_but_one[j - 2] + 1;
            now[j] = best;
        }
    }
    return distances[n % 3][m];
}

const char *tri_option_nearest(const char *word, const char *const *known, int count) {
    const char *nearest = NULL;
    int best = (int)strlen(word) / 3 + 2; // up to about a third of the letters may be wrong
    for (int i = 0; i < count; i++) {
        if (!known[i]) continue;
        int d = distance(word, known[i]);
        // If a known word has no letter in common with `word`, the distance is at least the length
        // of the known word. Such a word is never near, although for short words this distance may
        // be below `best`.
        if (d < best && d < (int)strlen(known[i])) best = d, nearest = known[i];
    }
    return nearest;
}
