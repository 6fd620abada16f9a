// A document as a tree of maps, lists and scalars: YAML and JSON text is parsed into it, and
// options are read from it. Every node knows the file and line it came from, so that an error can
// name them. All memory lies in the arena that the tree was made in.
#ifndef TRIREME_BASE_TREE_H
#define TRIREME_BASE_TREE_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tri_tree_kind {
    TRI_TREE_NULL,
    TRI_TREE_SCALAR,
    TRI_TREE_LIST,
    TRI_TREE_MAP,
} tri_tree_kind;

typedef struct tri_tree tri_tree;
struct tri_tree {
    tri_tree_kind kind;
    bool quoted;      // a scalar that is a string even if it reads as a number
    int line;         // from 1; 0: not known
    const char *file; // or another source, such as "override 'seed=2'"; NULL: made by the program
    const char *key;  // of this entry of a map, else NULL
    const char *text; // of a scalar; never NULL there
    int count;        // entries of a list or map, in the order of the text
    int capacity;
    tri_tree **items;
};

// Parsers. `file` is copied and only named in errors and nodes; TRI_BAD_INPUT "FILE:LINE: …".
// Refused: more than one document, duplicate keys, keys that are not scalars, tags other than
// !!str, aliases inside the node they stand for, NUL characters, more than TRI_MAX_TREE_NODES nodes
// with all aliases expanded, more than TRI_MAX_TREE_KEYS keys in a map (YAML), nesting deeper than
// TRI_MAX_TREE_DEPTH. Empty text is a null node. YAML merges (<<) are ordinary keys.
tri_status tri_yaml_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                          tri_tree **out);
// Parses a value that comes from no file ("override 'seed=2'"): errors and nodes name `source` and
// no line.
tri_status tri_yaml_parse_value(tri_arena *arena, const char *text, const char *source,
                                tri_tree **out);
tri_status tri_yaml_read_file(tri_arena *arena, const char *path, tri_tree **out);
// Parses JSON (RFC 8259) through jansson; nodes carry the file but no line, because jansson does
// not tell it.
tri_status tri_json_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                          tri_tree **out);
tri_status tri_json_read_file(tri_arena *arena, const char *path, tri_tree **out);
// Blanks out, in place, what people write into JSON although it forbids it: comments (#, // and
// /* */) and a comma after the last entry. True if there was any.
bool tri_json_relax(char *text, size_t size);
// True if the text is UTF-8; else neither JSON nor a safetensors header can hold it.
bool tri_json_is_text(const char *text);

// Writers: deterministic text in the arena that parses back to an equal tree. YAML: maps in block
// style, lists and all inside them in flow style, with a line feed at the end. JSON: one line
// without a line feed.
char *tri_yaml_emit(tri_arena *arena, const tri_tree *node);
char *tri_json_emit(tri_arena *arena, const tri_tree *node);
// Writes the value in YAML's flow style, in which it can stand inside a line of a message.
char *tri_yaml_flow(tri_arena *arena, const tri_tree *node);

// Making and changing. Texts and keys are copied; nodes become part of the tree.
tri_tree *tri_tree_null(tri_arena *arena);
tri_tree *tri_tree_map(tri_arena *arena);
tri_tree *tri_tree_list(tri_arena *arena);
tri_tree *tri_tree_string(tri_arena *arena, const char *text); // stays a string: "12" is no number
tri_tree *tri_tree_plain(tri_arena *arena,
                         const char *text); // a number or a bool where it reads so
tri_tree *tri_tree_int(tri_arena *arena, int64_t value);
tri_tree *tri_tree_double(tri_arena *arena, double value); // shortest text that reads back the same
tri_tree *tri_tree_bool(tri_arena *arena, bool value);
void tri_tree_append(tri_arena *arena, tri_tree *list, tri_tree *value);
// Adds or replaces an entry; one that is replaced keeps its position.
void tri_tree_put(tri_arena *arena, tri_tree *map, const char *key, tri_tree *value);
bool tri_tree_remove(tri_tree *map, const char *key); // true if it was there
tri_tree *tri_tree_copy(tri_arena *arena, const tri_tree *node);

// Reading. A node that is NULL or no map has no entries.
tri_tree *tri_tree_get(const tri_tree *map, const char *key);
tri_tree *tri_tree_find(const tri_tree *root, const char *path); // "trainer.max_epochs"
// Finds the entry that the first `length` bytes of `name` name: by key in a map, by position in a
// list. So one word of an override's path can name either.
tri_tree *tri_tree_entry(const tri_tree *node, const char *name, size_t length);
bool tri_tree_is_null(const tri_tree *node); // NULL counts
// Whether the values are the same, whatever the style and the order of map entries. Numbers compare
// as numbers.
bool tri_tree_equal(const tri_tree *a, const tri_tree *b);

// The scalar as a value; false if it cannot be read as one. A quoted scalar is always a string.
bool tri_tree_to_bool(const tri_tree *node, bool *out);     // true, false (also capitalised)
bool tri_tree_to_int(const tri_tree *node, int64_t *out);   // 12, -1, also 5e8
bool tri_tree_to_double(const tri_tree *node, double *out); // 1, 1e-3, .5; not inf or nan

// Sets one value from "key.path=value": the value is YAML text on one line, so `data.transform=[]`,
// `optimizer.betas=[0.8,0.9]`. Missing maps on the way are made; a number in the path is a
// position in an existing list. Errors and the new nodes name the override.
tri_status tri_tree_override(tri_arena *arena, tri_tree *root, const char *assignment);

// Fails with TRI_BAD_INPUT (or `status`), "FILE:LINE: " and the text. Use as `return
// tri_tree_fail(…)`.
tri_status tri_tree_fail(const tri_tree *node, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
tri_status tri_tree_fail_as(tri_status status, const tri_tree *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
