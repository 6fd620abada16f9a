// Makes, changes and reads the nodes of a tree. yaml.c and json.c parse text into trees, emit.c
// writes them, override.c sets values from the command line.
#include "base/tree.h"

#include "base/limits.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tri_tree *make(tri_arena *arena, tri_tree_kind kind) {
    tri_tree *node = TRI_NEW(arena, tri_tree);
    node->kind = kind;
    return node;
}

tri_tree *tri_tree_null(tri_arena *arena) { return make(arena, TRI_TREE_NULL); }
tri_tree *tri_tree_map(tri_arena *arena) { return make(arena, TRI_TREE_MAP); }
tri_tree *tri_tree_list(tri_arena *arena) { return make(arena, TRI_TREE_LIST); }

tri_tree *tri_tree_plain(tri_arena *arena, const char *text) {
    tri_tree *node = make(arena, TRI_TREE_SCALAR);
    node->text = tri_arena_strdup(arena, text);
    return node;
}

tri_tree *tri_tree_string(tri_arena *arena, const char *text) {
    tri_tree *node = tri_tree_plain(arena, text);
    node->quoted = true;
    return node;
}

tri_tree *tri_tree_int(tri_arena *arena, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return tri_tree_plain(arena, text);
}

tri_tree *tri_tree_double(tri_arena *arena, double value) {
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    // The texts "1e+02" and "5" would be read as whole numbers, so they become "100.0" and "5.0".
    if (fabs(value) >= 1 && fabs(value) < 1e15 && strchr(text, 'e'))
        snprintf(text, sizeof text, "%.1f", value);
    size_t used = strlen(text);
    if (!strpbrk(text, ".en")) snprintf(text + used, sizeof text - used, ".0");
    return tri_tree_plain(arena, text);
}

tri_tree *tri_tree_digits(tri_arena *arena, double value, int digits) {
    char text[40];
    if (!isfinite(value)) return tri_tree_null(arena);
    snprintf(text, sizeof text, "%.*g", digits, value);
    return tri_tree_double(arena, strtod(text, NULL));
}

tri_tree *tri_tree_bool(tri_arena *arena, bool value) {
    return tri_tree_plain(arena, value ? "true" : "false");
}

void tri_tree_append(tri_arena *arena, tri_tree *list, tri_tree *value) {
    TRI_ASSERT(list->kind == TRI_TREE_LIST);
    TRI_PUSH(arena, list->items, list->count, list->capacity) = value;
}

static int index_of(const tri_tree *map, const char *key) {
    if (!map || map->kind != TRI_TREE_MAP) return -1;
    for (int i = 0; i < map->count; i++)
        if (!strcmp(map->items[i]->key, key)) return i;
    return -1;
}

void tri_tree_put(tri_arena *arena, tri_tree *map, const char *key, tri_tree *value) {
    TRI_ASSERT(map->kind == TRI_TREE_MAP);
    value->key = tri_arena_strdup(arena, key);
    int index = index_of(map, key);
    if (index >= 0)
        map->items[index] = value;
    else
        TRI_PUSH(arena, map->items, map->count, map->capacity) = value;
}

void tri_tree_put_string(tri_arena *arena, tri_tree *map, const char *key, const char *text) {
    tri_tree_put(arena, map, key, tri_tree_string(arena, text));
}

void tri_tree_put_int(tri_arena *arena, tri_tree *map, const char *key, int64_t value) {
    tri_tree_put(arena, map, key, tri_tree_int(arena, value));
}

void tri_tree_put_digits(tri_arena *arena, tri_tree *map, const char *key, double value,
                         int digits) {
    tri_tree_put(arena, map, key, tri_tree_digits(arena, value, digits));
}

bool tri_tree_remove(tri_tree *map, const char *key) {
    int index = index_of(map, key);
    if (index < 0) return false;
    map->count--;
    memmove(map->items + index, map->items + index + 1,
            (size_t)(map->count - index) * sizeof *map->items);
    return true;
}

tri_tree *tri_tree_copy(tri_arena *arena, const tri_tree *node) {
    tri_tree *copy = TRI_NEW(arena, tri_tree);
    *copy = *node;
    if (node->file) copy->file = tri_arena_strdup(arena, node->file);
    if (node->key) copy->key = tri_arena_strdup(arena, node->key);
    if (node->text) copy->text = tri_arena_strdup(arena, node->text);
    copy->items = TRI_NEW_ARRAY(arena, tri_tree *, node->count);
    copy->capacity = node->count;
    for (int i = 0; i < node->count; i++) copy->items[i] = tri_tree_copy(arena, node->items[i]);
    return copy;
}

tri_tree *tri_tree_get(const tri_tree *map, const char *key) {
    int index = index_of(map, key);
    return index < 0 ? NULL : map->items[index];
}

tri_tree *tri_tree_entry(const tri_tree *node, const char *name, size_t length) {
    if (!node) return NULL;
    if (node->kind == TRI_TREE_MAP) {
        for (int i = 0; i < node->count; i++)
            if (!strncmp(node->items[i]->key, name, length) && !node->items[i]->key[length])
                return node->items[i];
    } else if (node->kind == TRI_TREE_LIST && length > 0 && length < 9) {
        int index = 0;
        for (size_t i = 0; i < length; i++) {
            if (name[i] < '0' || name[i] > '9') return NULL;
            index = 10 * index + name[i] - '0';
        }
        if (index < node->count) return node->items[index];
    }
    return NULL;
}

tri_tree *tri_tree_find(const tri_tree *root, const char *path) {
    const tri_tree *node = root;
    while (node) {
        size_t length = strcspn(path, ".");
        node = tri_tree_entry(node, path, length);
        if (!path[length]) return (tri_tree *)node;
        path += length + 1;
    }
    return NULL;
}

bool tri_tree_is_null(const tri_tree *node) { return !node || node->kind == TRI_TREE_NULL; }

bool tri_tree_to_bool(const tri_tree *node, bool *out) {
    if (!node || node->kind != TRI_TREE_SCALAR || node->quoted) return false;
    static const char *const words[2][3] = {{"false", "False", "FALSE"}, {"true", "True", "TRUE"}};
    for (int i = 0; i < 6; i++) {
        if (strcmp(node->text, words[i / 3][i % 3]) != 0) continue;
        *out = i >= 3;
        return true;
    }
    return false;
}

bool tri_tree_to_double(const tri_tree *node, double *out) {
    if (!node || node->kind != TRI_TREE_SCALAR || node->quoted) return false;
    const char *text = node->text;
    // Accepts decimal numbers only: strtod would also take " 1", "0x1p3", "inf" and "nan".
    if (!*text || text[strspn(text, "0123456789+-.eE")]) return false;
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value)) return false;
    if (value == 0 && errno == ERANGE) return false; // 1e-400 is not 0
    *out = value;
    return true;
}

bool tri_tree_to_int(const tri_tree *node, int64_t *out) {
    double value;
    if (!tri_tree_to_double(node, &value)) return false;
    if (!strpbrk(node->text, ".eE")) {
        errno = 0;
        long long whole = strtoll(node->text, NULL, 10);
        if (errno) return false;
        *out = whole;
        return true;
    }
    // 5e8 is a whole number, but with a point, as in 2.0, a fraction is meant.
    if (strchr(node->text, '.') || fabs(value) > 9007199254740992.0 || value != floor(value))
        return false;
    *out = (int64_t)value;
    return true;
}

static bool equal_scalars(const tri_tree *a, const tri_tree *b) {
    int64_t ia, ib;
    if (tri_tree_to_int(a, &ia) && tri_tree_to_int(b, &ib)) return ia == ib;
    double da, db;
    if (tri_tree_to_double(a, &da) && tri_tree_to_double(b, &db)) return da == db;
    bool ba, bb;
    if (tri_tree_to_bool(a, &ba) && tri_tree_to_bool(b, &bb)) return ba == bb;
    bool plain_a = tri_tree_to_double(a, &da) || tri_tree_to_bool(a, &ba);
    bool plain_b = tri_tree_to_double(b, &db) || tri_tree_to_bool(b, &bb);
    return plain_a == plain_b && !strcmp(a->text, b->text);
}

bool tri_tree_equal(const tri_tree *a, const tri_tree *b) {
    if (tri_tree_is_null(a) || tri_tree_is_null(b))
        return tri_tree_is_null(a) && tri_tree_is_null(b);
    if (a->kind != b->kind) return false;
    if (a->kind == TRI_TREE_SCALAR) return equal_scalars(a, b);
    if (a->count != b->count) return false;
    for (int i = 0; i < a->count; i++) {
        const tri_tree *other =
            a->kind == TRI_TREE_MAP ? tri_tree_get(b, a->items[i]->key) : b->items[i];
        if (!other || !tri_tree_equal(a->items[i], other)) return false;
    }
    return true;
}

tri_status tri_tree_fail_as(tri_status status, const tri_tree *node, const char *format, ...) {
    char text[TRI_MESSAGE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!node || !node->file) return TRI_FAIL(status, "%s", text);
    if (!node->line) return TRI_FAIL(status, "%s: %s", node->file, text);
    return TRI_FAIL(status, "%s:%d: %s", node->file, node->line, text);
}

tri_status tri_tree_fail(const tri_tree *node, const char *format, ...) {
    char text[TRI_MESSAGE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tri_tree_fail_as(TRI_BAD_INPUT, node, "%s", text);
}
