// Writes in place become new values. PyTorch's views share memory with their base: what is written
// into one of them is seen by the base and by all its other views. Here a write makes a new value,
// of which a new base is made ("write.slice" and so on), and views that are read later are made
// again.
#include "nn/exported/build.h"
#include "nn/exported/lower.h"

#include <string.h>

enum { MAX_DEPTH = 64 }; // views of views

typedef struct member {
    bool is_made;
    int now;         // the value that has its contents
    int same;        // it is another name of this value, the result of a write; -1: it is none
    int node;        // the view that it is; -1: it is none
    int base;        // of a view
    int root;        // the base of the base, and so on
    int depth;       // of views up to it
    int seen;        // after which write into the root `now` was made
    int writes;      // of a root: how many there were
    bool is_ordered; // its elements lie one after the other
} member;

typedef struct pass {
    nn_exported *network;
    member *members; // of the values that the file has
    int first_new;
    const tri_pt2_node *old; // the nodes that the file has
    int node_capacity, value_capacity;
    tri_status status;
} pass;

// How an operation's result shares memory with its first argument: always, if the elements of that
// lie one after the other, or if the types are the same. `keeps`: they do so afterwards too.
typedef enum sharing { NEVER, ALWAYS, IF_ORDERED, IF_SAME_TYPE } sharing;

static sharing sharing_of(const char *target, bool *keeps) {
    static const struct {
        const char *name;
        sharing kind;
        bool keeps;
    } views[] = {
        {"view", ALWAYS, true},
        {"unsqueeze", ALWAYS, true},
        {"squeeze", ALWAYS, true},
        {"alias", ALWAYS, true},
        {"detach", ALWAYS, true},
        {"view_as", ALWAYS, true},
        {"reshape", IF_ORDERED, true},
        {"flatten", IF_ORDERED, true},
        {"unflatten", IF_ORDERED, true},
        {"reshape_as", IF_ORDERED, true},
        {"contiguous", IF_ORDERED, true},
        {"to", IF_SAME_TYPE, true},
        {"type_as", IF_SAME_TYPE, true},
        {"float", IF_SAME_TYPE, true},
        {"slice", ALWAYS, false},
        {"select", ALWAYS, false},
        {"narrow", ALWAYS, false},
        {"transpose", ALWAYS, false},
        {"swapaxes", ALWAYS, false},
        {"swapdims", ALWAYS, false},
        {"t", ALWAYS, false},
        {"numpy_T", ALWAYS, false},
        {"permute", ALWAYS, false},
        {"movedim", ALWAYS, false},
        {"moveaxis", ALWAYS, false},
        {"expand", ALWAYS, false},
        {"expand_as", ALWAYS, false},
        {"broadcast_to", ALWAYS, false},
        {"split", ALWAYS, false},
        {"split_with_sizes", ALWAYS, false},
        {"chunk", ALWAYS, false},
        {"unbind", ALWAYS, false},
        {"diagonal", ALWAYS, false},
        {"as_strided", ALWAYS, false},
        {"unfold", ALWAYS, false},
    };
    if (strncmp(target, "aten.", 5) != 0) return NEVER;
    target += 5;
    size_t length = strcspn(target, ".");
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        if (strlen(views[i].name) == length && !strncmp(views[i].name, target, length)) {
            *keeps = views[i].keeps;
            return views[i].kind;
        }
    return NEVER;
}

static int new_value(pass *p, int like) {
    tri_pt2 *file = &p->network->file;
    tri_pt2_value value = file->values[like];
    value.name = tri_arena_printf(p->network->arena, "%s.%d", value.name, file->value_count);
    TRI_PUSH(p->network->arena, file->values, file->value_count, p->value_capacity) = value;
    return file->value_count - 1;
}

static tri_pt2_node *new_node(pass *p, const tri_pt2_node *like) {
    tri_pt2 *file = &p->network->file;
    TRI_PUSH(p->network->arena, file->nodes, file->node_count, p->node_capacity) = *like;
    return &file->nodes[file->node_count - 1];
}

static tri_pt2_argument *copied(pass *p, const tri_pt2_argument *from, int count, int more) {
    tri_pt2_argument *to = TRI_NEW_ARRAY(p->network->arena, tri_pt2_argument, count + more);
    for (int i = 0; i < count; i++) to[i] = from[i];
    return to;
}

// Makes a view again, of what its base is now.
static void view_again(pass *p, int value, int base) {
    const tri_pt2_node *view = &p->old[p->members[value].node];
    tri_pt2_node *node = new_node(p, view);
    node->arguments = copied(p, view->arguments, view->argument_count, 0);
    node->arguments[0].number = base;
    node->outputs = copied(p, view->outputs, view->output_count, 0);
    for (int i = 0; i < node->output_count; i++) {
        tri_pt2_argument *list = &node->outputs[i];
        bool is_list = list->kind == TRI_PT2_LIST;
        if (is_list) list->items = copied(p, list->items, list->count, 0);
        for (int k = 0; k < (is_list ? list->count : 1); k++) {
            tri_pt2_argument *a = is_list ? &list->items[k] : list;
            if (a->kind != TRI_PT2_VALUE || a->number >= p->first_new) continue;
            int old = (int)a->number;
            a->number = new_value(p, old);
            if (old == value) p->members[value].now = (int)a->number;
        }
    }
}

// The value that has the contents of one of the file's.
static int current(pass *p, int value) {
    int chain[MAX_DEPTH + 1], count = 0;
    member *m = &p->members[value];
    if (m->same >= 0) m = &p->members[value = m->same];
    int writes = p->members[m->root].writes;
    while (m->base >= 0 && m->seen != writes && count <= MAX_DEPTH) {
        chain[count++] = value;
        m = &p->members[value = m->base];
    }
    while (count-- > 0) {
        view_again(p, chain[count], p->members[value].now);
        value = chain[count];
        p->members[value].seen = writes;
    }
    return p->members[value].now;
}

// Puts what a view has become into its base.
static void write_back(pass *p, int value, int base) {
    member *m = &p->members[value];
    const tri_pt2_node *view = &p->old[m->node];
    tri_pt2_node *node = new_node(p, view);
    node->target = tri_arena_printf(p->network->arena, "write.%s", view->target + 5);
    node->arguments = copied(p, view->arguments, view->argument_count, 1);
    node->arguments[0].number = base;
    node->arguments[node->argument_count++] =
        (tri_pt2_argument){.name = "source", .kind = TRI_PT2_VALUE, .number = m->now};
    node->outputs = TRI_NEW(p->network->arena, tri_pt2_argument);
    node->output_count = 1;
    int now = new_value(p, m->base);
    *node->outputs = (tri_pt2_argument){.kind = TRI_PT2_VALUE, .number = now};
    p->members[m->base].now = now;
}

static void write(pass *p, int value, int result) {
    int bases[MAX_DEPTH + 1], count = 0;
    member *m = &p->members[value];
    for (int v = m->base; v >= 0 && count <= MAX_DEPTH; v = p->members[v].base)
        bases[count++] = current(p, v);
    int writes = ++p->members[m->root].writes;
    m->now = result;
    m->seen = writes;
    for (int k = 0; k < count; k++) {
        write_back(p, value, bases[k]);
        value = p->members[value].base;
        p->members[value].seen = writes;
    }
    p->members[result] =
        (member){.is_made = true, .now = result, .same = (int)(m - p->members), .node = -1};
}

static void rename_values(pass *p, tri_pt2_argument *arguments, int count) {
    for (int i = 0; i < count; i++) {
        if (arguments[i].kind == TRI_PT2_LIST)
            rename_values(p, arguments[i].items, arguments[i].count);
        if (arguments[i].kind == TRI_PT2_VALUE && p->members[arguments[i].number].is_made)
            arguments[i].number = current(p, (int)arguments[i].number);
    }
}

static void make(pass *p, int value, int node, int base, bool is_ordered) {
    member *m = &p->members[value], *from = base >= 0 ? &p->members[base] : NULL;
    if (m->is_made) return;
    *m = (member){true, value, -1, -1, -1, value, 0, 0, 0, is_ordered};
    if (!from) return;
    m->node = node;
    m->base = base;
    m->root = from->root;
    m->depth = from->depth + 1;
    m->seen = p->members[from->root].writes;
    if (m->depth > MAX_DEPTH && p->status == TRI_OK)
        p->status = TRI_FAIL(TRI_UNSUPPORTED, "%s: more than %d views of views in '%s'",
                             p->network->file.path, MAX_DEPTH, p->old[node].module);
}

static void make_results(pass *p, const tri_pt2_argument *a, int count, int node, int base,
                         bool is_ordered) {
    for (int i = 0; i < count; i++) {
        if (a[i].kind == TRI_PT2_LIST)
            make_results(p, a[i].items, a[i].count, node, base, is_ordered);
        if (a[i].kind == TRI_PT2_VALUE) make(p, (int)a[i].number, node, base, is_ordered);
    }
}

static const tri_pt2_argument *only_value(const tri_pt2_argument *a, int count) {
    return count > 0 && a->kind == TRI_PT2_VALUE ? a : NULL;
}

// Of which of the file's values the results are views; -1: of none.
static int base_of(pass *p, const tri_pt2_node *node, bool *is_ordered) {
    const tri_pt2_argument *in = only_value(node->arguments, node->argument_count),
                           *out = only_value(node->outputs, node->output_count);
    bool keeps = true;
    sharing kind = sharing_of(node->target, &keeps);
    *is_ordered = true;
    if (!in || kind == NEVER || !p->members[in->number].is_made) return -1;
    int base = (int)in->number;
    if (p->members[base].same >= 0) base = p->members[base].same;
    bool ordered = p->members[base].is_ordered;
    const tri_pt2_value *values = p->network->file.values;
    if (kind == IF_ORDERED && !ordered) return -1;
    if (kind == IF_SAME_TYPE && out && values[out->number].dtype != values[base].dtype) return -1;
    *is_ordered = keeps && ordered;
    return base;
}

tri_status exported_write_views(nn_exported *n) {
    tri_pt2 *file = &n->file;
    int node_count = file->node_count;
    pass p = {.network = n,
              .members = TRI_NEW_ARRAY(n->arena, member, file->value_count),
              .first_new = file->value_count,
              .old = file->nodes};
    tri_pt2_node *nodes = file->nodes;
    tri_pt2_value *values = file->values;
    int value_count = file->value_count;
    if (value_count == 0) return TRI_OK;
    file->nodes = NULL, file->values = NULL;
    file->node_count = file->value_count = 0;
    for (int i = 0; i < value_count; i++)
        TRI_PUSH(n->arena, file->values, file->value_count, p.value_capacity) = values[i];
    for (int i = 0; i < file->input_count; i++)
        make_results(&p, &file->inputs[i].argument, 1, -1, -1, true);
    for (int i = 0; i < node_count && p.status == TRI_OK; i++) {
        tri_pt2_node *node = &nodes[i];
        const tri_pt2_argument *in = only_value(node->arguments, node->argument_count),
                               *out = only_value(node->outputs, node->output_count);
        int self = in ? (int)in->number : -1;
        bool is_ordered, writes = exported_is_in_place(node->target) && in && out &&
                                  p.members[self].is_made && !p.members[out->number].is_made;
        int base = base_of(&p, node, &is_ordered);
        rename_values(&p, node->arguments, node->argument_count);
        *new_node(&p, node) = *node;
        if (writes)
            write(&p, p.members[self].same >= 0 ? p.members[self].same : self, (int)out->number);
        else
            make_results(&p, node->outputs, node->output_count, i, base, is_ordered);
    }
    for (int i = 0; i < file->output_count; i++) rename_values(&p, &file->outputs[i].argument, 1);
    return p.status;
}
