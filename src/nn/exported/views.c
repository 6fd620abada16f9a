// Writes in place become new values. PyTorch's views share memory with their base: what is written
// into one of them is seen by the base and by all its other views. Here a write makes a new value,
// of which a new base is made ("write.slice" and so on), and views that are read later are made
// again. Where it is not known whether memory is shared (sharing.c), what may have been written is
// refused when it is read.
#include "nn/exported/build.h"
#include "nn/exported/lower.h"

#include <string.h>

enum { MAX_DEPTH = 64 }; // views of views
enum { ANYWHERE = -1 };

typedef struct member {
    bool is_made;
    int now;    // the value that has its contents
    int same;   // it is another name of this value, the result of a write; -1: it is none
    int node;   // the view that it is; -1: it is none
    int base;   // of a view
    int root;   // the base of the base, and so on
    int depth;  // of views up to it
    int seen;   // after which write into the root `now` was made
    int writes; // of a root: how many there were
    int views;  // of a root: how many there are
    int kin;    // of a root: the next of a ring of roots that may share memory with it
    int unsure; // of a root: the node that has made it, and may share memory; -1: it does not
    int doubt;  // of a root: such a node, since which it may have been written; -1: there is none
    int region; // without gradients, in which it is made; 0: in none; ANYWHERE: it has no gradient
} member;

typedef struct pass {
    nn_exported *network;
    member *members; // of the values that the file has
    int first_new;
    const tri_pt2_node *old;  // the nodes that the file has
    const tri_pt2_node *node; // the one that is looked at
    int node_capacity, value_capacity;
    tri_status status;
} pass;

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

// Refuses the network at the node that is looked at: `node` does `what`.
static void refuse(pass *p, const char *what, const tri_pt2_node *node) {
    nn_exported *n = p->network;
    const tri_pt2_node *at = p->node;
    TRI_PUSH(n->arena, n->refusals, n->refusal_count, n->refusal_capacity) = tri_arena_printf(
        n->arena, "%s: %s %s, in '%s'%s%s", n->file.path, node->target, what,
        *at->module ? at->module : "the network", *at->source ? ", " : "", at->source);
}

// Refuses to read what may have been written, but for its sizes.
static void check_doubt(pass *p, member *root) {
    if (root->doubt < 0 || !strncmp(p->node->target, "aten.sym_", 9)) return;
    refuse(p,
           "may share memory with its argument, and one of the two is read after the other was "
           "written in place, which is not supported: write into a .clone(), or compute a new "
           "tensor, as in x = x + 1",
           &p->old[root->doubt]);
    root->doubt = -1;
}

// The value that has the contents of one of the file's.
static int current(pass *p, int value) {
    int chain[MAX_DEPTH + 1], count = 0;
    member *m = &p->members[value];
    if (m->same >= 0) m = &p->members[value = m->same];
    int writes = p->members[m->root].writes;
    check_doubt(p, &p->members[m->root]);
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
    const char *row = exported_write_row(view->target);
    node->target = row ? row : tri_arena_printf(p->network->arena, "write.%s", view->target);
    node->source = p->node->source;
    bool is_whole = row && !strcmp(row, "write.whole");
    node->argument_count = 2 + (is_whole ? 0 : view->argument_count - 1);
    node->arguments = TRI_NEW_ARRAY(p->network->arena, tri_pt2_argument, node->argument_count);
    node->arguments[0] = view->arguments[0];
    node->arguments[0].number = base;
    node->arguments[1] =
        (tri_pt2_argument){.name = "source", .kind = TRI_PT2_VALUE, .number = m->now};
    for (int i = 2; i < node->argument_count; i++) node->arguments[i] = view->arguments[i - 1];
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
    for (int v = p->members[m->root].kin; v != m->root; v = p->members[v].kin) {
        member *kin = &p->members[v];
        if (kin->doubt < 0) kin->doubt = kin->unsure < 0 ? p->members[m->root].unsure : kin->unsure;
    }
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

static void make(pass *p, int value, int node, int base) {
    member *m = &p->members[value], *from = base >= 0 ? &p->members[base] : NULL;
    if (m->is_made) return;
    int region = p->node ? p->node->region : 0;
    *m = (member){true, value, -1, -1, -1, value, 0, 0, 0, 0, value, -1, -1, region};
    if (!from) return;
    p->members[from->root].views++;
    m->node = node;
    m->base = base;
    m->root = from->root;
    m->depth = from->depth + 1;
    m->seen = p->members[from->root].writes;
    if (m->depth > MAX_DEPTH && p->status == TRI_OK)
        p->status = TRI_FAIL(TRI_UNSUPPORTED, "%s: more than %d views of views in '%s'",
                             p->network->file.path, MAX_DEPTH, p->old[node].module);
}

static void make_results(pass *p, const tri_pt2_argument *a, int count, int node, int base) {
    for (int i = 0; i < count; i++) {
        if (a[i].kind == TRI_PT2_LIST) make_results(p, a[i].items, a[i].count, node, base);
        if (a[i].kind == TRI_PT2_VALUE) make(p, (int)a[i].number, node, base);
    }
}

static const tri_pt2_argument *only_value(const tri_pt2_argument *a, int count) {
    return count > 0 && a->kind == TRI_PT2_VALUE ? a : NULL;
}

// A value or the first name of it.
static int first_name(const pass *p, int64_t value) {
    int same = p->members[value].same;
    return same >= 0 ? same : (int)value;
}

// Of which of the file's values the results are views; -1: of none.
static int base_of(const pass *p, const tri_pt2_node *node) {
    const tri_pt2_argument *in = only_value(node->arguments, node->argument_count);
    bool shares = in && p->members[in->number].is_made &&
                  exported_sharing_of(&p->network->file, node) == EXPORTED_SHARES;
    return shares ? first_name(p, in->number) : -1;
}

// Joins the ring of a result with that of an argument with which it may share memory.
static void join(pass *p, const tri_pt2_argument *result, const tri_pt2_argument *argument,
                 int node) {
    if (result->kind != TRI_PT2_VALUE || argument->kind != TRI_PT2_VALUE) return;
    if (!p->members[argument->number].is_made) return;
    member *made = &p->members[result->number],
           *from = &p->members[p->members[first_name(p, argument->number)].root];
    if (made->unsure >= 0 || made->kin != result->number) return;
    made->unsure = node;
    made->kin = from->kin;
    from->kin = (int)result->number;
}

// Of lists, the results share memory with the arguments one by one.
static void join_results(pass *p, const tri_pt2_node *node, int number) {
    const tri_pt2_argument *in = node->arguments, *end = in + node->argument_count,
                           *out = node->outputs;
    while (in < end && in->kind != TRI_PT2_VALUE && in->kind != TRI_PT2_LIST) in++;
    if (in == end || node->output_count == 0) return;
    if (exported_sharing_of(&p->network->file, node) != EXPORTED_MAY_SHARE) return;
    const tri_pt2_argument *from = in->kind == TRI_PT2_LIST ? in->items : in,
                           *to = out->kind == TRI_PT2_LIST ? out->items : out;
    int given = in->kind == TRI_PT2_LIST ? in->count : 1,
        made = out->kind == TRI_PT2_LIST ? out->count : 1;
    for (int i = 0; i < made && (given == 1 || given == made); i++)
        join(p, &to[i], &from[given == 1 ? 0 : i], number);
}

// Operations in place that change sizes or strides of a tensor rather than its contents: the views
// of it, or its base, have others.
static void check_shape(pass *p, const tri_pt2_node *node, const member *self) {
    static const char *const names[] = {"as_strided_", "resize_",   "resize_as_", "set_",
                                        "squeeze_",    "swapaxes_", "swapdims_",  "t_",
                                        "transpose_",  "unsqueeze_"};
    const char *name = strncmp(node->target, "aten.", 5) ? "" : node->target + 5;
    size_t length = strcspn(name, ".");
    bool is_shape = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is_shape = is_shape || (strlen(names[i]) == length && !strncmp(names[i], name, length));
    if (is_shape && (self->base >= 0 || self->views > 0 || self->kin != self->root))
        refuse(p,
               "changes in place the shape of a tensor that shares memory with others, which is "
               "not supported: make a view of it, as in x = x.transpose(0, 1)",
               node);
}

// A write into a tensor of outside would have a gradient, although nothing there has one.
static void check_region(pass *p, const tri_pt2_node *node, const member *root) {
    if (node->region && root->region != ANYWHERE && root->region != node->region)
        refuse(p,
               "writes within torch.no_grad() into a tensor of outside, which is not supported: "
               "compute a new tensor there, as in x = x * 2",
               node);
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
    for (int i = 0; i < file->input_count; i++) {
        const tri_pt2_port *port = &file->inputs[i];
        bool is_stored = port->role == TRI_PT2_BUFFER || port->role == TRI_PT2_CONSTANT;
        make_results(&p, &port->argument, 1, -1, -1);
        if (is_stored && port->argument.kind == TRI_PT2_VALUE)
            p.members[port->argument.number].region = ANYWHERE;
    }
    for (int i = 0; i < node_count && p.status == TRI_OK; i++) {
        tri_pt2_node *node = &nodes[i];
        const tri_pt2_argument *in = only_value(node->arguments, node->argument_count),
                               *out = only_value(node->outputs, node->output_count);
        int self = in ? (int)in->number : -1;
        bool writes = exported_is_in_place(node->target) && in && out && p.members[self].is_made &&
                      !p.members[out->number].is_made;
        p.node = node;
        if (!writes) make_results(&p, node->outputs, node->output_count, i, base_of(&p, node));
        if (!writes) join_results(&p, node, i);
        rename_values(&p, node->arguments, node->argument_count);
        *new_node(&p, node) = *node;
        if (!writes) continue;
        self = first_name(&p, self);
        check_region(&p, node, &p.members[p.members[self].root]);
        check_shape(&p, node, &p.members[self]);
        write(&p, self, (int)out->number);
    }
    p.node = &(tri_pt2_node){.target = "output", .module = "", .source = ""};
    for (int i = 0; i < file->output_count; i++) rename_values(&p, &file->outputs[i].argument, 1);
    return p.status;
}
