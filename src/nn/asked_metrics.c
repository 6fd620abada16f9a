// The metrics that a recipe asks for by name (`metrics: [top5, per_class]`). The losses of
// losses.c, which know a classifier's scores and labels, declare them by metrics.c.
#include "base/limits.h"
#include "nn/layers.h"
#include "nn/options.h"
#include "ops/ops.h"
#include "tensor/half.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/nn.h>

#define OF_EACH                                                                                    \
    { .average = TRI_AVERAGE_NONE }

// `word` is what the recipe says, `name` what evaluations call the metric. A word of several rows
// is all of them.
static const struct asked_metric {
    const char *word, *name;
    tri_metric_kind kind;
    tri_metric_options options;
} rows[] = {
    {"balanced_accuracy", "balanced_accuracy", TRI_METRIC_BALANCED_ACCURACY, {0}},
    {"precision", "precision", TRI_METRIC_PRECISION, {0}},
    {"recall", "recall", TRI_METRIC_RECALL, {0}},
    {"f1", "f1", TRI_METRIC_F1, {0}},
    {"auc", "auc", TRI_METRIC_AUC, {0}},
    {"perplexity", "perplexity", TRI_METRIC_PERPLEXITY, {0}},
    {"per_class", "class_precision", TRI_METRIC_PRECISION, OF_EACH},
    {"per_class", "class_recall", TRI_METRIC_RECALL, OF_EACH},
    {"per_class", "class_f1", TRI_METRIC_F1, OF_EACH},
    {"per_class", "class_samples", TRI_METRIC_SUPPORT, {0}},
    {"confusion_matrix", "confusion_matrix", TRI_METRIC_CONFUSION, {0}},
};

enum { ROWS = sizeof rows / sizeof *rows, MOST_K = 9999 };

// The k of "topK"; 0: the word is another one.
static int64_t top_of(const char *word) {
    char *end;
    if (strncmp(word, "top", 3) != 0 || word[3] < '1' || word[3] > '9') return 0;
    long k = strtol(word + 3, &end, 10);
    return *end || k > MOST_K ? 0 : k;
}

tri_status tri_metric_words_check(const tri_strings *words, const tri_tree *at) {
    const char *known[ROWS + 1] = {"top5"}, *list = "topK";
    tri_status status = TRI_OK;
    tri_arena *arena = tri_arena_create(NULL, "metrics");
    int count = 1;
    for (int i = 0; i < ROWS; i++) {
        if (!strcmp(rows[i].word, known[count - 1])) continue;
        known[count++] = rows[i].word;
        list = tri_arena_printf(arena, "%s, %s", list, rows[i].word);
    }
    for (int i = 0; i < words->count && status == TRI_OK; i++) {
        const char *word = words->items[i], *near = tri_option_nearest(word, known, count);
        bool is_known = top_of(word) > 0;
        for (int k = 1; k < count; k++) is_known = is_known || !strcmp(word, known[k]);
        if (is_known) continue;
        const char *advice = near ? tri_arena_printf(arena, " (did you mean '%s'?)", near) : "";
        status = tri_tree_fail(at, "'metrics': there is no metric '%s'%s; there are %s", word,
                               advice, list);
    }
    tri_arena_destroy(arena);
    return status;
}

bool nn_has_metric(const tri_graph *g, const char *name) {
    for (int i = 0; i < g->metric_count; i++)
        if (!strcmp(g->metrics[i].name, name)) return true;
    return false;
}

static void report(tri_graph *g, const char *name, tri_metric_kind kind, tri_value scores,
                   tri_value labels, tri_metric_options options) {
    if (!nn_has_metric(g, name)) tri_metric_of(g, name, kind, scores, labels, options);
}

// AUC has as many intervals as there is room for.
static tri_metric_options options_of(const struct asked_metric *row, int64_t classes) {
    tri_metric_options options = row->options;
    int64_t most = TRI_MAX_METRIC_NUMBERS / 2 / classes;
    if (row->kind == TRI_METRIC_AUC && most < 16384) options.bins = most;
    return options;
}

static void report_word(tri_graph *g, const char *word, tri_value scores, tri_value labels,
                        bool is_soft) {
    tri_shape shape = tri_value_shape(g, scores);
    int64_t k = top_of(word), classes = shape.dims[shape.rank - 1];
    if (k >= classes)
        tri_graph_fail(g, "metrics: %s of scores of %" PRId64 " classes is always 1", word,
                       classes);
    if (is_soft && !strcmp(word, "perplexity"))
        tri_graph_fail(g, "metrics: perplexity is of labels, and these are soft_labels");
    if (k > 0) report(g, word, TRI_METRIC_ACCURACY, scores, labels, (tri_metric_options){.k = k});
    for (int i = 0; i < ROWS; i++)
        if (!strcmp(rows[i].word, word))
            report(g, rows[i].name, rows[i].kind, scores, labels, options_of(&rows[i], classes));
}

void nn_report_asked(tri_graph *g, tri_value scores, tri_value labels) {
    const tri_strings *words = &g->options.metrics;
    if (g->reports_metrics || g->status != TRI_OK) return;
    g->reports_metrics = true;
    if (words->count == 0 || g->options.predicts) return;
    bool is_soft = tri_dtype_is_float(tri_value_get(g, labels)->dtype);
    if (is_soft) labels = tri_node_add(g, &tri_op_top_class, &labels, 1, NULL, "");
    for (int i = 0; i < words->count && g->status == TRI_OK; i++)
        report_word(g, words->items[i], scores, labels, is_soft);
}
