// Patterns of operations: their texts, and where they match.
#include "nn/exported/match.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum term_kind { CALL, CHOICE, LIST, NUMBER, TEXT, NOTHING, VARIABLE } term_kind;

struct exported_term {
    term_kind kind;
    const char *name;     // of an operation or a variable; a text
    const char *argument; // the name of the argument that it is; NULL: it goes by its place
    bool is_optional;     // an operation that may be missing
    int result;           // which one of the operation's
    double number;
    int count;
    exported_term *items[EXPORTED_MAX_TERMS];
};

typedef struct parser {
    tri_arena *arena;
    const char *at;
} parser;

static bool take(parser *p, char c) {
    while (*p->at == ' ') p->at++;
    if (*p->at != c) return false;
    p->at++;
    return true;
}

static const char *word(parser *p) {
    size_t length = 0;
    while (*p->at == ' ') p->at++;
    while (p->at[length] && (isalnum((unsigned char)p->at[length]) || strchr("_.", p->at[length])))
        length++;
    p->at += length;
    return tri_arena_printf(p->arena, "%.*s", (int)length, p->at - length);
}

static exported_term *parse(parser *p);

static void parse_items(parser *p, exported_term *t, char between, char end) {
    while (!take(p, end)) {
        TRI_ASSERT(*p->at && t->count < EXPORTED_MAX_TERMS);
        t->items[t->count++] = parse(p);
        take(p, between);
    }
}

static void parse_name(parser *p, exported_term *t) {
    static const char *const numbers[] = {"False", "True"};
    t->name = word(p);
    TRI_ASSERT(*t->name);
    if (take(p, '=')) {
        const char *argument = t->name;
        *t = *parse(p);
        t->argument = argument;
        return;
    }
    t->kind = VARIABLE;
    if (!strcmp(t->name, "None")) t->kind = NOTHING;
    for (int k = 0; k < 2; k++)
        if (!strcmp(t->name, numbers[k])) t->kind = NUMBER, t->number = k;
    t->is_optional = take(p, '?');
    if (!take(p, '(')) return;
    t->kind = CALL;
    parse_items(p, t, ',', ')');
    if (take(p, '.')) t->result = *p->at++ - '0';
}

static exported_term *parse(parser *p) {
    exported_term *t = TRI_NEW(p->arena, exported_term);
    *t = (exported_term){.kind = LIST};
    if (take(p, '[')) {
        parse_items(p, t, ',', ']');
    } else if (take(p, '{')) {
        t->kind = CHOICE;
        parse_items(p, t, '|', '}');
    } else if (take(p, '\'')) {
        t->kind = TEXT;
        t->name = word(p);
        take(p, '\'');
    } else if (isdigit((unsigned char)*p->at) || *p->at == '-') {
        char *end;
        t->kind = NUMBER;
        t->number = strtod(p->at, &end);
        p->at = end;
    } else {
        parse_name(p, t);
    }
    return t;
}

const exported_term *exported_parse_pattern(tri_arena *arena, const char *text) {
    parser p = {arena, text};
    const exported_term *t = parse(&p);
    TRI_ASSERT(!*p.at);
    return t;
}

const tri_pt2_argument *exported_bound(const exported_match *m, const char *name) {
    for (int i = 0; i < m->variable_count; i++)
        if (!strcmp(m->variables[i].name, name)) return &m->variables[i].value;
    return NULL;
}

void exported_bind_variable(exported_match *m, const char *name, tri_pt2_argument value) {
    TRI_ASSERT(m->variable_count < EXPORTED_MAX_VARIABLES);
    m->variables[m->variable_count++] = (exported_variable){name, value};
}

const tri_pt2_value *exported_bound_tensor(const exported_match *m, const char *name) {
    const tri_pt2_argument *a = exported_bound(m, name);
    if (!a || a->kind != TRI_PT2_VALUE) return NULL;
    const tri_pt2_value *v = &m->network->file.values[a->number];
    return v->is_tensor && v->rank <= EXPORTED_MAX_RANK ? v : NULL;
}

static bool is_number(const tri_pt2_argument *a, double *out) {
    *out = a->kind == TRI_PT2_FLOAT ? a->real : (double)a->number;
    return a->kind == TRI_PT2_FLOAT || a->kind == TRI_PT2_INT || a->kind == TRI_PT2_BOOL;
}

bool exported_bound_number(const exported_match *m, const char *name, double *out) {
    const tri_pt2_argument *a = exported_bound(m, name);
    return a && is_number(a, out);
}

bool exported_is_called(const tri_pt2_node *node, const char *name) {
    static const char *const spaces[] = {"aten.", "fused."};
    size_t length = strlen(name), before = 0;
    for (int i = 0; i < 2 && before == 0; i++)
        if (!strncmp(node->target, spaces[i], strlen(spaces[i]))) before = strlen(spaces[i]);
    if (before == 0 || strncmp(node->target + before, name, length) != 0) return false;
    const char *rest = node->target + before + length;
    return *rest == '.' || (rest[0] == '_' && rest[1] == '.');
}

// Whether two values have the same sizes; at most one of which is not fixed.
static bool has_same_sizes(const tri_pt2_value *a, const tri_pt2_value *b) {
    int open = 0;
    if (!a->is_tensor || !b->is_tensor || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++) {
        if (a->sizes[i] != b->sizes[i]) return false;
        open += a->sizes[i] < 0;
    }
    return open <= 1;
}

static int64_t int_at(const tri_pt2_node *node, int place, int64_t otherwise) {
    bool is_int = place < node->argument_count && node->arguments[place].kind == TRI_PT2_INT;
    return is_int ? node->arguments[place].number : otherwise;
}

// Whether a slice whose result has the sizes of x is all of x: its axis has a fixed size, or is
// taken whole. Sizes that are not fixed are equal here even if the slice is shorter.
static bool takes_all(const tri_pt2_value *x, const tri_pt2_node *node) {
    int64_t axis = int_at(node, 1, 0);
    if (axis < 0) axis += x->rank;
    if (axis < 0 || axis >= x->rank) return false;
    bool is_plain = true; // all that is given are whole numbers
    for (int i = 1; i < node->argument_count; i++)
        is_plain = is_plain && (node->arguments[i].kind == TRI_PT2_INT ||
                                node->arguments[i].kind == TRI_PT2_NONE);
    return x->sizes[axis] >= 0 ||
           (is_plain && int_at(node, 2, 0) == 0 && int_at(node, 3, INT64_MAX) == INT64_MAX &&
            int_at(node, 4, 1) == 1);
}

// Whether the node's result is its first argument, but for types of floating point.
static bool changes_nothing(const nn_exported *n, const tri_pt2_node *node) {
    static const char *const copies[] = {"to",    "_to_copy", "contiguous",      "clone",
                                         "alias", "float",    "lift_fresh_copy", "type_as"};
    static const char *const shapes[] = {"slice", "view", "reshape", "expand"};
    if (node->argument_count < 1 || node->arguments[0].kind != TRI_PT2_VALUE ||
        node->output_count != 1 || node->outputs[0].kind != TRI_PT2_VALUE)
        return false;
    const tri_pt2_value *x = &n->file.values[node->arguments[0].number],
                        *y = &n->file.values[node->outputs[0].number];
    if (!exported_type_is_float(x->dtype) || !exported_type_is_float(y->dtype)) return false;
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
        if (exported_is_called(node, copies[i])) return true;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (exported_is_called(node, shapes[i]))
            return has_same_sizes(x, y) && (i > 0 || takes_all(x, node));
    return false;
}

static bool add_node(exported_match *m, int node) {
    for (int i = 0; i < m->node_count; i++)
        if (m->nodes[i] == node) return true;
    if (m->node_count == EXPORTED_MAX_MATCHED) return false;
    m->nodes[m->node_count++] = node;
    return true;
}

// The value of which `value` is a copy. `notes`: nodes between them become part of the match.
static int source_of(exported_match *m, int value, bool notes) {
    const nn_exported *n = m->network;
    int maker = n->makers[value];
    while (maker >= 0 && changes_nothing(n, &n->file.nodes[maker])) {
        if (notes && !add_node(m, maker)) return value;
        value = (int)n->file.nodes[maker].arguments[0].number;
        maker = n->makers[value];
    }
    return value;
}

static bool is_same(const tri_pt2_argument *a, const tri_pt2_argument *b) {
    double x, y;
    if (is_number(a, &x) && is_number(b, &y)) return x == y;
    if (a->kind != b->kind || a->count != b->count) return false;
    for (int i = 0; i < a->count; i++)
        if (!is_same(&a->items[i], &b->items[i])) return false;
    return a->kind == TRI_PT2_TEXT ? !strcmp(a->text, b->text) : a->number == b->number;
}

// Whether an argument says nothing but where and in which type results lie.
static bool is_idle(const tri_pt2_argument *a) {
    static const char *const names[] = {"dtype",         "layout",       "device",   "pin_memory",
                                        "memory_format", "non_blocking", "implicit", "enable_gqa"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(a->name, names[i])) return true;
    return a->kind == TRI_PT2_NONE || a->kind == TRI_PT2_OTHER;
}

static bool match(exported_match *m, const exported_term *t, const tri_pt2_argument *a, int rank);

static const tri_pt2_argument *named(const tri_pt2_node *node, const char *name) {
    for (int i = 0; i < node->argument_count; i++)
        if (!strcmp(node->arguments[i].name, name)) return &node->arguments[i];
    return NULL;
}

// Matches the arguments, of which the first two may be exchanged. Each of the node's arguments is
// either in the pattern or idle.
static bool match_arguments(exported_match *m, const exported_term *t, const tri_pt2_node *node,
                            bool exchanged) {
    const tri_pt2_value *first = node->arguments[0].kind == TRI_PT2_VALUE
                                     ? &m->network->file.values[node->arguments[0].number]
                                     : NULL;
    int rank = first ? first->rank : 0, found = 0, idle = 0;
    for (int k = 0; k < t->count; k++) {
        const exported_term *item = t->items[k];
        int place = exchanged && k < 2 ? 1 - k : k;
        const tri_pt2_argument *a = item->argument                 ? named(node, item->argument)
                                    : place < node->argument_count ? &node->arguments[place]
                                                                   : NULL;
        // A variable without a value may be left out; a number is not the argument's default.
        if (!a && item->argument && item->kind == VARIABLE) continue;
        if (!a || !match(m, item, a, rank)) return false;
        found++;
    }
    for (int i = 0; i < node->argument_count; i++) {
        bool is_mentioned = i < t->count && !t->items[i]->argument;
        for (int k = 0; k < t->count; k++)
            is_mentioned =
                is_mentioned ||
                (t->items[k]->argument && !strcmp(t->items[k]->argument, node->arguments[i].name));
        idle += !is_mentioned && is_idle(&node->arguments[i]);
    }
    return found + idle == node->argument_count;
}

static bool makes(const tri_pt2_node *node, int result, int value) {
    const tri_pt2_argument *out = node->outputs;
    int count = node->output_count;
    if (count == 1 && out->kind == TRI_PT2_LIST) count = out->count, out = out->items;
    return result < count && out[result].kind == TRI_PT2_VALUE && out[result].number == value;
}

// Takes back what was found since.
static bool undo(exported_match *m, int variables, int nodes) {
    m->variable_count = variables;
    m->node_count = nodes;
    return false;
}

static bool match_node(exported_match *m, const exported_term *t, int value) {
    int maker = m->network->makers[value], variables = m->variable_count, nodes = m->node_count;
    const tri_pt2_node *node = maker >= 0 ? &m->network->file.nodes[maker] : NULL;
    if (!node || !exported_is_called(node, t->name) || !makes(node, t->result, value) ||
        node->argument_count < 1 || !add_node(m, maker))
        return undo(m, variables, nodes);
    nodes = m->node_count;
    if (match_arguments(m, t, node, false)) return true;
    undo(m, variables, nodes);
    bool commutes = !strcmp(t->name, "add") || !strcmp(t->name, "mul");
    return commutes && node->argument_count >= 2 && match_arguments(m, t, node, true);
}

static bool match_call(exported_match *m, const exported_term *t, const tri_pt2_argument *a,
                       int rank) {
    int variables = m->variable_count, nodes = m->node_count;
    if (a->kind != TRI_PT2_VALUE) return false;
    if (match_node(m, t, source_of(m, (int)a->number, true))) return true;
    undo(m, variables, nodes);
    return t->is_optional && match(m, t->items[0], a, rank);
}

static bool match_number(const exported_term *t, const tri_pt2_argument *a, int rank) {
    double x;
    if (!is_number(a, &x)) return false;
    bool is_axis = t->number < 0 && a->kind == TRI_PT2_INT && x == t->number + rank;
    return is_axis || fabs(x - t->number) <= 1e-6 * fabs(t->number);
}

static bool match_list(exported_match *m, const exported_term *t, const tri_pt2_argument *a,
                       int rank) {
    if (a->kind != TRI_PT2_LIST || a->count != t->count) return false;
    for (int i = 0; i < t->count; i++)
        if (!match(m, t->items[i], &a->items[i], rank)) return false;
    return true;
}

static bool match_variable(exported_match *m, const exported_term *t, const tri_pt2_argument *a) {
    const tri_pt2_argument *known = exported_bound(m, t->name);
    tri_pt2_argument value = *a;
    if (a->kind == TRI_PT2_NONE) return !known;
    if (a->kind == TRI_PT2_VALUE) value.number = source_of(m, (int)a->number, false);
    if (known) return is_same(known, &value);
    if (m->variable_count == EXPORTED_MAX_VARIABLES) return false;
    exported_bind_variable(m, t->name, value);
    return true;
}

// rank: of the first argument of the node whose argument `a` is.
static bool match(exported_match *m, const exported_term *t, const tri_pt2_argument *a, int rank) {
    int variables = m->variable_count, nodes = m->node_count;
    switch (t->kind) {
    case CALL:
        return match_call(m, t, a, rank);
    case CHOICE:
        for (int k = 0; k < t->count; k++) {
            if (match(m, t->items[k], a, rank)) return true;
            undo(m, variables, nodes);
        }
        return false;
    case LIST:
        return match_list(m, t, a, rank);
    case NUMBER:
        return match_number(t, a, rank);
    case TEXT:
        return a->kind == TRI_PT2_TEXT && !strcmp(a->text, t->name);
    case NOTHING:
        return a->kind == TRI_PT2_NONE;
    case VARIABLE:
        return match_variable(m, t, a);
    }
    return false;
}

static int count_reads(const tri_pt2_argument *a, int count, int value) {
    int reads = 0;
    for (int i = 0; i < count; i++) {
        reads += a[i].kind == TRI_PT2_VALUE && a[i].number == value;
        if (a[i].kind == TRI_PT2_LIST) reads += count_reads(a[i].items, a[i].count, value);
    }
    return reads;
}

// Whether nothing but the match's nodes reads what those before the root make.
static bool is_alone(const exported_match *m, const tri_pt2_argument *outputs, int count) {
    for (int i = 0; i < count; i++) {
        const tri_pt2_argument *a = &outputs[i];
        if (a->kind == TRI_PT2_LIST && !is_alone(m, a->items, a->count)) return false;
        if (a->kind != TRI_PT2_VALUE) continue;
        int reads = 0;
        for (int k = 0; k < m->node_count; k++) {
            const tri_pt2_node *node = &m->network->file.nodes[m->nodes[k]];
            reads += count_reads(node->arguments, node->argument_count, (int)a->number);
        }
        if (reads != m->uses[a->number]) return false;
    }
    return true;
}

static bool match_root(exported_match *m, const exported_term *t, int value) {
    bool found = t->kind == CALL && match_node(m, t, value);
    for (int k = 0; t->kind == CHOICE && k < t->count && !found; k++) {
        undo(m, 0, 0);
        found = match_root(m, t->items[k], value);
    }
    return found;
}

bool exported_match_node(nn_exported *n, const exported_term *pattern, int root, const int *uses,
                         exported_match *out) {
    const tri_pt2_node *node = &n->file.nodes[root];
    *out = (exported_match){.network = n, .uses = uses, .root = root};
    if (node->output_count != 1 || node->outputs[0].kind != TRI_PT2_VALUE ||
        !match_root(out, pattern, (int)node->outputs[0].number))
        return false;
    for (int k = 0; k < out->node_count; k++) {
        const tri_pt2_node *inner = &n->file.nodes[out->nodes[k]];
        if (out->nodes[k] != root && !is_alone(out, inner->outputs, inner->output_count))
            return false;
    }
    return true;
}

// The argument that a term of a replacement is. False: its variable is not bound.
static bool argument_of(const exported_match *m, const exported_term *t, tri_pt2_argument *out) {
    *out = (tri_pt2_argument){.kind = TRI_PT2_NONE};
    if (t->kind == VARIABLE) {
        const tri_pt2_argument *value = exported_bound(m, t->name);
        if (!value) return false;
        *out = *value;
    } else if (t->kind == TEXT) {
        *out = (tri_pt2_argument){.kind = TRI_PT2_TEXT, .text = t->name};
    } else if (t->kind == NUMBER) {
        *out = (tri_pt2_argument){.kind = TRI_PT2_FLOAT, .real = t->number};
    }
    out->name = t->argument ? t->argument : "";
    return true;
}

void exported_replace_root(const exported_match *m, const exported_term *t) {
    tri_arena *arena = m->network->arena;
    tri_pt2_node *node = &m->network->file.nodes[m->root];
    node->target = tri_arena_printf(arena, "%s.default", t->name);
    node->arguments = TRI_NEW_ARRAY(arena, tri_pt2_argument, t->count);
    node->argument_count = 0;
    for (int k = 0; k < t->count; k++)
        node->argument_count += argument_of(m, t->items[k], &node->arguments[node->argument_count]);
}
