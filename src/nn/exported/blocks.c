// Finds which nodes count, and cuts them into blocks where the path of their modules changes.
//
// A block's path is that of the module, cut off behind its last part with a digit that is no module
// without parts of its own: "model.layers.0.mlp.up_proj" is of "model.layers.0". Without such a
// part it is the first part. A cut is made where the path changes, one tensor goes from what is
// before to what comes behind, and both have parameters.
//
// Where the recipe has patterns of paths (model.blocks), the path is the shortest beginning of the
// module's that one of them matches, and "" where none does. Then a cut is made wherever the path
// changes and both sides have parameters.
#include "base/index.h"
#include "nn/exported/build.h"

#include <ctype.h>
#include <fnmatch.h>
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

// The paths of modules, found once for each module.
typedef struct paths {
    const nn_exported *network;
    const tri_tree *patterns; // NULL: the usual rule
    bool *is_used;            // patterns
    tri_index known, parents; // modules; those that have parts
    const char **items;       // by the numbers in `known`
    int count, capacity;
} paths;

static void find_parents(paths *p) {
    for (int i = 0; i < p->network->file.node_count; i++) {
        const char *module = p->network->file.nodes[i].module;
        for (const char *dot = strchr(module, '.'); dot; dot = strchr(dot + 1, '.'))
            tri_index_put(p->network->arena, &p->parents, module, (size_t)(dot - module), 1);
    }
}

static bool has_digit(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (isdigit((unsigned char)text[i])) return true;
    return false;
}

static size_t usual_length(const paths *p, const char *module) {
    size_t best = strcspn(module, "."), at = 0;
    while (module[at]) {
        size_t length = strcspn(module + at, ".");
        bool counts = has_digit(module + at, length);
        at += length;
        if (counts && tri_index_find(&p->parents, module, at) != TRI_NOT_IN_INDEX) best = at;
        if (module[at] == '.') at++;
    }
    return best;
}

// Whether a pattern matches the path; notes which do.
static bool matches(paths *p, const char *path) {
    bool any = false;
    for (int i = 0; i < p->patterns->count; i++) {
        if (fnmatch(p->patterns->items[i]->text, path, 0) != 0) continue;
        p->is_used[i] = any = true;
    }
    return any;
}

static size_t matched_length(paths *p, const char *module) {
    for (size_t at = 0; module[at];) {
        at += strcspn(module + at, ".");
        if (matches(p, tri_arena_printf(p->network->arena, "%.*s", (int)at, module))) return at;
        if (module[at] == '.') at++;
    }
    return 0;
}

static const char *path_of(paths *p, const char *module) {
    tri_arena *arena = p->network->arena;
    int found = tri_index_find(&p->known, module, strlen(module));
    if (found != TRI_NOT_IN_INDEX) return p->items[found];
    size_t length = p->patterns ? matched_length(p, module) : usual_length(p, module);
    tri_index_put(arena, &p->known, module, strlen(module), p->count);
    TRI_PUSH(arena, p->items, p->count, p->capacity) =
        tri_arena_printf(arena, "%.*s", (int)length, module);
    return p->items[p->count - 1];
}

static tri_status find_paths(nn_exported *n, paths *p) {
    const tri_tree *given = tri_tree_get(n->options, "blocks");
    bool is_list = given && given->kind == TRI_TREE_LIST;
    *p = (paths){.network = n, .patterns = is_list ? given : NULL};
    find_parents(p);
    if (!is_list) return TRI_OK;
    p->is_used = TRI_NEW_ARRAY(n->arena, bool, given->count + 1);
    for (int i = 0; i < n->file.node_count; i++) (void)path_of(p, n->file.nodes[i].module);
    for (int i = 0; i < given->count; i++)
        if (!p->is_used[i])
            return tri_tree_fail(
                given->items[i],
                "model.blocks: no module of %s is '%s'; `trireme model show` lists "
                "the paths of blocks",
                n->file.path, given->items[i]->text);
    return TRI_OK;
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

// The last node that reads one of the statistics that batch norm number `i` reads: all that do lie
// in one block.
static int last_with_statistics(const nn_exported *n, const uses *u, int i) {
    const tri_pt2_node *node = &n->file.nodes[i];
    int last = i;
    if (strncmp(node->target, "aten.batch_norm", strlen("aten.batch_norm")) != 0) return i;
    for (int k = 0; k < node->argument_count; k++) {
        const tri_pt2_argument *a = &node->arguments[k];
        const tri_pt2_port *port = a->kind == TRI_PT2_VALUE ? n->ports[a->number] : NULL;
        if (port && port->role == TRI_PT2_BUFFER && u->last[a->number] > last)
            last = u->last[a->number];
    }
    return last;
}

// Cuts the reached nodes.
static void cut(nn_exported *n, uses *u, paths *p) {
    int *parameters = find_uses(n, u), nodes = n->file.node_count, capacity = 0;
    int *ends = TRI_NEW_ARRAY(n->arena, int, nodes + 1); // values needed no longer behind a node
    int open = 0, inside = 0, left = 0; // values; parameters of the block, and of all to come
    int whole = -1;                     // up to this node the block is not cut
    const char *first = "", *before = NULL;
    for (int i = 0; i < nodes; i++) left += parameters[i];
    for (int i = 0; i < nodes; i++) {
        if (!n->nodes[i].is_reached) continue;
        const char *module = n->file.nodes[i].module, *path = path_of(p, module);
        bool changes = before && strcmp(path, before) != 0;
        bool may_end = (open == 1 || p->patterns) && i > whole;
        if (changes && may_end && inside > 0 && left > 0) {
            const char *name = name_of(n, first);
            TRI_PUSH(n->arena, n->blocks, n->block_count, capacity) = name;
            inside = 0;
        }
        if (inside == 0)
            first = *path
                        ? path
                        : tri_arena_printf(n->arena, "%.*s", (int)usual_length(p, module), module);
        before = path;
        n->nodes[i].block = n->block_count;
        int last = last_with_statistics(n, u, i);
        whole = last > whole ? last : whole;
        inside += parameters[i];
        left -= parameters[i];
        open += count_open(n, u, i, ends) - ends[i];
    }
    const char *name = name_of(n, first);
    TRI_PUSH(n->arena, n->blocks, n->block_count, capacity) = name;
}

// In which blocks the network that is trained reads its parameters and statistics.
typedef struct readings {
    tri_index names;
    int *blocks, *next; // by their numbers: a block, and the next reading of the same name; -1
    int count, block_capacity, next_capacity;
} readings;

typedef struct reader {
    const nn_exported *network;
    readings *all;
    int block;           // of the node that is looked at
    const char *unknown; // what is not read from this block on
    bool is_new;         // the trained network never reads it
} reader;

typedef void visit_name(reader *r, const char *name);

// Calls `visit` for each parameter that the node reads, and for statistics of batch norm.
static void each_weight(reader *r, int node, visit_name *visit) {
    const tri_pt2_node *of = &r->network->file.nodes[node];
    bool is_norm = !strncmp(of->target, "aten.batch_norm", 15);
    for (int i = 0; i < of->argument_count; i++) {
        const tri_pt2_argument *a = &of->arguments[i];
        const tri_pt2_port *port = a->kind == TRI_PT2_VALUE ? r->network->ports[a->number] : NULL;
        bool counts =
            port && (port->role == TRI_PT2_PARAMETER || (is_norm && port->role == TRI_PT2_BUFFER));
        if (counts) visit(r, exported_parameter_name(r->network, port));
    }
}

static void note_reading(reader *r, const char *name) {
    readings *all = r->all;
    int before = tri_index_find(&all->names, name, strlen(name));
    tri_index_put(r->network->arena, &all->names, name, strlen(name), all->count);
    int number = all->count;
    TRI_PUSH(r->network->arena, all->blocks, number, all->block_capacity) = r->block;
    TRI_PUSH(r->network->arena, all->next, all->count, all->next_capacity) = before;
}

// Moves the node to the first block from its own on in which the parameter is read.
static void move_to_reading(reader *r, const char *name) {
    int best = -1, first = tri_index_find(&r->all->names, name, strlen(name));
    for (int i = first; i >= 0; i = r->all->next[i])
        if (r->all->blocks[i] >= r->block && (best < 0 || r->all->blocks[i] < best))
            best = r->all->blocks[i];
    if (best < 0 && !r->unknown) {
        r->unknown = name;
        r->is_new = first < 0;
    }
    if (best >= 0) r->block = best;
}

// Gives the nodes of a program for evaluation the blocks in which the one that is trained reads the
// same parameters.
static tri_status follow(nn_exported *n) {
    readings all = {0};
    reader r = {.network = n->trained, .all = &all};
    for (int i = 0; i < n->trained->file.node_count; i++) {
        r.block = n->trained->nodes[i].block;
        if (n->trained->nodes[i].is_reached) each_weight(&r, i, note_reading);
    }
    r = (reader){.network = n, .all = &all};
    for (int i = 0; i < n->file.node_count && !r.unknown; i++) {
        int before = -1;
        if (!n->nodes[i].is_reached) continue;
        while (r.block != before && !r.unknown) {
            before = r.block;
            each_weight(&r, i, move_to_reading);
        }
        n->nodes[i].block = r.block;
    }
    n->blocks = n->trained->blocks;
    n->block_count = n->trained->block_count;
    if (!r.unknown) return TRI_OK;
    if (r.is_new)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "model.evaluation_program: %s reads '%s', which %s does not read: it would "
                        "not be trained",
                        n->file.path, r.unknown, n->trained->file.path);
    return TRI_FAIL(TRI_BAD_INPUT,
                    "model.evaluation_program: %s reads '%s' behind what %s reads in later blocks: "
                    "make the network one block, by model.blocks=[]",
                    n->file.path, r.unknown, n->trained->file.path);
}

tri_status exported_find_blocks(nn_exported *n) {
    int values = n->file.value_count;
    paths p;
    marks m = {n, TRI_NEW_ARRAY(n->arena, bool, values), TRI_NEW_ARRAY(n->arena, bool, values),
               false};
    mark(n, &m);
    uses u = {.m = m, .last = TRI_NEW_ARRAY(n->arena, int, values)};
    u.known = TRI_NEW_ARRAY(n->arena, bool, values);
    for (int i = 0; i < values; i++) u.last[i] = -1;
    if (n->trained) return follow(n);
    TRI_TRY(find_paths(n, &p));
    cut(n, &u, &p);
    return TRI_OK;
}
