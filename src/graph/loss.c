// Adds losses and metrics to a graph, as pairs (sum, count) and as weighted sums of losses (see
// loss.h), and counts labels, because a loss is divided by their number.
#include "graph/loss.h"

#include "base/limits.h"
#include "graph/metric.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

static bool is_pair(const tri_graph *g, tri_value value) {
    const tri_value_info *info = tri_value_get(g, value);
    tri_shape pair = tri_shape_of(2);
    return info->kind == TRI_VALUE_RESULT && info->dtype == TRI_F64 &&
           tri_shape_equal(&info->shape, &pair);
}

// Adds weight · loss to the sum. If the sum has that loss already, adds up the weights, so that
// each loss is computed and counted once.
static void add_term(tri_graph *g, tri_weighted_sum *sum, tri_value loss, double weight) {
    for (int i = 0; i < sum->count; i++) {
        if (sum->losses[i].id != loss.id) continue;
        sum->weights[i] += weight;
        return;
    }
    if (sum->count == TRI_MAX_LOSS_TERMS) {
        tri_graph_fail(g,
                       "a sum of more than %d losses: add terms of one count before tri_mean_loss",
                       TRI_MAX_LOSS_TERMS);
        return;
    }
    sum->losses[sum->count] = loss;
    sum->weights[sum->count++] = weight;
}

static void add_terms(tri_graph *g, tri_weighted_sum *sum, tri_value loss, double weight) {
    const tri_value_info *info = tri_value_get(g, loss);
    if (info->kind != TRI_VALUE_WEIGHTED) {
        add_term(g, sum, loss, weight);
        return;
    }
    const tri_weighted_sum *other = &g->sums[info->index];
    for (int i = 0; i < other->count; i++)
        add_term(g, sum, other->losses[i], weight * other->weights[i]);
}

tri_value tri_loss_combine(tri_graph *graph, tri_value a, double weight, tri_value b) {
    tri_value none = {0};
    if (graph->status != TRI_OK) return none;
    if (!tri_graph_takes_value(graph, "a sum of losses", "", a) ||
        !tri_graph_takes_value(graph, "a sum of losses", "", b))
        return none;
    if (!isfinite(weight)) {
        tri_graph_fail(graph, "tri_weighted: the weight is %g: it must be a finite number", weight);
        return none;
    }
    if (!tri_value_is_loss(graph, a) || (tri_value_is(b) && !tri_value_is_loss(graph, b))) {
        tri_graph_fail(graph, "a loss can be added only to a loss, and tri_weighted takes only "
                              "one: a value that is none has no mean to add");
        return none;
    }
    tri_weighted_sum sum = {.count = 0};
    add_terms(graph, &sum, a, weight);
    if (tri_value_is(b)) add_terms(graph, &sum, b, 1);
    if (graph->status != TRI_OK) return none;
    tri_value value = {(uint32_t)graph->value_count};
    TRI_PUSH(graph->arena, graph->values, graph->value_count, graph->value_capacity) =
        (tri_value_info){.kind = TRI_VALUE_WEIGHTED,
                         .dtype = TRI_F64,
                         .shape = tri_shape_of(2),
                         .index = graph->sum_count};
    TRI_PUSH(graph->arena, graph->sums, graph->sum_count, graph->sum_capacity) = sum;
    return value;
}

static int find_source(const tri_graph *g, int metric) {
    int first = metric;
    for (int i = 0; tri_value_is(g->metrics[metric].value) && i < g->metric_count; i++) {
        if (g->metrics[i].value.id != g->metrics[metric].value.id) continue;
        if (g->metrics[i].is_minimised) return i;
        if (i < first) first = i;
    }
    return first;
}

static void find_sources(tri_graph *g) {
    for (int i = 0; i < g->metric_count; i++) g->metrics[i].source = find_source(g, i);
}

static void push_metric(tri_graph *g, tri_metric_info metric) {
    for (int i = 0; i < g->metric_count; i++)
        if (!strcmp(g->metrics[i].name, metric.name))
            tri_graph_fail(g, "'%s' is declared twice", metric.name);
    if (g->metric_count == TRI_MAX_METRICS)
        tri_graph_fail(g, "more than %d metrics", TRI_MAX_METRICS);
    metric.name = tri_arena_strdup(g->arena, metric.name);
    TRI_PUSH(g->arena, g->metrics, g->metric_count, g->metric_capacity) = metric;
    find_sources(g);
}

// What a line of metrics.jsonl, an evaluation in state.json and `eval --json` have beside metrics.
static const char *const taken_names[] = {"loss",    "kind",         "step",    "epoch",
                                          "samples", "evaluated_on", "classes", "wall_s"};

// Checks a name under which a model's own metric is shown and written.
static bool takes_metric_name(tri_graph *g, const char *name) {
    if (!tri_graph_takes_name(g, "metric", name)) return false;
    size_t bytes = strlen(name);
    bool is_plain = bytes > 0 && bytes < TRI_MAX_METRIC_BYTES;
    for (const char *c = name; *c; c++)
        is_plain = is_plain && (unsigned char)*c >= ' ' && *c != 0x7f;
    if (!is_plain)
        tri_graph_fail(g, "the name of a metric must have 1 to %d bytes and no control characters",
                       TRI_MAX_METRIC_BYTES - 1);
    for (size_t i = 0; i < sizeof taken_names / sizeof *taken_names; i++)
        if (!strcmp(name, taken_names[i]))
            tri_graph_fail(g,
                           "a metric is named '%s', which each evaluation writes itself: give it "
                           "another name",
                           name);
    return g->status == TRI_OK;
}

void tri_metric(tri_graph *graph, const char *name, tri_value metric) {
    if (!takes_metric_name(graph, name) || !tri_graph_takes_value(graph, "metric", name, metric))
        return;
    bool is_computed = !graph->options.training && !graph->options.predicts;
    if ((is_computed || tri_value_is(metric)) && !is_pair(graph, metric)) {
        tri_graph_fail(graph, "'%s' is not a metric: it must be F64 [2], (sum, count)%s", name,
                       tri_value_is_loss(graph, metric) ? "; of a sum of losses, name each" : "");
        return;
    }
    push_metric(graph, (tri_metric_info){.name = name, .value = metric});
}

void tri_metric_declare(tri_graph *graph, const char *name, tri_metric_info metric) {
    if (!takes_metric_name(graph, name)) return;
    metric.name = name;
    push_metric(graph, metric);
}

void tri_metric_copy(tri_graph *to, const tri_metric_info *metric, tri_value value) {
    if (to->status != TRI_OK) return;
    tri_metric_info copy = *metric;
    copy.value = value;
    push_metric(to, copy);
}

// Finds how labels can be counted before the step: sets labels, maker and weights of the term. The
// labels are an input of the graph, or one op makes them from an input, and its label_at knows
// them; another op may give each label the weight of its class. If there is no such input, labels
// stays -1.
static void find_labels(const tri_graph *g, tri_value labels, tri_loss_term *term) {
    term->read_as = tri_value_get(g, labels)->shape;
    while (tri_value_get(g, labels)->kind != TRI_VALUE_INPUT) {
        const tri_node *node = tri_value_node(g, labels);
        if (!node) return;
        const tri_op *op = node->op;
        if (op->label_weights) {
            const tri_value_info *weights = tri_value_get(g, node->inputs[op->label_weights - 1]);
            if (weights->kind != TRI_VALUE_PARAMETER || term->maker || term->weights) return;
            term->weights = g->parameters[weights->index].init.values;
            term->classes = weights->shape.dims[0];
            if (g->parameters[weights->index].role != TRI_ROLE_CONSTANT) return;
        } else if (!(op->flags & TRI_OP_VIEW) && !op->keeps_labels) {
            if (!op->label_at || term->maker) return;
            term->maker = op;
            term->maker_attr = node->attr;
            term->read_as = tri_value_get(g, node->inputs[0])->shape;
        }
        labels = node->inputs[0];
    }
    const tri_value_info *field = tri_value_get(g, labels);
    term->labels = field->index;
    if (!term->maker && !tri_dtype_is_float(field->dtype)) term->read_as = field->shape;
}

// Counts what labels [..], or soft labels [.., K], add to the divisor of a loss if none is ignored.
// Labels with weights count as if their classes were equally frequent.
static double count_all_labels(const tri_value_info *labels, bool are_soft,
                               const tri_loss_term *term) {
    double count = (double)tri_shape_count(&labels->shape), weights = 0;
    if (are_soft) count /= (double)labels->shape.dims[labels->shape.rank - 1];
    for (int64_t k = 0; term->weights && k < term->classes; k++)
        weights += (double)term->weights[k];
    return weights > 0 ? count * weights / (double)term->classes : count;
}

static tri_loss_term make_term(tri_graph *g, tri_value loss, double weight) {
    const tri_node *node = tri_value_node(g, loss);
    tri_loss_term term = {.weight = weight, .labels = -1};
    if (!node) return term;
    const tri_op *op = node->op;
    if (op->labels) {
        const tri_value_info *labels = tri_value_get(g, node->inputs[op->labels - 1]);
        find_labels(g, node->inputs[op->labels - 1], &term);
        term.has_labels = true;
        term.are_counts = op->sums_labels && !term.weights;
        bool are_soft = tri_dtype_is_float(labels->dtype) && !op->sums_labels;
        term.count = count_all_labels(labels, are_soft, &term);
    } else if (op->count) {
        tri_op_signature s = tri_node_signature(g, node);
        term.count = (double)op->count(&s);
    }
    return term;
}

static bool has_same_labels(const tri_loss_term *a, const tri_loss_term *b) {
    return a->has_labels && b->has_labels && a->labels >= 0 && a->labels == b->labels &&
           a->maker == b->maker && a->are_counts == b->are_counts && !a->weights && !b->weights &&
           tri_shape_equal(&a->read_as, &b->read_as) &&
           (!a->maker || !a->maker->attr_bytes ||
            !memcmp(a->maker_attr, b->maker_attr, a->maker->attr_bytes));
}

static const char *name_of_term(tri_graph *g, tri_value loss) {
    const tri_node *node = tri_value_node(g, loss);
    const char *own = *node->name ? node->name : node->op->name, *name = own;
    for (int again = 2, i = 0; i < g->metric_count; i++) {
        if (strcmp(g->metrics[i].name, name) != 0) continue;
        name = tri_name(g, "%s_%d", own, again++);
        i = -1;
    }
    return name;
}

// Why a loss with labels or counts that no rank knows before the step is not added to others.
static const char UNKNOWN_NUMBER[] =
    "%s: a loss that is added to others must have labels of the batch, as they "
    "are or by tri_next_token: their number is needed before the step; where the "
    "network makes the labels, tri_mean_loss takes each label's term, such as "
    "-log_softmax at its place (tri_gather, tri_diagonal)",
                  UNKNOWN_SUM[] =
                      "%s: a tri_ratio_loss that is added to others must have counts that are a "
                      "field of the batch, or a view of it: their sum is needed before the step; "
                      "where one count stands for several terms, take the mean of these";

// Declares the losses of the sum as metrics of their own, so that each is summed with its own
// count. The engine makes "loss" from them.
static void declare_terms(tri_graph *g, const tri_weighted_sum *sum) {
    bool is_counted = false, is_common = true;
    g->first_term = g->metric_count;
    g->term_count = sum->count;
    for (int i = 0; i < sum->count; i++) {
        tri_loss_term term = make_term(g, sum->losses[i], sum->weights[i]);
        push_metric(g, (tri_metric_info){.name = name_of_term(g, sum->losses[i]),
                                         .value = sum->losses[i],
                                         .is_minimised = true,
                                         .term = term});
        if (g->status != TRI_OK) return;
        is_counted = is_counted || term.has_labels;
        is_common = is_common && has_same_labels(&term, &g->metrics[g->first_term].term);
    }
    g->counting = sum->count == 1 || is_common ? TRI_COUNT_BEHIND
                  : is_counted                 ? TRI_COUNT_AHEAD
                                               : TRI_COUNT_KNOWN;
    for (int i = 0; g->counting == TRI_COUNT_AHEAD && i < sum->count; i++) {
        const tri_metric_info *m = &g->metrics[g->first_term + i];
        if (m->term.has_labels && m->term.labels < 0)
            tri_graph_fail(g, m->term.are_counts ? UNKNOWN_SUM : UNKNOWN_NUMBER, m->name);
    }
}

void tri_loss(tri_graph *graph, tri_value loss) {
    if (!tri_graph_takes_value(graph, "tri_loss", "", loss)) return;
    const tri_value_info *info = tri_value_get(graph, loss);
    bool is_sum = info->kind == TRI_VALUE_WEIGHTED;
    if (!is_sum && !is_pair(graph, loss)) {
        char shape[128];
        tri_graph_fail(graph,
                       "tri_loss takes what a loss returns, as tri_cross_entropy or tri_mse_loss, "
                       "not a tensor %s",
                       tri_shape_text(&info->shape, shape, sizeof shape));
        return;
    }
    tri_metric_info metric = {
        .name = "loss", .value = is_sum ? (tri_value){0} : loss, .is_minimised = true};
    if (!is_sum) metric.term = make_term(graph, loss, 1);
    push_metric(graph, metric);
    if (graph->status != TRI_OK) return;
    tri_metric_info last = graph->metrics[graph->metric_count - 1];
    memmove(graph->metrics + 1, graph->metrics,
            (size_t)(graph->metric_count - 1) * sizeof *graph->metrics);
    graph->metrics[0] = last;
    find_sources(graph);
    if (is_sum) declare_terms(graph, &graph->sums[info->index]);
}

void tri_loss_drop(tri_graph *graph) {
    int kept = 0;
    for (int i = 0; i < graph->metric_count; i++)
        if (graph->metrics[i].kind != TRI_METRIC_MEAN) graph->metrics[kept++] = graph->metrics[i];
    graph->metric_count = kept;
    graph->term_count = 0;
    graph->counting = TRI_COUNT_BEHIND;
    find_sources(graph);
}

// Counts the rows of soft labels that have a number other than 0.
static int64_t count_soft_rows(const tri_shape *shape, const float *labels) {
    int64_t count = 0, classes = shape->dims[shape->rank - 1], all = tri_shape_count(shape);
    for (int64_t first = 0; first < all; first += classes) {
        int64_t k = 0;
        while (k < classes && labels[first + k] == 0) k++;
        count += k < classes;
    }
    return count;
}

// What one label adds to the count.
static double weight_of(const tri_loss_term *term, int64_t label) {
    if (!term->weights) return label != TRI_IGNORED_LABEL;
    return label >= 0 && label < term->classes ? (double)term->weights[label] : 0;
}

double tri_loss_count_labels(const tri_graph *graph, const tri_loss_term *term, int64_t size,
                             const void *labels) {
    const tri_value_info *info = tri_value_get(graph, graph->inputs[term->labels].value);
    int64_t all = tri_shape_count(&info->shape) / info->shape.dims[0] * size;
    tri_shape shape = term->read_as; // for the graph's own number of samples
    shape.dims[0] = all / (tri_shape_count(&shape) / shape.dims[0]);
    double sum = 0;
    if (info->dtype == TRI_F32 && !term->are_counts) return (double)count_soft_rows(&shape, labels);
    for (int64_t i = 0; i < all; i++)
        sum += info->dtype == TRI_F32 ? (double)((const float *)labels)[i]
               : term->maker
                   ? weight_of(term, term->maker->label_at(term->maker_attr, &shape, labels, i))
                   : weight_of(term, ((const int64_t *)labels)[i]);
    return sum;
}
