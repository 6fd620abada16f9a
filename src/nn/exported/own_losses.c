// Losses that a network has written out: results that are means over all elements, sums divided by
// the number of samples, or sums divided by the sum of a mask, or follow from these and from losses
// of torch.nn.functional by adding and scaling. They become losses, sums with counts, so that the
// number of ranks does not change them.
#include "nn/exported/build.h"
#include "nn/exported/match.h"

#include <string.h>
#include <trireme/functions.h>
#include <trireme/losses.h>
#include <trireme/nn.h>

enum { MAX_PARTS = 64 };

// What becomes of a node.
typedef enum change { KEEP, SCALE, NEGATE, MEAN, SUM, RATIO } change;

typedef struct part {
    int node;
    change change;
    int64_t samples;     // search.samples where it was found
    tri_pt2_argument by; // SUM: the number of samples; RATIO: what the counts are
} part;

// What a result is made of.
typedef struct search {
    nn_exported *network;
    int count;
    int64_t samples; // the value by which a sum is divided where the search is; -1: none
    part parts[MAX_PARTS];
} search;

static const tri_pt2_value *tensor_of(const nn_exported *n, const tri_pt2_argument *a) {
    const tri_pt2_value *v = a->kind == TRI_PT2_VALUE ? &n->file.values[a->number] : NULL;
    return v && v->is_tensor ? v : NULL;
}

static bool is_number(const tri_pt2_argument *a) {
    return a->kind == TRI_PT2_FLOAT || a->kind == TRI_PT2_INT;
}

static bool is_any(const tri_pt2_node *node, const char *const *names) {
    for (; *names; names++)
        if (exported_is_called(node, *names)) return true;
    return false;
}

static const char *const copies[] = {"to", "_to_copy", "float", NULL};

// The node that makes the value, before conversions between types. NULL: none does.
static const tri_pt2_node *maker_of(const nn_exported *n, const tri_pt2_argument *a) {
    const tri_pt2_node *node = NULL;
    while (a->kind == TRI_PT2_VALUE && n->makers[a->number] >= 0) {
        node = &n->file.nodes[n->makers[a->number]];
        if (!is_any(node, copies) || node->argument_count < 1) return node;
        a = &node->arguments[0];
    }
    return NULL;
}

// Whether the node is sum or mean of all elements of a tensor.
static bool reduces_all(const nn_exported *n, const tri_pt2_node *node, const char *name) {
    const tri_pt2_value *x =
                            node && node->argument_count ? tensor_of(n, &node->arguments[0]) : NULL,
                        *y = x ? tensor_of(n, &node->outputs[0]) : NULL;
    return y && x->rank > 0 && y->rank == 0 && exported_is_called(node, name);
}

static bool adds(search *s, int node, change what, tri_pt2_argument by) {
    if (s->count == MAX_PARTS) return false;
    s->parts[s->count++] = (part){node, what, s->samples, by};
    return true;
}

static const char *const comparisons[] = {"eq", "ne",          "lt",          "le",    "gt",
                                          "ge", "logical_not", "bitwise_not", "slice", NULL};

// Whether two values are equal because they are the same one, or compared alike with the same ones;
// conversions between types count for nothing.
static bool are_alike(const nn_exported *n, const tri_pt2_argument *a, const tri_pt2_argument *b,
                      int depth) {
    if (a->kind == TRI_PT2_VALUE && b->kind == TRI_PT2_VALUE && a->number == b->number) return true;
    if (is_number(a) && a->kind == b->kind)
        return a->kind == TRI_PT2_FLOAT ? a->real == b->real : a->number == b->number;
    const tri_pt2_node *x = maker_of(n, a), *y = maker_of(n, b);
    if (depth == 0 || !x || !y || x->argument_count != y->argument_count) return false;
    if (x == y) return true;
    bool same = is_any(x, comparisons) && !strcmp(x->target, y->target);
    for (int i = 0; i < x->argument_count && same; i++)
        same = are_alike(n, &x->arguments[i], &y->arguments[i], depth - 1);
    return same;
}

// Whether the terms of the sum are products with the mask, and so 0 where it is.
static bool is_masked(const nn_exported *n, const tri_pt2_node *sum, const tri_pt2_argument *mask) {
    enum { DEPTH = 4 };
    const tri_pt2_node *product = maker_of(n, &sum->arguments[0]);
    if (!product || !exported_is_called(product, "mul") || product->argument_count != 2)
        return false;
    return are_alike(n, mask, &product->arguments[0], DEPTH) ||
           are_alike(n, mask, &product->arguments[1], DEPTH);
}

// Finds what `sum` is divided by, if that is the sum of a mask: nothing trained reaches it. A bound
// of at most 1 that keeps it from 0 changes nothing where it is a whole number, but for 0, where
// the sum has to be 0 too.
static bool find_counts(const nn_exported *n, const tri_pt2_node *sum, const tri_pt2_argument *a,
                        tri_pt2_argument *counts) {
    static const char *const bounds[] = {"clamp", "clamp_min", NULL};
    const tri_pt2_node *node = maker_of(n, a);
    bool is_bounded = node && is_any(node, bounds) && node->argument_count == 2;
    if (is_bounded) {
        const tri_pt2_argument *least = &node->arguments[1];
        double value = least->kind == TRI_PT2_FLOAT ? least->real : (double)least->number;
        if (!is_number(least) || value > 1 || strcmp(least->name, "min") != 0) return false;
        node = maker_of(n, &node->arguments[0]);
    }
    if (!node || !reduces_all(n, node, "sum")) return false;
    const tri_pt2_argument *mask = &node->arguments[0], *whole = mask;
    const tri_pt2_node *made =
        n->makers[mask->number] >= 0 ? &n->file.nodes[n->makers[mask->number]] : NULL;
    if (made && is_any(made, copies)) whole = &made->arguments[0];
    *counts = *mask;
    return tensor_of(n, whole) && exported_follows_from(n, (int)mask->number, TRI_PT2_INPUT) &&
           !exported_follows_from(n, (int)mask->number, TRI_PT2_PARAMETER) &&
           !(is_bounded &&
             (exported_type_is_float(tensor_of(n, whole)->dtype) || !is_masked(n, sum, mask)));
}

// Whether the number is that of the samples: the first size of what follows from the data.
static bool is_samples(const nn_exported *n, const tri_pt2_argument *a) {
    const tri_pt2_node *node = a->kind == TRI_PT2_VALUE && n->makers[a->number] >= 0
                                   ? &n->file.nodes[n->makers[a->number]]
                                   : NULL;
    return node && exported_is_called(node, "sym_size") && node->argument_count == 2 &&
           tensor_of(n, &node->arguments[0]) && node->arguments[1].kind == TRI_PT2_INT &&
           node->arguments[1].number == 0 && tensor_of(n, &node->arguments[0])->sizes[0] < 0;
}

static bool is_loss(const tri_pt2_node *node) {
    for (const exported_row *row = exported_loss_rows; row->name; row++)
        if (exported_is_called(node, row->name + strlen("aten."))) return true;
    return false;
}

// Finds the parts of a value; `samples`: what it is divided by, which sums need; NULL: nothing.
static bool find_parts(search *s, const tri_pt2_argument *a, const tri_pt2_argument *samples) {
    nn_exported *n = s->network;
    const tri_pt2_argument none = {0};
    int maker = tensor_of(n, a) ? n->makers[a->number] : -1;
    const tri_pt2_node *node = maker >= 0 ? &n->file.nodes[maker] : NULL;
    if (!node || node->argument_count < 1 || tensor_of(n, a)->rank != 0) return false;
    s->samples = samples ? samples->number : -1;
    for (int i = 0; i < s->count; i++) // another way leads here too, which has to agree
        if (s->parts[i].node == maker) return s->parts[i].samples == s->samples;
    const tri_pt2_argument *x = node->arguments, *y = x + 1;
    bool of_two = node->argument_count == 2, takes_data = false;
    tri_pt2_argument counts;
    if (x->kind == TRI_PT2_VALUE)
        takes_data = exported_follows_from(n, (int)x->number, TRI_PT2_INPUT);
    if (reduces_all(n, node, "mean")) return !samples && takes_data && adds(s, maker, MEAN, none);
    if (reduces_all(n, node, "sum")) return samples && takes_data && adds(s, maker, SUM, *samples);
    if (is_loss(node)) return !samples && adds(s, maker, KEEP, none);
    if (is_any(node, copies)) return adds(s, maker, KEEP, none) && find_parts(s, x, samples);
    if (exported_is_called(node, "neg"))
        return adds(s, maker, NEGATE, none) && find_parts(s, x, samples);
    if (!of_two) return false;
    if (exported_is_called(node, "add") || exported_is_called(node, "sub"))
        return adds(s, maker, KEEP, none) && find_parts(s, x, samples) && find_parts(s, y, samples);
    if (exported_is_called(node, "mul") || exported_is_called(node, "div")) {
        if (is_number(y)) return adds(s, maker, KEEP, none) && find_parts(s, x, samples);
        if (!exported_is_called(node, "div") || samples) return false;
        if (is_samples(n, y)) return adds(s, maker, SCALE, none) && find_parts(s, x, y);
        const tri_pt2_node *sum = maker_of(n, x);
        return reduces_all(n, sum, "sum") && find_counts(n, sum, y, &counts) &&
               adds(s, maker, RATIO, counts);
    }
    return false;
}

static int reads_of(const tri_pt2_argument *a, int count, int64_t value) {
    int reads = 0;
    for (int i = 0; i < count; i++) {
        reads += a[i].kind == TRI_PT2_VALUE && a[i].number == value;
        if (a[i].kind == TRI_PT2_LIST) reads += reads_of(a[i].items, a[i].count, value);
    }
    return reads;
}

// Whether nothing else than the parts and the network's results read what the parts make.
static bool is_alone(const search *s, const int *uses) {
    const tri_pt2 *file = &s->network->file;
    for (int k = 0; k < s->count; k++) {
        int64_t value = file->nodes[s->parts[k].node].outputs[0].number;
        int reads = 0;
        for (int i = 0; i < s->count; i++) {
            const tri_pt2_node *node = &file->nodes[s->parts[i].node];
            reads += reads_of(node->arguments, node->argument_count, value);
        }
        for (int i = 0; i < file->output_count; i++)
            if (file->outputs[i].role == TRI_PT2_OUTPUT)
                reads += reads_of(&file->outputs[i].argument, 1, value);
        if (reads != uses[value]) return false;
    }
    return true;
}

static void apply(nn_exported *n, const part *p) {
    static const char *const targets[] = {NULL,
                                          "aten.mul.Scalar",
                                          "aten.mul.Scalar",
                                          "fused.mean_loss.default",
                                          "fused.sum_loss.default",
                                          "fused.ratio_loss.default"};
    tri_pt2_node *node = &n->file.nodes[p->node];
    if (p->change == KEEP) return;
    tri_pt2_argument *a = TRI_NEW_ARRAY(n->arena, tri_pt2_argument, 2);
    a[0] = node->arguments[0];
    if (p->change == RATIO) a[0] = maker_of(n, &a[0])->arguments[0];
    a[0].name = "";
    a[1] = p->by;
    if (p->change == SCALE || p->change == NEGATE)
        a[1] = (tri_pt2_argument){.kind = TRI_PT2_FLOAT, .real = p->change == SCALE ? 1 : -1};
    a[1].name = "";
    node->target = targets[p->change];
    node->arguments = a;
    node->argument_count = p->change == MEAN ? 1 : 2;
    n->nodes[p->node].row = exported_find_row(n->arena, node->target);
}

int exported_find_losses(nn_exported *n, const int *uses) {
    int found = 0;
    for (int i = 0; i < n->file.output_count; i++) {
        const tri_pt2_port *port = &n->file.outputs[i];
        search s = {.network = n};
        if (port->role != TRI_PT2_OUTPUT || !find_parts(&s, &port->argument, NULL) ||
            !is_alone(&s, uses))
            continue;
        for (int k = 0; k < s.count; k++) {
            apply(n, &s.parts[k]);
            found += s.parts[k].change >= MEAN;
        }
    }
    return found;
}

static void mean_loss(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    exported_give_graph(c, tri_mean_loss(c->build->graph, exported_as_float(c->build, &x)));
}

// The sum of x over a number of samples: the mean times the elements of a sample.
static void sum_loss(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    tri_graph *g = c->build->graph;
    tri_value loss = tri_mean_loss(g, exported_as_float(c->build, &x));
    double elements = (double)exported_count(c->build, &x) / (double)exported_int(c, 1);
    exported_give_graph(c, tri_weighted(g, loss, elements));
}

static void ratio_loss(exported_call *c) {
    exported_value x = exported_operand(c, 0), counts = exported_operand(c, 1);
    exported_give_graph(c, tri_ratio_loss(c->build->graph, exported_as_float(c->build, &x),
                                          exported_as_float(c->build, &counts)));
}

const exported_row exported_own_loss_rows[] = {
    ROW("fused.mean_loss", "self", mean_loss),
    ROW("fused.sum_loss", "self samples", sum_loss),
    ROW("fused.ratio_loss", "self counts", ratio_loss),
    {NULL, NULL, NULL, NULL, NULL, false},
};
