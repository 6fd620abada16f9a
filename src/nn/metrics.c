// Declares the metrics of metrics.h: finds what a metric is of, and adds the node that makes its
// numbers. graph/metric.h says what they are, and computes the metric from their sums.
#include "base/limits.h"
#include "graph/metric.h"
#include "nn/layers.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <string.h>
#include <trireme/nn.h>

// What a kind of metric is of; a tally 0 says that it is not of these.
static const struct metric_row {
    const char *name;
    tri_tally of_labels, of_targets;
    bool takes_k;
    // Which averages it takes, as bits, and the one that TRI_AVERAGE_USUAL means.
    unsigned averages;
    tri_metric_average usual;
} rows[TRI_METRIC_KIND_COUNT] = {
#define MICRO (1u << TRI_AVERAGE_MICRO)
#define MACRO (1u << TRI_AVERAGE_MACRO)
#define ALL (MICRO | MACRO | 1u << TRI_AVERAGE_WEIGHTED | 1u << TRI_AVERAGE_NONE)
#define RECORDS TRI_TALLY_CLASSES, TRI_TALLY_TARGETS
    [TRI_METRIC_ACCURACY] = {"ACCURACY", RECORDS, true, ALL, TRI_AVERAGE_MACRO},
    [TRI_METRIC_BALANCED_ACCURACY] = {"BALANCED_ACCURACY", TRI_TALLY_CLASSES, 0, false, MACRO,
                                      TRI_AVERAGE_MACRO},
    [TRI_METRIC_EXACT_MATCH] = {"EXACT_MATCH", 0, TRI_TALLY_TARGETS, false, MACRO,
                                TRI_AVERAGE_MACRO},
    [TRI_METRIC_PRECISION] = {"PRECISION", RECORDS, false, ALL, TRI_AVERAGE_MACRO},
    [TRI_METRIC_RECALL] = {"RECALL", RECORDS, true, ALL, TRI_AVERAGE_MACRO},
    [TRI_METRIC_F1] = {"F1", RECORDS, false, ALL, TRI_AVERAGE_MACRO},
    [TRI_METRIC_CONFUSION] = {"CONFUSION", TRI_TALLY_CONFUSION, TRI_TALLY_TARGETS, false, MICRO,
                              TRI_AVERAGE_MICRO},
    [TRI_METRIC_AUC] = {"AUC", TRI_TALLY_CLASS_BINS, TRI_TALLY_TARGET_BINS, false, ALL,
                        TRI_AVERAGE_MACRO},
    // Its numbers are those of the loss.
    [TRI_METRIC_PERPLEXITY] = {"PERPLEXITY", TRI_TALLY_CLASSES, 0, false, MICRO, TRI_AVERAGE_MICRO},
    [TRI_METRIC_MAE] = {"MAE", 0, TRI_TALLY_ERRORS, false, ALL & ~(1u << TRI_AVERAGE_WEIGHTED),
                        TRI_AVERAGE_MICRO},
    [TRI_METRIC_MSE] = {"MSE", 0, TRI_TALLY_ERRORS, false, ALL & ~(1u << TRI_AVERAGE_WEIGHTED),
                        TRI_AVERAGE_MICRO},
    [TRI_METRIC_RMSE] = {"RMSE", 0, TRI_TALLY_ERRORS, false, ALL & ~(1u << TRI_AVERAGE_WEIGHTED),
                         TRI_AVERAGE_MICRO},
    [TRI_METRIC_R2] = {"R2", 0, TRI_TALLY_ERRORS, false, ALL, TRI_AVERAGE_MACRO},
    [TRI_METRIC_SUPPORT] = {"SUPPORT", RECORDS, false, 1u << TRI_AVERAGE_NONE, TRI_AVERAGE_NONE},
};

static const char *const average_names[] = {"USUAL", "MICRO", "MACRO", "WEIGHTED", "NONE"};

// A metric that is being declared.
typedef struct declaration {
    tri_graph *graph;
    const char *name;
    const struct metric_row *row;
    tri_value prediction, target;
    tri_metric_options options;
    tri_metric_info info;
} declaration;

static int64_t last_axis(const tri_shape *shape) {
    return shape->rank > 0 ? shape->dims[shape->rank - 1] : 1;
}

// Whether `shape` is that of scores [.., K] without the last axis.
static bool are_rows(const tri_shape *scores, const tri_shape *shape) {
    tri_shape all = *scores;
    all.rank--;
    return scores->rank > 0 && tri_shape_equal(&all, shape);
}

// Finds the tally, by the shapes of prediction and target.
static void find_tally(declaration *d) {
    tri_shape scores = tri_value_shape(d->graph, d->prediction);
    tri_shape target = tri_value_shape(d->graph, d->target);
    bool is_integer = tri_value_get(d->graph, d->target)->dtype == TRI_I64;
    bool are_labels = is_integer && are_rows(&scores, &target) && last_axis(&scores) > 1;
    bool fits = are_labels || tri_shape_equal(&scores, &target);
    if (!fits && are_rows(&scores, &target) && last_axis(&scores) == 1) {
        d->prediction = tri_reshape(d->graph, d->prediction, target);
        fits = true;
    }
    char one[128], other[128];
    d->info.tally = (int)(are_labels ? d->row->of_labels : d->row->of_targets);
    if (fits && d->info.tally) return;
    tri_graph_fail(d->graph, "metric %s: %s is of %s, not of a prediction %s and a target %s %s",
                   d->name, d->row->name,
                   !d->row->of_targets  ? "scores [.., K] and labels I64 [..]"
                   : !d->row->of_labels ? "two tensors of one shape"
                                        : "scores [.., K] and labels I64 [..], or of scores and "
                                          "targets of one shape",
                   tri_shape_text(&scores, one, sizeof one), is_integer ? "I64" : "of numbers",
                   tri_shape_text(&target, other, sizeof other));
}

static void settle_average(declaration *d) {
    tri_metric_average *average = &d->info.average;
    bool of_labels = tri_tally_has_labels((tri_tally)d->info.tally);
    *average = d->options.average;
    if (*average == TRI_AVERAGE_USUAL) {
        *average = d->row->usual;
        if (d->info.kind == TRI_METRIC_ACCURACY && of_labels) *average = TRI_AVERAGE_MICRO;
    }
    bool is_known = *average > TRI_AVERAGE_USUAL && *average <= TRI_AVERAGE_NONE;
    if (!is_known || !(d->row->averages >> *average & 1) ||
        (d->info.kind == TRI_METRIC_AUC && of_labels && *average == TRI_AVERAGE_MICRO)) {
        tri_graph_fail(d->graph, "metric %s: %s has no average %s", d->name, d->row->name,
                       is_known ? average_names[*average] : "of this number");
        return;
    }
    d->info.k = d->options.k != 0 ? d->options.k : 1;
    if (d->info.k < 1 || (d->info.k > 1 && (!d->row->takes_k || !of_labels)))
        tri_graph_fail(d->graph,
                       "metric %s: k is %" PRId64 ": it must be at least 1, and above 1 only of "
                       "ACCURACY and RECALL of labels",
                       d->name, d->info.k);
}

// Finds how many classes, labels or outputs are kept apart, and the shape of the figures.
static void settle_sizes(declaration *d) {
    tri_shape shape = tri_value_shape(d->graph, d->prediction);
    tri_metric_info *m = &d->info;
    bool is_apart = m->average != TRI_AVERAGE_MICRO && shape.rank > 1;
    m->bins = d->options.bins != 0 ? d->options.bins : 16384;
    m->classes = is_apart || tri_tally_has_labels((tri_tally)m->tally) ? last_axis(&shape) : 1;
    if (m->tally == TRI_TALLY_ERRORS && is_apart)
        m->classes = tri_shape_count(&shape) / (shape.dims[0] > 0 ? shape.dims[0] : 1);
    if (m->classes < 1 || m->bins < 2 || m->bins > TRI_MAX_METRIC_NUMBERS)
        tri_graph_fail(d->graph, "metric %s: there are %" PRId64 " classes and %" PRId64 " bins",
                       d->name, m->classes, m->bins);
    if (m->tally == TRI_TALLY_ERRORS && m->classes > TRI_MAX_METRIC_OUTPUTS)
        tri_graph_fail(d->graph,
                       "metric %s: %" PRId64 " outputs, and at most %d are kept apart; the average "
                       "MICRO takes all elements together",
                       d->name, m->classes, TRI_MAX_METRIC_OUTPUTS);
    if (d->graph->status != TRI_OK) return;
    bool is_matrix = m->tally == TRI_TALLY_CONFUSION;
    if (m->average == TRI_AVERAGE_NONE) m->figures = tri_shape_of(m->classes);
    if (m->kind == TRI_METRIC_CONFUSION) {
        int64_t side = is_matrix ? m->classes : 2;
        m->figures = tri_shape_of(side, side);
    }
    bool is_large = m->classes > TRI_MAX_METRIC_NUMBERS;
    int64_t numbers = is_large ? 0 : tri_tally_numbers((tri_tally)m->tally, m->classes, m->bins);
    if (is_large || numbers > TRI_MAX_METRIC_NUMBERS)
        tri_graph_fail(d->graph,
                       "metric %s: of %" PRId64 " classes it adds up more than %d numbers%s",
                       d->name, m->classes, TRI_MAX_METRIC_NUMBERS,
                       m->kind == TRI_METRIC_AUC ? ": give it fewer bins" : "");
}

// Adds a node, unless the graph has the same one: metrics of the same scores, and perplexity and
// its loss, then share their numbers.
static tri_value add_once(tri_graph *g, const tri_op *op, tri_value *in, const void *attr,
                          const char *name) {
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        if (node->op == op && node->input_count == 2 && node->inputs[0].id == in[0].id &&
            node->inputs[1].id == in[1].id &&
            (!op->attr_bytes || !memcmp(node->attr, attr, op->attr_bytes)))
            return node->outputs[0];
    }
    return tri_node_add(g, op, in, 2, attr, name);
}

static void add_node(declaration *d) {
    tri_metric_info *m = &d->info;
    tri_value in[] = {d->prediction, d->target};
    if (m->kind == TRI_METRIC_PERPLEXITY) {
        m->tally = TRI_TALLY_PAIR;
        if (!tri_training(d->graph))
            m->value = add_once(d->graph, &tri_op_cross_entropy, in, NULL, "");
        return;
    }
    bool reads_bins = m->kind == TRI_METRIC_AUC;
    tri_metric_sums_attr attr;
    memset(&attr, 0, sizeof attr);
    attr = (tri_metric_sums_attr){.tally = m->tally,
                                  .classes = m->classes,
                                  .bins = reads_bins ? m->bins : 1,
                                  .k = m->k,
                                  .threshold = d->options.threshold};
    if (!tri_training(d->graph))
        m->value = add_once(d->graph, &tri_op_metric_sums, in, &attr, d->name);
}

void tri_metric_of(tri_graph *graph, const char *name, tri_metric_kind kind, tri_value prediction,
                   tri_value target, tri_metric_options options) {
    if (!tri_graph_takes_name(graph, "metric", name) || graph->options.predicts) return;
    if (kind <= TRI_METRIC_MEAN || kind >= TRI_METRIC_KIND_COUNT) {
        tri_graph_fail(graph, "metric %s: there is no kind %d", name, (int)kind);
        return;
    }
    if (!tri_graph_check_input(graph, "metric", name, prediction) ||
        !tri_graph_check_input(graph, "metric", name, target))
        return;
    declaration d = {.graph = graph,
                     .name = name,
                     .row = &rows[kind],
                     .prediction = prediction,
                     .target = target,
                     .options = options,
                     .info = {.kind = kind}};
    static void (*const steps[])(declaration * d) = {find_tally, settle_average, settle_sizes,
                                                     add_node};
    for (size_t i = 0; i < sizeof steps / sizeof *steps && graph->status == TRI_OK; i++)
        steps[i](&d);
    if (graph->status != TRI_OK) return;
    tri_metric_note_inputs(graph, prediction);
    tri_metric_note_inputs(graph, target);
    tri_metric_declare(graph, name, d.info);
}
