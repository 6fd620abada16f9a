// Parses JSON into trees (base/tree.h) with the library jansson, which accepts neither comments nor
// trailing commas. People write both into configuration files (DeepSpeed's, for example), so
// tri_json_relax can remove them before a file is parsed.
#include "base/limits.h"
#include "base/os.h"
#include "base/tree.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    tri_arena *arena;
    const char *file;
    int nodes;
} reader;

static tri_status convert(reader *r, const json_t *value, int depth, tri_tree **out);

static tri_status convert_items(reader *r, const json_t *value, int depth, tri_tree *node) {
    tri_tree *item;
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            TRI_TRY(convert(r, json_array_get(value, i), depth + 1, &item));
            tri_tree_append(r->arena, node, item);
        }
        return TRI_OK;
    }
    const char *key;
    json_t *below;
    json_object_foreach((json_t *)value, key, below) {
        TRI_TRY(convert(r, below, depth + 1, &item));
        item->key = tri_arena_strdup(r->arena, key);
        // jansson has rejected duplicate keys, so no earlier entry has to be replaced.
        TRI_PUSH(r->arena, node->items, node->count, node->capacity) = item;
    }
    return TRI_OK;
}

static tri_tree *convert_scalar(tri_arena *arena, const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_STRING:
        return tri_tree_string(arena, json_string_value(value));
    case JSON_INTEGER:
        return tri_tree_int(arena, json_integer_value(value));
    case JSON_REAL:
        return tri_tree_double(arena, json_real_value(value));
    case JSON_TRUE:
        return tri_tree_bool(arena, true);
    case JSON_FALSE:
        return tri_tree_bool(arena, false);
    case JSON_ARRAY:
        return tri_tree_list(arena);
    case JSON_OBJECT:
        return tri_tree_map(arena);
    default:
        return tri_tree_null(arena);
    }
}

static tri_status convert(reader *r, const json_t *value, int depth, tri_tree **out) {
    if (++r->nodes > TRI_MAX_TREE_NODES)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: more than %d values", r->file, TRI_MAX_TREE_NODES);
    if (depth > TRI_MAX_TREE_DEPTH)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: nested too deeply", r->file);
    *out = convert_scalar(r->arena, value);
    (*out)->file = r->file;
    return convert_items(r, value, depth, *out);
}

tri_status tri_json_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                          tri_tree **out) {
    *out = NULL;
    json_error_t error;
    json_t *value = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!value)
        return TRI_FAIL(TRI_BAD_INPUT, "%s:%d: not valid JSON: %s", file, error.line, error.text);
    reader r = {.arena = arena, .file = tri_arena_strdup(arena, file)};
    tri_status status = convert(&r, value, 1, out);
    json_decref(value);
    if (status != TRI_OK) *out = NULL;
    return status;
}

// Finds the end of the comment that begins at position `at`; returns `at` itself if no comment
// begins there, or if the comment has no end.
static size_t comment_end(const char *text, size_t size, size_t at) {
    bool is_block = at + 1 < size && text[at] == '/' && text[at + 1] == '*';
    bool is_line = text[at] == '#' || (at + 1 < size && text[at] == '/' && text[at + 1] == '/');
    if (is_line) {
        while (at < size && text[at] != '\n') at++;
    } else if (is_block) {
        const char *end = memmem(text + at + 2, size - at - 2, "*/", 2);
        at = end ? (size_t)(end - text) + 2 : at;
    }
    return at;
}

static size_t string_end(const char *text, size_t size, size_t at) {
    for (at++; at < size && text[at] != '"'; at++)
        if (text[at] == '\\') at++;
    return at < size ? at + 1 : size;
}

bool tri_json_relax(char *text, size_t size) {
    bool any = false;
    // `before`: position of the latest character that is neither blank nor in a comment (of a
    // string, its opening quote); `size`: none yet. `comma`: that position, if the character is a
    // comma that follows a value; else `size`. If a closing bracket follows such a comma, which
    // JSON does not allow, the comma is removed.
    size_t before = size, comma = size;
    for (size_t at = 0; at < size;) {
        size_t end = comment_end(text, size, at);
        if (end > at) {
            for (any = true; at < end; at++)
                if (text[at] != '\n') text[at] = ' ';
            continue;
        }
        if (strchr(" \t\r\n", text[at])) {
            at++;
            continue;
        }
        if ((text[at] == '}' || text[at] == ']') && comma < size) {
            text[comma] = ' ';
            any = true;
        }
        bool follows = before < size && !strchr("[{,:", text[before]);
        comma = text[at] == ',' && follows ? at : size;
        before = at;
        at = text[at] == '"' ? string_end(text, size, at) : at + 1;
    }
    return any;
}

tri_status tri_json_read_file(tri_arena *arena, const char *path, tri_tree **out) {
    char *text;
    size_t size;
    *out = NULL;
    TRI_TRY(tri_os_read_file(path, TRI_MAX_RECIPE_BYTES, &text, &size));
    tri_status status = tri_json_parse(arena, text, size, path, out);
    free(text);
    return status;
}

bool tri_json_is_text(const char *text) {
    json_t *value = json_string(text);
    json_decref(value);
    return value != NULL;
}
