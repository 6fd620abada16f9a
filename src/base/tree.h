// A document as a tree of maps, lists and scalars. YAML and JSON text is parsed into a tree, and
// options are read from it. Every node knows the file and line from which it came, so that an error
// can name them. All memory lies in the arena in which the tree was made.
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

enum {
    TRI_JSON_CHARACTER_BYTES = 8,
    TRI_FLOAT_DIGITS = 9, // significant digits that distinguish any two floats
};

typedef struct tri_tree tri_tree;
struct tri_tree {
    tri_tree_kind kind;
    bool quoted; // the scalar is a string even if it looks like a number
    int line;    // line number, counted from 1; 0 if it is not known
    // The file, or another source such as "override 'seed=2'"; NULL: the program made the node.
    const char *file;
    const char *key;  // if the node is an entry of a map: its key; else NULL
    const char *text; // the text of a scalar, never NULL; NULL for other nodes
    int count;        // number of entries of a list or map, which are in the order of the text
    int capacity;
    tri_tree **items;
};

// Parsers. A parser that gets the text does not open `file`: this is only the name that errors and
// nodes give, and is copied. TRI_BAD_INPUT: the message begins with "FILE:LINE: ". Rejected are:
// - more than one document, and NUL characters;
// - duplicate keys, keys that are not scalars, and tags other than !!str;
// - an alias inside the node for which it stands, because it would never end;
// - more than TRI_MAX_TREE_NODES nodes, where an alias counts as all nodes for which it stands;
// - more than TRI_MAX_TREE_KEYS keys in a map of YAML;
// - nesting deeper than TRI_MAX_TREE_DEPTH.
// Empty text is a null node. The merge key of YAML (<<) is an ordinary key.
tri_status tri_yaml_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                          tri_tree **out);
// Parses a value that does not come from a file ("override 'seed=2'"): errors and nodes name
// `source` and no line.
tri_status tri_yaml_parse_value(tri_arena *arena, const char *text, const char *source,
                                tri_tree **out);
tri_status tri_yaml_read_file(tri_arena *arena, const char *path, tri_tree **out);
// Parses JSON (RFC 8259) with the library jansson. Nodes have the file but no line, because jansson
// does not report the lines of values.
tri_status tri_json_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                          tri_tree **out);
tri_status tri_json_read_file(tri_arena *arena, const char *path, tri_tree **out);
// Replaces by blanks, in place, what people write into JSON although it is not allowed: comments
// (#, // and /* */) and a comma after the last entry. True if there was any.
bool tri_json_relax(char *text, size_t size);
// True if the text is UTF-8: only such text can be in JSON or in a safetensors header.
bool tri_json_is_text(const char *text);

// Writers. The text is deterministic, lies in the arena, and parsing it gives an equal tree. YAML:
// maps in block style, lists and everything inside them in flow style, with a line feed at the end.
// JSON: one line without a line feed. Bytes that are not UTF-8 become U+FFFD.
char *tri_yaml_emit(tri_arena *arena, const tri_tree *node);
char *tri_json_emit(tri_arena *arena, const tri_tree *node);
// Writes the character with which `text` begins as it stands between quotes in JSON, and in `out`
// ends it with a NUL. Returns how many bytes of `text` this was. For what is written without a
// tree; everything else goes through tri_json_emit.
size_t tri_json_character(const char *text, char out[TRI_JSON_CHARACTER_BYTES]);
// Writes the value in YAML's flow style, so that it fits into a line of a message.
char *tri_yaml_flow(tri_arena *arena, const tri_tree *node);

// Functions that make and change trees. Texts and keys are copied; nodes become part of the tree.
tri_tree *tri_tree_null(tri_arena *arena);
tri_tree *tri_tree_map(tri_arena *arena);
tri_tree *tri_tree_list(tri_arena *arena);
// Makes a string: "12" stays a string and is no number.
tri_tree *tri_tree_string(tri_arena *arena, const char *text);
tri_tree *tri_tree_plain(tri_arena *arena,
                         const char *text); // becomes a number or a bool if it looks like one
tri_tree *tri_tree_int(tri_arena *arena, int64_t value);
// Makes a number with the fewest digits that read back as the same value.
tri_tree *tri_tree_double(tri_arena *arena, double value);
// Makes a number with at most `digits` significant digits; a null node if it is not finite, because
// JSON has no such number.
tri_tree *tri_tree_digits(tri_arena *arena, double value, int digits);
tri_tree *tri_tree_bool(tri_arena *arena, bool value);
void tri_tree_append(tri_arena *arena, tri_tree *list, tri_tree *value);
// Adds or replaces an entry. A replaced entry keeps its position.
void tri_tree_put(tri_arena *arena, tri_tree *map, const char *key, tri_tree *value);
// Three short forms of tri_tree_put, with tri_tree_string, tri_tree_int and tri_tree_digits.
void tri_tree_put_string(tri_arena *arena, tri_tree *map, const char *key, const char *text);
void tri_tree_put_int(tri_arena *arena, tri_tree *map, const char *key, int64_t value);
void tri_tree_put_digits(tri_arena *arena, tri_tree *map, const char *key, double value,
                         int digits);
// Removes an entry. True: there was one.
bool tri_tree_remove(tri_tree *map, const char *key);
tri_tree *tri_tree_copy(tri_arena *arena, const tri_tree *node);

// Functions that read trees. tri_tree_get returns NULL if `map` has no such entry, is NULL, or is
// not a map.
tri_tree *tri_tree_get(const tri_tree *map, const char *key);
// Finds a node by its path, such as "trainer.max_epochs".
tri_tree *tri_tree_find(const tri_tree *root, const char *path);
// Finds the entry whose name is the first `length` bytes of `name`. In a map the name is a key; in
// a list it is a position, from 0. So the path of an override can lead through maps and lists:
// with a list `layers`, "layers.2.width" is key `width` of its third entry.
tri_tree *tri_tree_entry(const tri_tree *node, const char *name, size_t length);
// NULL counts as a null node.
bool tri_tree_is_null(const tri_tree *node);
// Whether the values are the same, whatever their style and the order of map entries. Numbers are
// compared as numbers.
bool tri_tree_equal(const tri_tree *a, const tri_tree *b);

// Three functions that convert a scalar to a value. False: the scalar's text does not have the
// form that the function accepts, or it is quoted and therefore a string.

// Accepts true and false, also capitalised.
bool tri_tree_to_bool(const tri_tree *node, bool *out);
// Accepts 12, -1, and also 5e8.
bool tri_tree_to_int(const tri_tree *node, int64_t *out);
// Accepts 1, 1e-3 and .5, but not inf or nan.
bool tri_tree_to_double(const tri_tree *node, double *out);

// Sets one value from "key.path=value". The value is YAML text on one line, so `data.transform=[]`
// and `optimizer.betas=[0.8,0.9]` are possible. Missing maps in the path are made; a number in the
// path is a position in an existing list. Errors and the new nodes name the override.
tri_status tri_tree_override(tri_arena *arena, tri_tree *root, const char *assignment);

// Fail with TRI_BAD_INPUT, or with `status`. The message is the node's "FILE:LINE: ", as far as
// file and line are known, and the formatted text. Use: `return tri_tree_fail(…)`.
tri_status tri_tree_fail(const tri_tree *node, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
tri_status tri_tree_fail_as(tri_status status, const tri_tree *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
