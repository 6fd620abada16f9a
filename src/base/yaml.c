// Parses YAML: builds a tree (base/tree.h) from libyaml's events. Limits are checked while the tree
// grows. Each alias counts as all nodes for which it stands, because with aliases of aliases a few
// hundred bytes could become gigabytes.
#include "base/limits.h"
#include "base/os.h"
#include "base/tree.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

typedef struct anchor {
    const char *name;
    const tri_tree *node; // NULL while the node is being read: an alias to it would never end
} anchor;

typedef struct reader {
    tri_arena *arena;
    yaml_parser_t parser;
    const char *file;
    bool has_lines; // false for a value that does not come from a file
    int nodes;
    anchor *anchors;
    int anchor_count, anchor_capacity;
} reader;

static tri_status fail_at(const reader *r, size_t line, const char *text) {
    tri_tree node = {.file = r->file, .line = r->has_lines ? (int)line + 1 : 0};
    return tri_tree_fail(&node, "%s", text);
}

static tri_status next_event(reader *r, yaml_event_t *event) {
    if (yaml_parser_parse(&r->parser, event)) return TRI_OK;
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory", r->file);
    char text[256];
    bool is_tab = p->error == YAML_SCANNER_ERROR && *p->buffer.pointer == '\t';
    snprintf(text, sizeof text, "not valid YAML: %s%s%s%s",
             p->problem ? p->problem : "syntax error", p->context ? " " : "",
             p->context ? p->context : "", is_tab ? ": indent with spaces, not with a tab" : "");
    return fail_at(r, p->error == YAML_READER_ERROR ? p->mark.line : p->problem_mark.line, text);
}

static tri_status count_node(reader *r, size_t line) {
    if (++r->nodes <= TRI_MAX_TREE_NODES) return TRI_OK;
    char text[96];
    snprintf(text, sizeof text, "more than %d values, aliases expanded", TRI_MAX_TREE_NODES);
    return fail_at(r, line, text);
}

static tri_tree *new_node(reader *r, tri_tree_kind kind, size_t line) {
    tri_tree *node = TRI_NEW(r->arena, tri_tree);
    node->kind = kind;
    node->file = r->file;
    node->line = r->has_lines ? (int)line + 1 : 0;
    return node;
}

static bool is_null_word(const char *text) {
    return !*text || !strcmp(text, "~") || !strcmp(text, "null") || !strcmp(text, "Null") ||
           !strcmp(text, "NULL");
}

static tri_status copy_text(reader *r, const yaml_event_t *event, const char **out) {
    const char *text = (const char *)event->data.scalar.value;
    if (strlen(text) != event->data.scalar.length)
        return fail_at(r, event->start_mark.line, "a NUL character in a value");
    *out = tri_arena_strdup(r->arena, text);
    return TRI_OK;
}

static tri_status check_tag(const reader *r, const yaml_event_t *event, const yaml_char_t *tag) {
    if (!tag || !strcmp((const char *)tag, YAML_STR_TAG) || !strcmp((const char *)tag, "!"))
        return TRI_OK;
    return fail_at(r, event->start_mark.line,
                   "tags are not read here: leave the '!' out or quote it");
}

enum { NO_ANCHOR = -1 };

// Records the anchor of a node before the node is read, so that a later alias finds it. The caller
// fills in the node. *out: the anchor's index; NO_ANCHOR: the node has none (`name` is NULL).
static tri_status add_anchor(reader *r, const yaml_char_t *name, size_t line, int *out) {
    *out = NO_ANCHOR;
    if (!name) return TRI_OK;
    if (r->anchor_count == TRI_MAX_TREE_ANCHORS) return fail_at(r, line, "too many anchors");
    *out = r->anchor_count;
    TRI_PUSH(r->arena, r->anchors, r->anchor_count, r->anchor_capacity) =
        (anchor){.name = tri_arena_strdup(r->arena, (const char *)name)};
    return TRI_OK;
}

// Copies the node for which an alias stands, with everything inside it. Two places cannot share one
// node: a node stores the key under which it stands, and an override of the recipe may later change
// one place only. Copies share their texts, and count towards TRI_MAX_TREE_NODES. `depth` is the
// depth of the copy.
static tri_status expand(reader *r, const tri_tree *from, size_t line, int depth, tri_tree **out) {
    TRI_TRY(count_node(r, line));
    if (depth > TRI_MAX_TREE_DEPTH) return fail_at(r, line, "nested too deeply, aliases expanded");
    tri_tree *node = TRI_NEW(r->arena, tri_tree);
    *node = *from;
    node->items = TRI_NEW_ARRAY(r->arena, tri_tree *, from->count);
    node->capacity = from->count;
    *out = node;
    for (int i = 0; i < from->count; i++)
        TRI_TRY(expand(r, from->items[i], line, depth + 1, &node->items[i]));
    return TRI_OK;
}

static tri_status read_alias(reader *r, const yaml_event_t *event, int depth, tri_tree **out) {
    const char *name = (const char *)event->data.alias.anchor;
    size_t line = event->start_mark.line;
    // The search goes backwards, because the latest anchor of a name is the valid one.
    for (int i = r->anchor_count - 1; i >= 0; i--) {
        if (strcmp(r->anchors[i].name, name) != 0) continue;
        if (!r->anchors[i].node) return fail_at(r, line, "an alias inside the node it stands for");
        TRI_TRY(expand(r, r->anchors[i].node, line, depth, out));
        (*out)->key = NULL;
        return TRI_OK;
    }
    return fail_at(r, line, "an alias without its anchor");
}

static tri_status read_scalar(reader *r, const yaml_event_t *event, tri_tree **out) {
    TRI_TRY(count_node(r, event->start_mark.line));
    TRI_TRY(check_tag(r, event, event->data.scalar.tag));
    int index;
    TRI_TRY(add_anchor(r, event->data.scalar.anchor, event->start_mark.line, &index));
    tri_tree *node = new_node(r, TRI_TREE_SCALAR, event->start_mark.line);
    TRI_TRY(copy_text(r, event, &node->text));
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE || event->data.scalar.tag;
    if (!node->quoted && is_null_word(node->text)) {
        node->kind = TRI_TREE_NULL;
        node->text = NULL;
    }
    if (index != NO_ANCHOR) r->anchors[index].node = node;
    *out = node;
    return TRI_OK;
}

static tri_status read_node(reader *r, yaml_event_t *event, int depth, tri_tree **out);

static tri_status read_list(reader *r, const yaml_event_t *start, int depth, tri_tree **out) {
    tri_tree *list = new_node(r, TRI_TREE_LIST, start->start_mark.line);
    for (;;) {
        yaml_event_t event;
        TRI_TRY(next_event(r, &event));
        if (event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            break;
        }
        tri_tree *item;
        TRI_TRY(read_node(r, &event, depth + 1, &item));
        tri_tree_append(r->arena, list, item);
    }
    *out = list;
    return TRI_OK;
}

static int by_key_then_line(const void *a, const void *b) {
    const tri_tree *x = *(tri_tree *const *)a, *y = *(tri_tree *const *)b;
    int order = strcmp(x->key, y->key);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

static tri_status refuse_duplicates(const reader *r, const tri_tree *map) {
    if (map->count < 2) return TRI_OK;
    tri_tree **sorted = TRI_NEW_ARRAY(r->arena, tri_tree *, map->count);
    memcpy(sorted, map->items, (size_t)map->count * sizeof *sorted);
    qsort(sorted, (size_t)map->count, sizeof *sorted, by_key_then_line);
    for (int i = 1; i < map->count; i++)
        if (!strcmp(sorted[i - 1]->key, sorted[i]->key))
            return tri_tree_fail(sorted[i], "the key '%.100s' is there twice", sorted[i]->key);
    return TRI_OK;
}

static tri_status read_key(reader *r, yaml_event_t *event, const char **out) {
    tri_status status;
    if (event->type != YAML_SCALAR_EVENT)
        status = fail_at(r, event->start_mark.line, "a key has to be plain text");
    else
        status = copy_text(r, event, out);
    yaml_event_delete(event);
    return status;
}

static tri_status read_map(reader *r, const yaml_event_t *start, int depth, tri_tree **out) {
    tri_tree *map = new_node(r, TRI_TREE_MAP, start->start_mark.line);
    for (;;) {
        yaml_event_t event;
        TRI_TRY(next_event(r, &event));
        if (event.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&event);
            break;
        }
        size_t line = event.start_mark.line;
        const char *key = NULL;
        if (map->count == TRI_MAX_TREE_KEYS) {
            yaml_event_delete(&event);
            return fail_at(r, line, "too many keys in one mapping");
        }
        TRI_TRY(read_key(r, &event, &key));
        TRI_TRY(next_event(r, &event));
        tri_tree *value;
        TRI_TRY(read_node(r, &event, depth + 1, &value));
        value->key = key;
        if (r->has_lines) value->line = (int)line + 1; // errors should name the line of the key
        TRI_PUSH(r->arena, map->items, map->count, map->capacity) = value;
    }
    *out = map;
    return refuse_duplicates(r, map);
}

static tri_status read_collection(reader *r, const yaml_event_t *event, int depth, tri_tree **out) {
    bool is_map = event->type == YAML_MAPPING_START_EVENT;
    const yaml_char_t *tag =
        is_map ? event->data.mapping_start.tag : event->data.sequence_start.tag;
    size_t line = event->start_mark.line;
    TRI_TRY(count_node(r, line));
    if (tag) return fail_at(r, line, "tags are not read here: leave the '!' out or quote it");
    if (depth > TRI_MAX_TREE_DEPTH) return fail_at(r, line, "nested too deeply");
    int index;
    const yaml_char_t *name =
        is_map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor;
    TRI_TRY(add_anchor(r, name, line, &index));
    TRI_TRY(is_map ? read_map(r, event, depth, out) : read_list(r, event, depth, out));
    if (index != NO_ANCHOR) r->anchors[index].node = *out;
    return TRI_OK;
}

// Reads the node that begins with `event`, and deletes the event.
static tri_status read_node(reader *r, yaml_event_t *event, int depth, tri_tree **out) {
    tri_status status;
    if (event->type == YAML_ALIAS_EVENT)
        status = read_alias(r, event, depth, out);
    else if (event->type == YAML_SCALAR_EVENT)
        status = read_scalar(r, event, out);
    else
        status = read_collection(r, event, depth, out);
    yaml_event_delete(event);
    return status;
}

static tri_status read_document(reader *r, tri_tree **out) {
    yaml_event_t event;
    bool found = false;
    *out = new_node(r, TRI_TREE_NULL, 0);
    for (;;) {
        TRI_TRY(next_event(r, &event));
        yaml_event_type_t type = event.type;
        size_t line = event.start_mark.line;
        if (type == YAML_STREAM_END_EVENT || type == YAML_STREAM_START_EVENT ||
            type == YAML_DOCUMENT_START_EVENT || type == YAML_DOCUMENT_END_EVENT) {
            yaml_event_delete(&event);
            if (type == YAML_STREAM_END_EVENT) return TRI_OK;
            if (type == YAML_DOCUMENT_START_EVENT && found)
                return fail_at(r, line, "a second document: one file is one document");
            continue;
        }
        found = true;
        TRI_TRY(read_node(r, &event, 1, out));
    }
}

static tri_status parse(tri_arena *arena, const char *text, size_t size, const char *file,
                        bool has_lines, tri_tree **out) {
    *out = NULL;
    reader r = {.arena = arena, .file = tri_arena_strdup(arena, file), .has_lines = has_lines};
    if (memchr(text, 0, size))
        return TRI_FAIL(TRI_BAD_INPUT, "%s: holds NUL bytes: not text", file);
    if (!yaml_parser_initialize(&r.parser)) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory", file);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, size);
    tri_status status = read_document(&r, out);
    yaml_parser_delete(&r.parser);
    if (status != TRI_OK) *out = NULL;
    return status;
}

tri_status tri_yaml_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                          tri_tree **out) {
    return parse(arena, text, size, file, true, out);
}

tri_status tri_yaml_parse_value(tri_arena *arena, const char *text, const char *source,
                                tri_tree **out) {
    return parse(arena, text, strlen(text), source, false, out);
}

tri_status tri_yaml_read_file(tri_arena *arena, const char *path, tri_tree **out) {
    char *text;
    size_t size;
    *out = NULL;
    TRI_TRY(tri_os_read_file(path, TRI_MAX_RECIPE_BYTES, &text, &size));
    tri_status status = tri_yaml_parse(arena, text, size, path, out);
    free(text);
    return status;
}
