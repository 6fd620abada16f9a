// Reads the keys of a DeepSpeed configuration by a table: finds each key's row, and rejects keys
// that are unknown or not supported.
#include "recipe/deepspeed_reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool deepspeed_is_auto(const tri_tree *node) {
    return node && node->kind == TRI_TREE_SCALAR && !strcmp(node->text, "auto");
}

tri_status deepspeed_fail(const deepspeed_reader *reader, const char *path, const char *format,
                          ...) {
    char text[TRI_MESSAGE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return TRI_FAIL(TRI_BAD_INPUT, "%s: '%s' %s", reader->file, path, text);
}

void deepspeed_add(deepspeed_reader *reader, tri_deepspeed_setting setting) {
    if (reader->is_disabled) return;
    tri_deepspeed *out = reader->out;
    TRI_PUSH(reader->arena, out->settings, out->count, out->capacity) = setting;
}

void deepspeed_set(deepspeed_reader *reader, const char *key, const char *path, tri_tree *value) {
    value->file = tri_arena_printf(reader->arena, "%s: %s", reader->file, path);
    value->line = 0;
    deepspeed_add(reader, (tri_deepspeed_setting){.key = key, .value = value});
}

void deepspeed_fall_back(deepspeed_reader *reader, const char *key, tri_tree *value) {
    deepspeed_add(reader, (tri_deepspeed_setting){.key = key, .value = value, .is_fallback = true});
}

void deepspeed_leave(deepspeed_reader *reader, const char *key, const char *path) {
    tri_tree *value = tri_tree_null(reader->arena);
    value->file = path;
    deepspeed_add(reader, (tri_deepspeed_setting){.key = key, .value = value, .is_auto = true});
}

// Finds the row for the key at `path`: its own row, or a row "section.*" that covers it.
static const deepspeed_row *find_row(const deepspeed_table *table, const char *path) {
    for (int i = 0; i < table->count; i++) {
        const char *key = table->rows[i].key;
        size_t length = strlen(key);
        if (!strcmp(key, path)) return &table->rows[i];
        if (key[length - 1] == '*' && !strncmp(key, path, length - 1)) return &table->rows[i];
    }
    return NULL;
}

static bool is_section(const deepspeed_table *table, const char *path) {
    size_t length = strlen(path);
    for (int i = 0; i < table->count; i++)
        if (!strncmp(table->rows[i].key, path, length) && table->rows[i].key[length] == '.')
            return true;
    return false;
}

static tri_status fail_unknown(const deepspeed_reader *reader, const deepspeed_table *table,
                               const char *section, const char *below, const char *key) {
    const char **known = TRI_NEW_ARRAY(reader->arena, const char *, table->count + 1);
    size_t depth = strlen(below);
    int count = 0;
    for (int i = 0; i < table->count; i++) {
        const char *row = table->rows[i].key;
        if (strncmp(row, below, depth) != 0) continue;
        known[count++] =
            tri_arena_printf(reader->arena, "%.*s", (int)strcspn(row + depth, "."), row + depth);
    }
    const char *near = tri_option_nearest(key, known, count);
    return TRI_FAIL(TRI_BAD_INPUT, "%s: unknown key '%s%.100s'%s%s%s", reader->file, section, key,
                    near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

// Whether the node is a section with `enabled: false`, which has no effect.
static bool is_off(const tri_tree *node) {
    bool enabled;
    const tri_tree *flag = tri_tree_get(node, "enabled");
    if (!flag) return false;
    return tri_tree_to_bool(flag, &enabled) && !enabled;
}

// Whether an unsupported key has a value that changes nothing, such as the default. It is accepted
// then, because many configurations list all keys.
static bool is_harmless(const deepspeed_row *row, const tri_tree *node) {
    double value, harmless;
    tri_tree plain = {.kind = TRI_TREE_SCALAR, .text = row->harmless};
    if (is_off(node) || (node->kind != TRI_TREE_SCALAR && node->count == 0)) return true;
    if (!row->harmless || node->kind != TRI_TREE_SCALAR) return false;
    if (tri_tree_to_double(node, &value) && tri_tree_to_double(&plain, &harmless))
        return value == harmless;
    return !strcmp(node->text, row->harmless);
}

static tri_status read_row(deepspeed_reader *reader, const deepspeed_row *row, const char *path,
                           tri_tree *node) {
    if (row->convert) return row->convert(reader, row, path, node);
    if (row->to) {
        deepspeed_set(reader, row->to, path, tri_tree_copy(reader->arena, node));
        return TRI_OK;
    }
    if (reader->is_disabled || is_off(node)) return TRI_OK;
    if (row->refusal) {
        if (is_harmless(row, node)) return TRI_OK;
        return deepspeed_fail(reader, path, "is not in this version of Trireme; %s", row->refusal);
    }
    TRI_PUSH(reader->arena, reader->idle, reader->idle_count, reader->idle_capacity) = path;
    return TRI_OK;
}

tri_status deepspeed_walk(deepspeed_reader *reader, const deepspeed_table *table,
                          const char *section, const char *below, const tri_tree *map) {
    if (tri_tree_is_null(map)) return TRI_OK;
    if (map->kind != TRI_TREE_MAP)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: '%.*s' has to be an object", reader->file,
                        (int)strlen(section) - 1, section);
    bool was_disabled = reader->is_disabled;
    reader->is_disabled = was_disabled || is_off(map);
    for (int i = 0; i < map->count; i++) {
        tri_tree *node = map->items[i];
        const char *path = tri_arena_printf(reader->arena, "%s%s", below, node->key);
        const char *whole = tri_arena_printf(reader->arena, "%s%s", section, node->key);
        const deepspeed_row *row = find_row(table, path);
        if (!row && !is_section(table, path))
            return fail_unknown(reader, table, section, below, node->key);
        if (deepspeed_is_auto(node) && row && row->to) deepspeed_leave(reader, row->to, whole);
        if (tri_tree_is_null(node) || (deepspeed_is_auto(node) && (!row || !row->convert)))
            continue;
        if (row)
            TRI_TRY(read_row(reader, row, whole, node));
        else
            TRI_TRY(deepspeed_walk(reader, table, tri_arena_printf(reader->arena, "%s.", whole),
                                   tri_arena_printf(reader->arena, "%s.", path), node));
    }
    reader->is_disabled = was_disabled;
    return TRI_OK;
}
