// The table of metrics: which figures follow from the sums, and how.
#include "graph/metric.h"

#include <math.h>

// The numbers of one class, or of several together.
typedef struct class_sums {
    double hits, false_hits, missed, samples;
} class_sums;

static double quotient(double a, double b) { return b != 0 ? a / b : 0; }

static double precision(const class_sums *c) { return quotient(c->hits, c->hits + c->false_hits); }
static double recall(const class_sums *c) { return quotient(c->hits, c->hits + c->missed); }
static double f1(const class_sums *c) {
    return quotient(2 * c->hits, 2 * c->hits + c->false_hits + c->missed);
}
static double met(const class_sums *c) {
    return (c->samples - c->false_hits - c->missed) / c->samples;
}

static double auc(const double *bins, int64_t count, double *positive, double *negative) {
    double below = 0, pairs = 0, sum = 0;
    for (int64_t b = 0; b < count; b++, bins += 2) {
        pairs += bins[1] * (below + bins[0] / 2);
        below += bins[0];
        sum += bins[1];
    }
    *positive = sum;
    *negative = below;
    return pairs / (below * sum);
}

static class_sums class_of(const double *record) {
    double hits = record[TRI_CLASS_HITS];
    return (class_sums){.hits = hits,
                        .false_hits = record[TRI_CLASS_PREDICTIONS] - hits,
                        .missed = record[TRI_CLASS_LABELS] - hits,
                        .samples = record[TRI_CLASS_SAMPLES]};
}

// A value of each class, and its weight in a weighted mean; `counts` false: the mean leaves it out.
typedef struct class_value {
    double value, weight;
    bool counts;
} class_value;

static class_value value_of_class(const tri_metric_info *m, const double *sums, int64_t k) {
    class_sums c = class_of(sums + k * TRI_CLASS_SIZE);
    bool of_classes = m->tally == TRI_TALLY_CLASSES;
    bool only_labels = m->kind == TRI_METRIC_BALANCED_ACCURACY || m->k > 1;
    class_value v = {.weight = c.hits + c.missed};
    v.counts = of_classes ? v.weight > 0 || (!only_labels && c.false_hits > 0) : c.samples > 0;
    v.value = m->kind == TRI_METRIC_SUPPORT                   ? v.weight
              : m->kind == TRI_METRIC_PRECISION               ? precision(&c)
              : m->kind == TRI_METRIC_F1                      ? f1(&c)
              : m->kind == TRI_METRIC_ACCURACY && !of_classes ? met(&c)
                                                              : recall(&c);
    return v;
}

static class_value value_of_bins(const tri_metric_info *m, const double *sums, int64_t k) {
    class_value v;
    double negative;
    v.value = auc(sums + k * m->bins * 2, m->bins, &v.weight, &negative);
    v.counts = v.weight != 0 && negative != 0; // NaN, which scores of NaN make, counts
    return v;
}

static class_value value_of_errors(const tri_metric_info *m, const double *sums, int64_t k) {
    const double *s = sums + k * TRI_ERRORS_SIZE;
    double n = s[TRI_ERRORS_COUNT], square = s[TRI_ERRORS_SQUARE];
    double mean = s[TRI_ERRORS_TARGET] / n, all = s[TRI_ERRORS_TARGET_SQUARE];
    class_value v = {.weight = 1, .counts = true};
    if (m->kind == TRI_METRIC_MAE) v.value = s[TRI_ERRORS_ABSOLUTE] / n;
    if (m->kind == TRI_METRIC_MSE) v.value = square / n;
    if (m->kind == TRI_METRIC_RMSE) v.value = sqrt(square / n);
    if (m->kind != TRI_METRIC_R2) return v;
    // A difference of the size of its rounding is that of equal targets, of which R² is 1 or 0.
    v.weight = all - s[TRI_ERRORS_TARGET] * mean;
    if (v.weight <= 1e-13 * all) v.weight = 0;
    v.value = v.weight > 0 ? 1 - square / v.weight : square == 0;
    if (!(n >= 2) || isnan(square)) v.value = (double)NAN;
    return v;
}

typedef class_value value_function(const tri_metric_info *m, const double *sums, int64_t k);

static void finish_classes(const tri_metric_info *m, const double *sums, double *figures,
                           value_function *value_of) {
    double sum = 0, weights = 0;
    for (int64_t k = 0; k < m->classes; k++) {
        class_value v = value_of(m, sums, k);
        if (m->average == TRI_AVERAGE_NONE) figures[k] = v.value;
        if (!v.counts) continue;
        double weight = m->average == TRI_AVERAGE_WEIGHTED ? v.weight : 1;
        sum += weight > 0 ? weight * v.value : 0;
        weights += weight;
    }
    bool is_zero = weights == 0 && value_of == value_of_class; // no sample has a label
    if (m->average != TRI_AVERAGE_NONE) figures[0] = is_zero ? 0 : sum / weights;
}

// One record that is the sum of those of all classes.
static void add_classes(const double *sums, int64_t classes, double *record) {
    for (int64_t i = 0; i < classes * TRI_CLASS_SIZE; i++) record[i % TRI_CLASS_SIZE] += sums[i];
}

static void finish_records(const tri_metric_info *m, const double *sums, double *figures) {
    const double *all = sums + m->classes * TRI_CLASS_SIZE;
    double record[TRI_CLASS_SIZE] = {0};
    add_classes(sums, m->classes, record);
    bool is_one = m->average == TRI_AVERAGE_MICRO;
    tri_metric_info one = *m;
    one.classes = 1;
    class_sums c = class_of(record);
    if (!(record[TRI_CLASS_SAMPLES] > 0)) // no samples, or scores that are NaN
        for (int64_t i = 0, count = tri_metric_figures(m); i < count; i++) figures[i] = (double)NAN;
    else if (m->kind == TRI_METRIC_EXACT_MATCH)
        figures[0] = all[0] / all[1];
    else if (m->kind == TRI_METRIC_CONFUSION) {
        figures[0] = c.samples - c.hits - c.false_hits - c.missed;
        figures[1] = c.false_hits;
        figures[2] = c.missed;
        figures[3] = c.hits;
    } else
        finish_classes(is_one ? &one : m, is_one ? record : sums, figures, value_of_class);
}

// The weighted mean of R² can be one of outputs that do not vary; it is then as their mean.
static void finish_errors(const tri_metric_info *m, const double *sums, double *figures) {
    finish_classes(m, sums, figures, value_of_errors);
    if (m->average != TRI_AVERAGE_WEIGHTED || !isnan(figures[0])) return;
    tri_metric_info mean = *m;
    mean.average = TRI_AVERAGE_MACRO;
    finish_classes(&mean, sums, figures, value_of_errors);
}

static void finish_bins(const tri_metric_info *m, const double *sums, double *figures) {
    finish_classes(m, sums, figures, value_of_bins);
}

double tri_metric_error(const tri_metric_info *m, const double *sums) {
    double most = 0;
    if (m->kind != TRI_METRIC_AUC) return 0;
    for (int64_t k = 0; k < m->classes; k++, sums += 2 * m->bins) {
        double shared = 0, negative = 0, positive = 0;
        for (int64_t b = 0; b < m->bins; b++) {
            shared += sums[2 * b] * sums[2 * b + 1];
            negative += sums[2 * b];
            positive += sums[2 * b + 1];
        }
        double error = quotient(shared, negative * positive) / 2;
        if (error > most) most = error;
    }
    return most;
}

static void finish_pair(const tri_metric_info *m, const double *sums, double *figures) {
    double mean = sums[0] / sums[1];
    figures[0] = m->kind == TRI_METRIC_PERPLEXITY ? exp(mean) : mean;
}

static void finish_confusion(const tri_metric_info *m, const double *sums, double *figures) {
    for (int64_t i = 0, count = tri_metric_figures(m); i < count; i++) figures[i] = sums[i];
}

// Of K classes and B bins, a tally has K · (each + by_class · K + by_bin · B) + more numbers.
static const struct {
    int64_t each, by_class, by_bin, more;
    bool counts, has_labels;
    void (*finish)(const tri_metric_info *m, const double *sums, double *figures);
} rows[TRI_TALLY_COUNT] = {
    [TRI_TALLY_PAIR] = {.more = 2, .finish = finish_pair},
    [TRI_TALLY_CLASSES] = {TRI_CLASS_SIZE, 0, 0, 2, true, true, finish_records},
    [TRI_TALLY_TARGETS] = {TRI_CLASS_SIZE, 0, 0, 2, true, false, finish_records},
    [TRI_TALLY_CONFUSION] = {0, 1, 0, 0, true, true, finish_confusion},
    [TRI_TALLY_CLASS_BINS] = {0, 0, 2, 0, true, true, finish_bins},
    [TRI_TALLY_TARGET_BINS] = {0, 0, 2, 0, true, false, finish_bins},
    [TRI_TALLY_ERRORS] = {.each = TRI_ERRORS_SIZE, .finish = finish_errors},
};

int64_t tri_tally_numbers(tri_tally tally, int64_t classes, int64_t bins) {
    int64_t each = rows[tally].each + rows[tally].by_class * classes + rows[tally].by_bin * bins;
    return classes * each + rows[tally].more;
}

bool tri_tally_counts(tri_tally tally) { return rows[tally].counts; }

bool tri_tally_has_labels(tri_tally tally) { return rows[tally].has_labels; }

static int64_t numbers_before(const tri_graph *g, int end, bool counts) {
    int64_t numbers = 0;
    for (int i = 0; i < end; i++) {
        const tri_metric_info *m = &g->metrics[i];
        tri_tally tally = (tri_tally)m->tally;
        if (tri_tally_counts(tally) == counts)
            numbers += (tri_tally_numbers(tally, m->classes, m->bins) + TRI_METRIC_STRIDE - 1) /
                       TRI_METRIC_STRIDE;
    }
    return numbers * TRI_METRIC_STRIDE;
}

int64_t tri_metric_offset(const tri_graph *graph, int metric) {
    tri_tally tally = (tri_tally)graph->metrics[metric].tally;
    return numbers_before(graph, metric, tri_tally_counts(tally));
}

int64_t tri_metric_numbers(const tri_graph *graph, bool counts) {
    return numbers_before(graph, graph->metric_count, counts);
}

void tri_metric_note_inputs(tri_graph *graph, tri_value value) {
    if (graph->status != TRI_OK || !tri_value_is(value)) return;
    bool *needed = TRI_NEW_ARRAY(graph->arena, bool, graph->value_count);
    needed[value.id] = true;
    for (int i = graph->node_count - 1; i >= 0; i--) {
        const tri_node *node = &graph->nodes[i];
        bool any = false;
        for (int k = 0; k < node->output_count; k++) any = any || needed[node->outputs[k].id];
        for (int k = 0; any && k < node->input_count; k++) needed[node->inputs[k].id] = true;
    }
    for (int i = 0; i < graph->input_count; i++)
        if (needed[graph->inputs[i].value.id]) graph->inputs[i].is_measured = true;
}

int64_t tri_metric_figures(const tri_metric_info *metric) {
    return tri_shape_count(&metric->figures);
}

void tri_metric_finish(const tri_metric_info *metric, const double *sums, double *figures) {
    rows[metric->tally].finish(metric, sums, figures);
    for (int64_t i = 0, count = tri_metric_figures(metric); i < count; i++)
        if (isnan(figures[i])) figures[i] = (double)NAN; // 0 / 0 may be printed as -nan
}
