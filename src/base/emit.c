// Writes trees (documents of maps, lists and scalars, base/tree.h) as YAML and JSON text.
#include "base/tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text_buffer {
    tri_arena *arena;
    char *items;
    int count, capacity;
} text_buffer;

static void add(text_buffer *b, const char *text) {
    for (; *text; text++) TRI_PUSH(b->arena, b->items, b->count, b->capacity) = *text;
}

static char *finish(text_buffer *b) {
    TRI_PUSH(b->arena, b->items, b->count, b->capacity) = 0;
    return b->items;
}

// The number of bytes of the character of UTF-8 with which `text` begins; 0: it is not UTF-8.
static size_t character_bytes(const unsigned char *text) {
    size_t length = *text < 0x80 ? 1 : *text >= 0xf0 ? 4 : *text >= 0xe0 ? 3 : 2;
    // Excluded are bytes that begin no character, and longer forms than necessary.
    bool starts = *text < 0x80 || (*text >= 0xc2 && *text <= 0xf4);
    if ((*text == 0xe0 && text[1] < 0xa0) || (*text == 0xf0 && text[1] < 0x90)) starts = false;
    // Excluded too are surrogates, and what lies beyond U+10FFFF.
    if ((*text == 0xed && text[1] > 0x9f) || (*text == 0xf4 && text[1] > 0x8f)) starts = false;
    for (size_t i = 1; starts && i < length; i++) starts = text[i] >> 6 == 2;
    return starts ? length : 0;
}

// The same escapes do for YAML, because all escapes of JSON are also escapes in YAML's double
// quotes.
size_t tri_json_character(const char *text, char out[TRI_JSON_CHARACTER_BYTES]) {
    unsigned char c = (unsigned char)*text;
    size_t length = character_bytes((const unsigned char *)text);
    if (length == 0)
        snprintf(out, TRI_JSON_CHARACTER_BYTES, "\uFFFD");
    else if (c == '"' || c == '\\')
        snprintf(out, TRI_JSON_CHARACTER_BYTES, "\\%c", c);
    else if (c == '\n' || c == '\t')
        snprintf(out, TRI_JSON_CHARACTER_BYTES, "\\%c", c == '\n' ? 'n' : 't');
    else if (c < ' ' || c == 0x7f)
        snprintf(out, TRI_JSON_CHARACTER_BYTES, "\\u%04x", c);
    else
        snprintf(out, TRI_JSON_CHARACTER_BYTES, "%.*s", (int)length, text);
    return length ? length : 1;
}

static void add_quoted(text_buffer *b, const char *text) {
    char character[TRI_JSON_CHARACTER_BYTES];
    add(b, "\"");
    while (*text) {
        text += tri_json_character(text, character);
        add(b, character);
    }
    add(b, "\"");
}

// True if the text needs no quotes in YAML because it has only letters, digits and the characters
// of paths and names. A text with any other character is quoted, because most other characters have
// a meaning somewhere in YAML.
static bool is_safe_plain(const char *text) {
    static const char safe[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
    if (!*text || text[strspn(text, safe)]) return false;
    if (*text == '-' || *text == '.') // "-", "---" and "..." have a meaning in YAML
        return strspn(text, "-.") < strlen(text) && text[1] != '-' && text[1] != '.';
    return true;
}

static bool reads_as_other_than_string(const char *text) {
    tri_tree plain = {.kind = TRI_TREE_SCALAR, .text = text};
    bool truth;
    double number;
    return tri_tree_to_bool(&plain, &truth) || tri_tree_to_double(&plain, &number) ||
           !strcmp(text, "null") || !strcmp(text, "Null") || !strcmp(text, "NULL");
}

static void add_yaml_scalar(text_buffer *b, const tri_tree *node) {
    bool plain =
        is_safe_plain(node->text) && (!node->quoted || !reads_as_other_than_string(node->text));
    if (plain)
        add(b, node->text);
    else
        add_quoted(b, node->text);
}

static void add_yaml_key(text_buffer *b, const char *key) {
    if (is_safe_plain(key))
        add(b, key);
    else
        add_quoted(b, key);
}

static void add_flow(text_buffer *b, const tri_tree *node) {
    if (node->kind == TRI_TREE_NULL) {
        add(b, "null");
    } else if (node->kind == TRI_TREE_SCALAR) {
        add_yaml_scalar(b, node);
    } else {
        bool is_map = node->kind == TRI_TREE_MAP;
        add(b, is_map ? "{" : "[");
        for (int i = 0; i < node->count; i++) {
            if (i) add(b, ", ");
            if (is_map) {
                add_yaml_key(b, node->items[i]->key);
                add(b, ": ");
            }
            add_flow(b, node->items[i]);
        }
        add(b, is_map ? "}" : "]");
    }
}

static void add_block(text_buffer *b, const tri_tree *map, int level) {
    for (int i = 0; i < map->count; i++) {
        const tri_tree *value = map->items[i];
        for (int s = 0; s < level; s++) add(b, "  ");
        add_yaml_key(b, value->key);
        if (value->kind == TRI_TREE_MAP && value->count > 0) {
            add(b, ":\n");
            add_block(b, value, level + 1);
        } else {
            add(b, ": ");
            add_flow(b, value);
            add(b, "\n");
        }
    }
}

char *tri_yaml_emit(tri_arena *arena, const tri_tree *node) {
    text_buffer b = {.arena = arena};
    if (node->kind == TRI_TREE_MAP && node->count > 0) {
        add_block(&b, node, 0);
    } else {
        add_flow(&b, node);
        add(&b, "\n");
    }
    return finish(&b);
}

char *tri_yaml_flow(tri_arena *arena, const tri_tree *node) {
    text_buffer b = {.arena = arena};
    add_flow(&b, node);
    return finish(&b);
}

// Writes a number in JSON. If the node's text is a number by the rules of JSON, the text is written
// unchanged, so that no digit changes. Other texts ("+1", ".5", "007") are converted.
static void add_json_number(text_buffer *b, const tri_tree *node, double value) {
    const char *text = node->text + (node->text[0] == '-');
    size_t whole = strspn(text, "0123456789");
    bool fits = whole > 0 && (whole == 1 || text[0] != '0');
    if (text[whole] == '.') fits = fits && strspn(text + whole + 1, "0123456789") > 0;
    if (fits) {
        add(b, node->text);
        return;
    }
    int64_t integer;
    bool is_int = tri_tree_to_int(node, &integer);
    add(b, (is_int ? tri_tree_int(b->arena, integer) : tri_tree_double(b->arena, value))->text);
}

static void add_json(text_buffer *b, const tri_tree *node) {
    bool truth;
    double number;
    if (node->kind == TRI_TREE_NULL) {
        add(b, "null");
    } else if (node->kind == TRI_TREE_SCALAR) {
        if (tri_tree_to_bool(node, &truth))
            add(b, truth ? "true" : "false");
        else if (tri_tree_to_double(node, &number))
            add_json_number(b, node, number);
        else
            add_quoted(b, node->text);
    } else {
        bool is_map = node->kind == TRI_TREE_MAP;
        add(b, is_map ? "{" : "[");
        for (int i = 0; i < node->count; i++) {
            if (i) add(b, ",");
            if (is_map) {
                add_quoted(b, node->items[i]->key);
                add(b, ":");
            }
            add_json(b, node->items[i]);
        }
        add(b, is_map ? "}" : "]");
    }
}

char *tri_json_emit(tri_arena *arena, const tri_tree *node) {
    text_buffer b = {.arena = arena};
    add_json(&b, node);
    return finish(&b);
}
