// Finds which nodes count, and cuts them into blocks where the path of their modules changes.
//
// A block's path is that of the module, cut off behind its last part with a digit that is no module
// without parts of its own: "model.layers.0.mlp.up_proj" is of "model.layers.0". Without such a
// part it is the first part. A cut is made where the path changes, one tensor goes from what is
// before to what comes behind, and both have parameters.
#include "nn/exported/build.h"

#include <ctype.h>
#include <string.h>

typedef struct marks {
    nn_exported *network;
    bool *live; // values
    bool *reached;
    bool any;
} marks;

typedef void visit_value(marks *m, int value);

static void each(marks *m, const tri_pt2_argument *arguments, int count, visit_value *visit) {
    for (int i = 0; i < count; i++) {
        const tri_pt2_argument *a = &arguments[i];
        if (a->kind == TRI_PT2_LIST) each(m, a->items, a->count, visit);
        if (a->kind == TRI_PT2_VALUE) visit(m, (int)a->number);
    }
}

static void ask_live(marks *m, int value) { m->any = m->any || m->live[value]; }
static void set_live(marks *m, int value) { m->live[value] = true; }
static void ask_reached(marks *m, int value) { m->any = m->any || m->reached[value]; }
static void set_reached(marks *m, int value) { m->reached[value] = true; }

static bool asks(marks *m, const tri_pt2_argument *arguments, int count, visit_value *visit) {
    m->any = false;
    each(m, arguments, count, visit);
    return m->any;
}

static void mark(nn_exported *n, marks *m) {
    const tri_pt2 *f = &n->file;
    for (int i = 0; i < f->output_count; i++)
        if (f->outputs[i].role == TRI_PT2_OUTPUT) each(m, &f->outputs[i].argument, 1, set_live);
    for (int i = f->node_count - 1; i >= 0; i--) {
        const tri_pt2_node *node = &f->nodes[i];
        n->nodes[i].is_live = asks(m, node->outputs, node->output_count, ask_live);
        if (n->nodes[i].is_live) each(m, node->arguments, node->argument_count, set_live);
    }
    for (int i = 0; i < f->input_count; i++)
        if (f->inputs[i].role == TRI_PT2_PARAMETER && f->inputs[i].argument.kind == TRI_PT2_VALUE)
            m->reached[f->inputs[i].argument.number] = true;
    for (int i = 0; i < f->node_count; i++) {
        const tri_pt2_node *node = &f->nodes[i];
        // A size is a number, whatever it is the size of.
        bool is_size = !strncmp(node->target, "aten.sym_", 9);
        // Random numbers are drawn in one block, and handed over to others.
        bool draws = n->nodes[i].row && n->nodes[i].row->draws;
        n->nodes[i].is_reached =
            n->nodes[i].is_live && !is_size &&
            (draws || asks(m, node->arguments, node->argument_count, ask_reached));
        if (n->nodes[i].is_reached) each(m, node->outputs, node->output_count, set_reached);
    }
}

// Whether another module lies inside the one at `path`, of `length` bytes.
static bool has_parts(const nn_exported *n, const char *path, size_t length) {
    for (int i = 0; i < n->file.node_count; i++) {
        const char *other = n->file.nodes[i].module;
        if (!strncmp(other, path, length) && other[length] == '.') return true;
    }
    return false;
}

static const char *block_path(const nn_exported *n, const char *module) {
    size_t first = strcspn(module, "."), best = first, at = 0;
    while (module[at]) {
        size_t length = strcspn(module + at, ".");
        bool has_digit = false;
        for (size_t i = 0; i < length; i++)
            has_digit = has_digit || isdigit((unsigned char)module[at + i]);
        at += length;
        if (has_digit && has_parts(n, module, at)) best = at;
        if (module[at] == '.') at++;
    }
    return tri_arena_printf(n->arena, "%.*s", (int)best, module);
}

// Of each value the last reached node that reads it.
typedef struct uses {
    marks m; // first: visits get it
    int *last;
    int node;
    int first_parameters; // parameters that the node is the first to read
    bool *known;          // parameters that a node before has read
} uses;

static void note_use(marks *m, int value) {
    uses *u = (uses *)m;
    const tri_pt2_port *port = m->network->ports[value];
    u->last[value] = u->node;
    if (!port || port->role != TRI_PT2_PARAMETER || u->known[value]) return;
    u->known[value] = true;
    u->first_parameters++;
}

// Names a block; a path that was used before gets a number behind it.
static const char *name_of(const nn_exported *n, const char *path) {
    int same = 0;
    if (!*path) path = "network";
    for (int i = 0; i < n->block_count; i++) {
        size_t length = strlen(path);
        same += !strncmp(n->blocks[i], path, length) &&
                (!n->blocks[i][length] || n->blocks[i][length] == '#');
    }
    return same ? tri_arena_printf(n->arena, "%s#%d", path, same + 1) : path;
}

// Counts the values that node `i` makes and later nodes read, and notes where they are read last.
static int count_open(const nn_exported *n, const uses *u, int i, int *ends) {
    const tri_pt2_node *node = &n->file.nodes[i];
    int made = 0;
    for (int k = 0; k < node->output_count; k++) {
        const tri_pt2_argument *a = &node->outputs[k];
        int count = a->kind == TRI_PT2_LIST ? a->count : 1;
        for (int j = 0; j < count; j++) {
            const tri_pt2_argument *out = a->kind == TRI_PT2_LIST ? &a->items[j] : a;
            if (out->kind != TRI_PT2_VALUE || u->last[out->number] <= i) continue;
            made++;
            ends[u->last[out->number]]++;
        }
    }
    return made;
}

// Notes the last readers of all values. Returns of each node how many parameters it is the first to
// read.
static int *find_uses(nn_exported *n, uses *u) {
    int nodes = n->file.node_count, *parameters = TRI_NEW_ARRAY(n->arena, int, nodes + 1);
    for (u->node = 0; u->node < nodes; u->node++) {
        const tri_pt2_node *node = &n->file.nodes[u->node];
        u->first_parameters = 0;
        if (n->nodes[u->node].is_reached)
            each(&u->m, node->arguments, node->argument_count, note_use);
        parameters[u->node] = u->first_parameters;
    }
    for (int i = 0; i < n->file.output_count; i++) {
        u->node = nodes;
        if (n->file.outputs[i].role == TRI_PT2_OUTPUT)
            each(&u->m, &n->file.outputs[i].argument, 1, note_use);
    }
    return parameters;
}

// Cuts the reached nodes.
static void cut(nn_exported *n, uses *u) {
    int *parameters = find_uses(n, u), nodes = n->file.node_count, capacity = 0;
    int *ends = TRI_NEW_ARRAY(n->arena, int, nodes + 1); // values needed no longer behind a node
    int open = 0, inside = 0, left = 0; // values; parameters of the block, and of all to come
    const char *first = "", *before = NULL;
    for (int i = 0; i < nodes; i++) left += parameters[i];
    for (int i = 0; i < nodes; i++) {
        if (!n->nodes[i].is_reached) continue;
        const char *path = block_path(n, n->file.nodes[i].module);
        bool changes = before && strcmp(path, before) != 0;
        if (changes && open == 1 && inside > 0 && left > 0) {
            const char *name = name_of(n, first);
            TRI_PUSH(n->arena, n->blocks, n->block_count, capacity) = name;
            inside = 0;
        }
        if (inside == 0) first = path;
        before = path;
        n->nodes[i].block = n->block_count;
        inside += parameters[i];
        left -= parameters[i];
        open += count_open(n, u, i, ends) - ends[i];
    }
    const char *name = name_of(n, first);
    TRI_PUSH(n->arena, n->blocks, n->block_count, capacity) = name;
}

void exported_find_blocks(nn_exported *n) {
    int values = n->file.value_count;
    marks m = {n, TRI_NEW_ARRAY(n->arena, bool, values), TRI_NEW_ARRAY(n->arena, bool, values),
               false};
    mark(n, &m);
    uses u = {.m = m, .last = TRI_NEW_ARRAY(n->arena, int, values)};
    u.known = TRI_NEW_ARRAY(n->arena, bool, values);
    for (int i = 0; i < values; i++) u.last[i] = -1;
    cut(n, &u);
}
